// Header stacks: next, last, lastIndex, push, pop, elements by constant and by computed index.
#include "include/frame.p4"

header top_t { bit<8> op; bit<8> index; bit<8> result; }
header e_t { bit<7> v; bit<1> bos; }
struct H { top_t top; e_t[4] s; }
struct M { bit<32> last; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.top); transition more; }
    state more {
        p.extract(h.s.next);
        m.last = h.s.lastIndex;
        transition select(h.s.last.bos) {
            0: more;
            1: accept;
        }
    }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (h.top.op == 0) { h.top.result = (bit<8>)m.last; }
        if (h.top.op == 1) { h.s.push_front(1); }
        if (h.top.op == 2) { h.s.push_front(2); h.s[0].setValid(); h.s[0].v = 0x7f; h.s[0].bos = 0; }
        if (h.top.op == 3) { h.s.pop_front(1); }
        if (h.top.op == 4) { h.s.pop_front(7); }
        if (h.top.op == 5) { h.top.result = (bit<8>)h.s[h.top.index].v; }
        if (h.top.op == 6) { h.s[h.top.index].v = 0x55; }
        if (h.top.op == 7 && h.s[1] == h.s[2]) { h.top.result = 1; }
        if (s.parser_error == error.StackOutOfBounds) { h.top.result = 0xee; }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
