// Conditions and choices: nested, negated, short-circuited, on fields of headers that may be absent.
#include "include/frame.p4"

header h_t { bit<8> a; bit<8> b; bit<16> c; bit<32> r; }
struct H { h_t h; h_t g; }
bit<32> mix(in bit<32> v, in bit<8> k) {
    return (v ^ (bit<32>)k) * 16777619;
}
struct M { bool x; bit<4> n; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition select(h.h.a[1:0] == 3) { true: two; false: accept; } }
    state two { p.extract(h.g); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action note(in bit<8> k, inout bit<32> r) { r = r + (bit<32>)k; }
    apply {
        s.egress_spec = 1;
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        m.x = h.g.isValid() && (h.g.a > h.h.a || h.g.b == h.h.b) && !(h.g.c[0:0] == 1);
        m.n = m.x ? h.h.a[3:0] : h.h.b[7:4];
        h.h.r = (h.h.a < 0x40 ? (h.h.b < 0x40 ? 32w1 : 32w2) : (h.h.c == 0 ? 32w3 : 32w4)) << m.n;
        h.h.r = mix(h.h.r, h.h.a);
        h.h.r = mix(h.h.r, h.h.b);
        note(h.h.a, h.h.r);
        if (m.x || m.n == 7) { h.h.c = (bit<16>)(m.n ++ m.n) + 16w0xff; }
        else if (!(m.n != 3 && m.n != 5)) { h.h.c = h.h.c * 3; }
        else { h.h.c = h.h.c & 7; }
        if ((h.h.a & h.h.b) != 0 && (h.h.a | h.h.b) != 0xff) { h.h.a = ~(h.h.a ^ h.h.b); }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
