// Whole headers: copied, compared, made valid and invalid, in both orders.
#include "include/frame.p4"

header h_t { bit<8> op; bit<8> x; bit<16> y; }
header k_t { bit<8> op; varbit<64> v; bit<8> end; }
struct H { h_t a; h_t b; h_t c; k_t k; k_t l; }
struct M { h_t spare; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.a);
        transition select(h.a.op) { 0..0x3f: accept; 0x80 &&& 0x80: k; default: b; }
    }
    state b { p.extract(h.b); transition accept; }
    state k { p.extract(h.k, (bit<32>)(h.a.x & 0x48)); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (!h.a.isValid()) { mark_to_drop(s); exit; }
        bit<4> op = h.a.op[3:0];
        if (op == 1) { h.c = h.a; h.a = h.b; }
        if (op == 2) { m.spare = h.a; h.a.setInvalid(); h.c = m.spare; h.c.x = 0xcc; }
        if (op == 3 && h.a == h.b) { h.a.x = 0x33; }
        if (op == 4 && h.b != h.c) { h.a.x = 0x44; }
        if (op == 5) { h.c.setValid(); h.c.y = h.a.y; h.b.setValid(); h.b = h.c; }
        if (op == 6) { h.l = h.k; h.k.setInvalid(); }
        if (op == 7) { h.l = h.k; if (h.l == h.k) { h.a.x = 0x77; } h.l.end = 0x70; if (h.l == h.k) { h.a.x = 0x78; } }
        if (op == 8) { h.b.setInvalid(); h.b.setValid(); h.b.op = h.a.op; }
        if (op == 9) { h.c = { 9, h.a.x, h.a.y }; if (h.c == h.a) { h.c.y = 0; } }
        if (op == 10) { h.k.setInvalid(); h.l = h.k; if (h.l.isValid()) { h.a.x = 1; } }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
