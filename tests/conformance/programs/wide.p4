// Arithmetic on wide fields: 72, 128, 200, 512 and 2048 bits.
#include "include/frame.p4"

header h_t { bit<8> op; bit<8> by; bit<72> a; bit<128> b; bit<200> c; bit<512> d; }
header big_t { bit<2048> big; }
struct H { h_t h; big_t big; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition select(h.h.op[7:7]) { 1: big; default: accept; } }
    state big { p.extract(h.big); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 2;
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        if (h.h.op[2:0] == 0) { h.h.b = h.h.b + (bit<128>)h.h.a; h.h.c = h.h.c - (bit<200>)h.h.b; }
        if (h.h.op[2:0] == 1) { h.h.b = h.h.b * (bit<128>)h.h.a; h.h.d = h.h.d * h.h.d; }
        if (h.h.op[2:0] == 2) { h.h.a = h.h.b[99:28]; h.h.d[300:101] = h.h.c; }
        if (h.h.op[2:0] == 3) { h.h.b = h.h.b << h.h.by; h.h.c = h.h.c >> h.h.by; h.h.d = h.h.d << 200; }
        if (h.h.op[2:0] == 4) { h.h.c = h.h.a ++ h.h.b; h.h.d = ~h.h.d; h.h.a = -h.h.a; }
        if (h.h.op[2:0] == 5) { h.h.b = h.h.b |+| (128w1 << 127); h.h.c = h.h.c |-| (bit<200>)h.h.b; }
        if (h.h.op[2:0] == 6) { if ((bit<128>)h.h.a < h.h.b) { h.h.by = 1; } else { h.h.by = 2; } }
        if (h.h.op[2:0] == 7) { h.h.c = (h.h.c & (bit<200>)h.h.d) | ((bit<200>)h.h.b ^ h.h.c); }
        if (h.big.isValid()) {
            h.big.big = (h.big.big << 250) + (bit<2048>)h.h.d * 3 - (h.big.big >> 77);
        }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
