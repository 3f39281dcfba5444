// Loops in actions, which p4c knows from 1.2.5 on; see tests/small.rs.
#include <core.p4>
#include <v1model.p4>

header e_t { bit<48> dst; bit<48> src; bit<16> t; }
struct H { e_t e; }
struct M { }
parser P(packet_in b, out H hdr, inout M meta, inout standard_metadata_t sm) { state start { b.extract(hdr.e); transition accept; } }
control V(inout H hdr, inout M meta) { apply { } }
control I(inout H hdr, inout M meta, inout standard_metadata_t sm) {
    action sum() {
        bit<48> sum = 0;
        bit<48> squares = 0;
        for (bit<16> i = 0; i < hdr.e.t; i = i + 1) {
            if (i == 3) { continue; }
            if (i == 100) { break; }
            sum = sum + (bit<48>) (i + 1);
            for (bit<16> j = 0; j < i + 1; j = j + 1) {
                squares = squares + (bit<48>) (i + 1);
            }
        }
        hdr.e.dst = sum;
        hdr.e.src = squares;
    }
    action forever() {
        for (bit<16> i = 0; i <= 0xffff; i = i + 1) {
            hdr.e.src = hdr.e.src + 1;
        }
    }
    apply {
        if (hdr.e.t == 0xffff) { forever(); } else { sum(); }
        sm.egress_spec = 1;
    }
}
control E(inout H hdr, inout M meta, inout standard_metadata_t sm) { apply { } }
control C(inout H hdr, inout M meta) { apply { } }
control D(packet_out b, in H hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
