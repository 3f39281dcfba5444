// The fields of an invalid header are 0 in a key, whatever is written to them.
#include "include/frame.p4"

header h_t { bit<8> op; bit<8> exactly; bit<8> wide; bit<8> prefix; bit<8> ranged; bit<8> both; bit<8> read; }
header o_t { bit<8> a; bit<72> b; }
struct H { h_t h; o_t o; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.h);
        transition select(h.h.op) {
            1: other;
            default: accept;
        }
    }
    state other { p.extract(h.o); transition accept; }
}
control V(inout H h, inout M m) { apply { } }
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action exactly(bit<8> n) { h.h.exactly = n; }
    action wide(bit<8> n) { h.h.wide = n; }
    action prefix(bit<8> n) { h.h.prefix = n; }
    action ranged(bit<8> n) { h.h.ranged = n; }
    action both(bit<8> n) { h.h.both = n; }
    table of_exact {
        key = { h.o.a: exact; }
        actions = { exactly; }
        const default_action = exactly(9);
        const entries = { 0: exactly(1); 7: exactly(2); }
    }
    table of_wide {
        key = { h.o.b: ternary; }
        actions = { wide; }
        const default_action = wide(9);
        const entries = { 0: wide(1); 72w7 << 64 &&& 72w0xff << 64: wide(2); }
    }
    table of_prefix {
        key = { h.o.a: lpm; }
        actions = { prefix; }
        const default_action = prefix(9);
        const entries = { 0 &&& 0xfe: prefix(1); 6 &&& 0xfe: prefix(2); }
    }
    table of_range {
        key = { h.o.a: range; }
        actions = { ranged; }
        const default_action = ranged(9);
        const entries = { 0..3: ranged(1); 4..8: ranged(2); }
    }
    table of_both {
        key = { h.o.isValid(): exact; h.o.a: exact; h.h.op: exact; }
        actions = { both; }
        const default_action = both(9);
        const entries = { (false, 0, 2): both(1); (false, 7, 2): both(2); (true, 7, 1): both(3); (false, 0, 3): both(4); }
    }
    apply {
        s.egress_spec = 1;
        // Another one than the parser's.
        if (h.h.op == 3) { h.o.setValid(); }
        h.o.a = 7;
        h.o.b = 72w7 << 64;
        if (h.h.op == 3) { h.o.setInvalid(); }
        of_exact.apply();
        of_wide.apply();
        of_prefix.apply();
        of_range.apply();
        of_both.apply();
        // Where it is no key, what was written is read.
        h.h.read = h.o.a;
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) { apply { } }
control C(inout H h, inout M m) { apply { } }
MAIN
