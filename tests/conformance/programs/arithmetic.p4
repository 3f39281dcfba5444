// Widths, signs, saturation, shifts, slices, concatenation, wide values.
#include "include/frame.p4"

header h_t { bit<8> a; bit<8> b; }
header r_t {
    bit<8> add; bit<8> sub; bit<8> mul; bit<8> usat_add; bit<8> usat_sub;
    int<8> ssat_add; int<8> ssat_sub; bit<8> shl; bit<8> shr; int<8> sar;
    bit<8> slice; bit<16> concat; bit<8> neg; bit<8> inv; bit<8> less;
    bit<16> widened;
}
header w_t { bit<256> x; bit<256> y; }
struct H { h_t h; r_t r; w_t w; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); p.extract(h.w); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        bit<8> a = h.h.a;
        bit<8> b = h.h.b;
        int<8> sa = (int<8>)a;
        int<8> sb = (int<8>)b;
        s.egress_spec = 1;
        h.r.setValid();
        h.r.add = a + b;
        h.r.sub = a - b;
        h.r.mul = a * b;
        h.r.usat_add = a |+| b;
        h.r.usat_sub = a |-| b;
        h.r.ssat_add = sa |+| sb;
        h.r.ssat_sub = sa |-| sb;
        h.r.shl = a << b;
        h.r.shr = a >> b;
        h.r.sar = sa >> b;
        h.r.slice = a[7:4] ++ b[3:0];
        h.r.concat = a ++ b;
        h.r.neg = -a;
        h.r.inv = ~a;
        h.r.less = (sa < sb ? 8w1 : 8w0) | (a < b ? 8w2 : 8w0);
        h.r.widened = (bit<16>)(int<16>)sa;
        h.w.x = (h.w.x << 100) + h.w.y * 3;
        h.w.y = (h.w.y >> 9) ^ ~h.w.x;
        h.w.y[200:190] = 11w0x2aa;
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
