// Lookahead, advance, verify, selects with masks and ranges, errors of the program's own.
#include "include/frame.p4"

error { Odd }
header h_t { bit<8> kind; bit<8> skip; }
header rest_t { bit<8> v; }
header out_t { bit<16> ahead; bit<8> err; bit<8> way; }
struct H { out_t o; h_t h; rest_t r; }
struct M { bit<16> ahead; bit<8> way; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        m.way = 0;
        m.ahead = 0;
        p.extract(h.h);
        transition select(h.h.kind, h.h.skip) {
            (0x10 &&& 0xf0, _): look;
            (0x20..0x2f, 0): small;
            (0x20..0x2f, _): skip;
            (0x30, _): check;
            default: accept;
        }
    }
    state look { m.ahead = p.lookahead<bit<16>>(); m.way = 1; transition rest; }
    state small { m.way = 2; transition rest; }
    state skip { m.way = 3; p.advance((bit<32>)h.h.skip); transition rest; }
    state check { verify(h.h.skip[0:0] == 0, error.Odd); m.way = 5; transition rest; }
    state rest { p.extract(h.r); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        h.o.setValid();
        h.o.ahead = m.ahead;
        h.o.way = m.way;
        h.o.err = 0;
        if (s.parser_error == error.PacketTooShort) { h.o.err = 1; }
        if (s.parser_error == error.Odd) { h.o.err = 2; }
        if (s.parser_error == error.ParserInvalidArgument) { h.o.err = 3; }
        if (h.r.isValid()) { h.r.v = h.r.v + 1; }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
