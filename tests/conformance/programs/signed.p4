// Signed arithmetic: wrapping, saturating, comparing, widening, narrowing, shifting.
#include "include/frame.p4"

header h_t {
    int<8> a; int<8> b; int<16> c; int<16> d; int<33> e; bit<7> by; int<64> f;
    int<8> r1; int<16> r2; int<33> r3; bit<7> flags; int<64> r4;
}
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        h.h.flags = 0;
        if (h.h.a < h.h.b) { h.h.flags[0:0] = 1; }
        if (h.h.c >= h.h.d) { h.h.flags[1:1] = 1; }
        if ((int<33>)h.h.c > h.h.e) { h.h.flags[2:2] = 1; }
        if (h.h.f <= (int<64>)h.h.e) { h.h.flags[3:3] = 1; }
        if (h.h.a == -h.h.b) { h.h.flags[4:4] = 1; }
        if (h.h.f != (int<64>)(int<16>)h.h.f) { h.h.flags[5:5] = 1; }
        h.h.r1 = (h.h.a |+| h.h.b) - (h.h.a |-| h.h.b);
        h.h.r2 = h.h.c * h.h.d + (int<16>)h.h.a;
        h.h.r3 = (h.h.e >> h.h.by) ^ (int<33>)h.h.b;
        h.h.r4 = (h.h.f << h.h.by) |+| (int<64>)h.h.e;
        h.h.c = h.h.c |-| h.h.d;
        h.h.d = (int<16>)h.h.e;
        h.h.f = (h.h.f |+| (int<64>)h.h.r3) >> 3;
        h.h.e = -h.h.e + (int<33>)(bit<33>)(bit<7>)h.h.by;
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
