// A header union.
#include <core.p4>
#include <v1model.p4>
header a_t { bit<8> n; } header b_t { bit<16> n; } header_union u_t { a_t a; b_t b; }
header e_t { bit<48> dst; bit<48> src; bit<16> t; }
struct H { e_t e; u_t u; }
struct M { bit<8> x; bit<16> y; }
parser P(packet_in b, out H hdr, inout M meta, inout standard_metadata_t sm) { state start { b.extract(hdr.e); transition select(hdr.e.t) { 1: a; default: bb; } } state a { b.extract(hdr.u.a); transition accept; } state bb { b.extract(hdr.u.b); transition accept; } }
control V(inout H hdr, inout M meta) { apply { } }
control I(inout H hdr, inout M meta, inout standard_metadata_t sm) { apply { } }
control E(inout H hdr, inout M meta, inout standard_metadata_t sm) { apply { } }
control C(inout H hdr, inout M meta) { apply { } }
control D(packet_out b, in H hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
