// Shifts by constants and by fields, past the width, of operands and results of unlike widths.
#include "include/frame.p4"

header h_t { bit<8> x; bit<32> v; bit<16> w; bit<8> by; bit<32> far; int<32> n; bit<32> r1; bit<16> r2; bit<64> r3; int<32> r4; bit<32> r5; }
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 0;
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        h.h.r1 = h.h.v << h.h.by;
        h.h.r2 = h.h.w >> h.h.x[4:0];
        h.h.r3 = ((bit<64>)h.h.v << 17) | ((bit<64>)h.h.w >> 3);
        h.h.r4 = (h.h.n >> h.h.by) + (h.h.n << 5);
        h.h.r5 = (h.h.v << 31) ^ (h.h.v >> 32) ^ (h.h.v >> h.h.far[5:0]);
        h.h.x = (8w1 << h.h.x[3:0]) | (h.h.x >> (h.h.by & 7));
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
