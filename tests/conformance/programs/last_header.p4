// The last element of a stack as a header, assigned in the parser.
#include "include/frame.p4"

header h_t { bit<1> more; bit<7> kind; bit<8> value; }
struct H { h_t[3] stack; h_t copy; }
struct M { h_t last; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        transition select(p.lookahead<bit<8>>()) {
            0xff: empty;
            default: element;
        }
    }
    // Of no element: StackOutOfBounds.
    state empty {
        m.last = h.stack.last;
        transition accept;
    }
    state element {
        p.extract(h.stack.next);
        m.last = h.stack.last;
        transition select(m.last.more) {
            1: element;
            default: accept;
        }
    }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (s.parser_error == error.StackOutOfBounds) { s.egress_spec = 2; }
        if (m.last.isValid()) { h.copy = m.last; h.copy.more = 1; }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
