// A small program for one feature; see tests/small.rs.
#include <core.p4>
#include <v1model.p4>
header e_t { bit<48> dst; bit<48> src; bit<16> t; }
struct H { e_t e; e_t f; e_t[3] s; }
struct M { bit<8> x; bit<16> y; }
parser P(packet_in b, out H hdr, inout M meta, inout standard_metadata_t sm) { state start { b.extract(hdr.e); b.extract(hdr.f); b.extract(hdr.s.next); b.extract(hdr.s.next); transition accept; } }
control V(inout H hdr, inout M meta) { apply {  } }
control I(inout H hdr, inout M meta, inout standard_metadata_t sm) { apply { if (hdr.e == hdr.f) { sm.egress_spec = 7; } meta.x = (bit<8>)hdr.e.t; hdr.s[meta.x].t = 77; if (hdr.s[meta.x].isValid()) { hdr.e.src = hdr.s[meta.x].dst; } hdr.s[2] = hdr.e; if (hdr.e != hdr.f) { hdr.f.src = 1; } } }
control E(inout H hdr, inout M meta, inout standard_metadata_t sm) { apply { } }
control C(inout H hdr, inout M meta) { apply {  } }
control D(packet_out b, in H hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
