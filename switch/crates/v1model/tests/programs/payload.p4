// A small program for one feature; see tests/small.rs.
#include <core.p4>
#include <v1model.p4>
header e_t { bit<48> dst; bit<48> src; bit<16> t; }
header u_t { bit<16> len; bit<16> csum; } struct H { e_t e; u_t u; }
struct M { bit<8> x; bit<16> y; }
parser P(packet_in b, out H hdr, inout M meta, inout standard_metadata_t sm) { state start { b.extract(hdr.e); b.extract(hdr.u); transition accept; } }
control V(inout H hdr, inout M meta) { apply { verify_checksum_with_payload(hdr.u.isValid(), { hdr.e.src, hdr.u.len }, hdr.u.csum, HashAlgorithm.csum16); } }
control I(inout H hdr, inout M meta, inout standard_metadata_t sm) { apply { sm.egress_spec = 1; if (sm.checksum_error == 1) { sm.egress_spec = 2; } } }
control E(inout H hdr, inout M meta, inout standard_metadata_t sm) { apply { } }
control C(inout H hdr, inout M meta) { apply { update_checksum_with_payload(hdr.e.t == 1, { hdr.e.src, hdr.u.len }, hdr.u.csum, HashAlgorithm.csum16); } }
control D(packet_out b, in H hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
