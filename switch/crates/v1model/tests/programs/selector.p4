// An action selector.
#include <core.p4>
#include <v1model.p4>

header e_t { bit<48> dst; bit<48> src; bit<16> t; }
struct H { e_t e; }
struct M { bit<8> x; bit<16> y; }
parser P(packet_in b, out H hdr, inout M meta, inout standard_metadata_t sm) { state start { b.extract(hdr.e); transition accept; } }
control V(inout H hdr, inout M meta) { apply { } }
control I(inout H hdr, inout M meta, inout standard_metadata_t sm) { action a(bit<9> p) { sm.egress_spec = p; } table t { key = { hdr.e.t: exact; hdr.e.src: selector; } actions = { a; NoAction; } implementation = action_selector(HashAlgorithm.crc16, 4, 16); } apply { t.apply(); } }
control E(inout H hdr, inout M meta, inout standard_metadata_t sm) { apply { } }
control C(inout H hdr, inout M meta) { apply { } }
control D(packet_out b, in H hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
