// Options of several kinds to a union each, until the end option, the room or the data runs out.
#include "include/frame.p4"

error { BadOption }
header head_t { bit<8> room; bit<8> seen; }
header end_t { bit<8> kind; }
header nop_t { bit<8> kind; }
header mss_t { bit<8> kind; bit<8> len; bit<16> mss; }
header sack_t { bit<8> kind; bit<8> len; varbit<128> blocks; }
header_union option_t { end_t end; nop_t nop; mss_t mss; sack_t sack; }
struct H { head_t head; option_t[6] options; }
struct M { bit<8> count; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.head); m.count = 0; transition next; }
    state next {
        transition select(m.count == h.head.room) { true: accept; false: more; }
    }
    state more {
        m.count = m.count + 1;
        transition select(p.lookahead<bit<8>>()) { 0: end; 1: nop; 2: mss; 5: sack; default: bad; }
    }
    state end { p.extract(h.options.next.end); transition accept; }
    state nop { p.extract(h.options.next.nop); transition next; }
    state mss { p.extract(h.options.next.mss); transition next; }
    state sack {
        bit<16> ahead = p.lookahead<bit<16>>();
        verify(ahead[7:0] >= 2, error.BadOption);
        p.extract(h.options.next.sack, ((bit<32>)ahead[7:0] - 2) * 8);
        transition next;
    }
    state bad { verify(false, error.BadOption); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (!h.head.isValid()) { mark_to_drop(s); exit; }
        h.head.seen = m.count;
        if (s.parser_error == error.BadOption) { h.head.seen = 0xbb; }
        if (s.parser_error == error.StackOutOfBounds) { h.head.seen = 0xcc; }
        if (s.parser_error == error.PacketTooShort) { h.head.seen = 0xdd; }
        if (s.parser_error == error.HeaderTooShort) { h.head.seen = 0xee; }
        if (h.options[0].mss.isValid() && h.options[0].mss.mss > 1460) { h.options[0].mss.mss = 1460; }
        if (h.options[1].nop.isValid()) { h.options[1].nop.setInvalid(); }
        if (h.options[2].sack.isValid()) { h.options[2].nop.setValid(); h.options[2].nop.kind = 1; }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
