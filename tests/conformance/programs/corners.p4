// Values at the edge of their types: negative arguments, lengths past 31 bits, an empty stack, a varbit that is copied.
#include "include/frame.p4"

error { TooDeep }

header h_t { bit<8> op; bit<8> a; bit<8> b; bit<8> c; }
header v_t { bit<8> n; varbit<32> v; }
header e_t { bit<8> x; }
struct H { h_t h; v_t x; v_t y; e_t[4] s; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.h);
        transition select(h.h.op) {
            3: copied;
            7: long;
            9: empty;
            default: accept;
        }
    }
    state copied {
        p.extract(h.x, 16);
        h.y.setValid();
        h.y.n = 9;
        h.y.v = h.x.v;
        transition accept;
    }
    state long {
        p.extract(h.x, ((bit<32>)h.h.a - 5) * 32);
        transition accept;
    }
    state empty {
        verify(h.s.lastIndex < 3, error.TooDeep);
        transition accept;
    }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action signed(int<8> v) { h.h.c = (bit<8>)v; }
    action wide(int<72> v) { h.h.c = v[71:64]; h.h.b = v[7:0]; }
    table t { actions = { signed; } default_action = signed(-1); }
    table w { actions = { wide; } default_action = wide(-2); }
    apply {
        s.egress_spec = 1;
        if (s.parser_error == error.ParserInvalidArgument) { h.h.b = 1; }
        if (s.parser_error == error.PacketTooShort) { h.h.b = 2; }
        if (s.parser_error == error.TooDeep) { h.h.b = 3; }
        if (h.h.op == 2) { t.apply(); }
        if (h.h.op == 4) { w.apply(); }
        if (h.h.op == 12) { s.egress_rid = 7; }
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        if (h.h.op == 12) { h.h.c = (bit<8>)s.egress_rid; }
    }
}
NO_CHECKSUMS
MAIN
