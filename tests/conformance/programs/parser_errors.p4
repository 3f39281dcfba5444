// Ways out of a parser: errors of its own, checks of several fields, subparsers, no match, the end.
#include "include/frame.p4"

error { TooBig, Unlike, Third }
header h_t { bit<8> kind; bit<16> a; bit<16> b; }
header x_t { bit<8> n; bit<24> v; }
header out_t { bit<8> error_; bit<8> way; }
struct H { out_t out_; h_t h; x_t x; x_t y; }
struct M { bit<8> way; }
parser Sub(packet_in p, out x_t x, in bit<8> limit) {
    state start {
        p.extract(x);
        verify(x.n <= limit, error.TooBig);
        transition select(x.v) { 0xdead00 &&& 0xffff00: accept; default: accept; }
    }
}
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    Sub() sub;
    state start {
        m.way = 0;
        p.extract(h.h);
        transition select(h.h.kind) {
            0: accept;
            1: same;
            2: sub_one;
            3..5: narrow;
        }
    }
    state same { m.way = 1; verify(h.h.a == h.h.b, error.Unlike); m.way = 2; transition accept; }
    state sub_one { m.way = 3; sub.apply(p, h.x, 10); m.way = 4; transition select(h.x.n) { 1: sub_two; default: accept; } }
    state sub_two { m.way = 5; sub.apply(p, h.y, 200); m.way = 6; transition accept; }
    state narrow {
        m.way = 7;
        transition select(h.h.a, h.h.b) { (0x00ff &&& 0x00ff, 1): accept; (10..20, _): third; (_, 0..3): sub_one; }
    }
    state third { m.way = 8; verify(h.h.a + h.h.b != 0x0014, error.Third); m.way = 9; transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        h.out_.setValid();
        h.out_.way = m.way;
        h.out_.error_ = 0xff;
        if (s.parser_error == error.NoError) { h.out_.error_ = 0; }
        if (s.parser_error == error.PacketTooShort) { h.out_.error_ = 1; }
        if (s.parser_error == error.NoMatch) { h.out_.error_ = 2; }
        if (s.parser_error == error.TooBig) { h.out_.error_ = 3; }
        if (s.parser_error == error.Unlike) { h.out_.error_ = 4; }
        if (s.parser_error == error.Third) { h.out_.error_ = 5; }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
