// Looking ahead and moving on by amounts that the packet gives.
#include "include/frame.p4"

header h_t { bit<8> skip; bit<8> kind; }
header peeked_t { bit<4> a; bit<12> b; bit<16> c; }
header out_t { bit<12> b; bit<4> a; bit<16> c; bit<16> last; }
header r_t { bit<16> v; }
struct H { out_t o; h_t h; r_t r; }
struct M { peeked_t seen; bit<16> last; bit<1> ok; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.h);
        m.ok = 0;
        transition select(h.h.kind) { 1: struct_; 2: far; 3: bits; default: accept; }
    }
    state struct_ { m.seen = p.lookahead<peeked_t>(); m.ok = 1; transition rest; }
    state far {
        p.advance((bit<32>)(h.h.skip & 0x0f) << 3);
        transition select(p.lookahead<bit<24>>()[23:20]) { 1: struct_; 2: rest; default: accept; }
    }
    state bits {
        bit<3> top = p.lookahead<bit<3>>();
        m.last = (bit<16>)top;
        transition select(top) { 0: accept; 1..3: rest; default: struct_; }
    }
    state rest { p.extract(h.r); m.last = m.last + h.r.v; transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        h.o.setValid();
        if (m.ok == 1) { h.o.a = m.seen.a; h.o.b = m.seen.b; h.o.c = m.seen.c; } else { h.o.a = 0; h.o.b = 0; h.o.c = 0; }
        h.o.last = m.last;
        if (h.r.isValid() && h.h.kind == 3) { h.r.setInvalid(); }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
