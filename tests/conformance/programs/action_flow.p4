// Which action ran, hit and miss, exit and return, tables under conditions and switches.
#include "include/frame.p4"

header h_t { bit<8> a; bit<8> b; bit<8> c; bit<32> trace; }
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action one(bit<8> v) { h.h.b = v; }
    action two(bit<8> v) { h.h.b = h.h.b + v; if (h.h.b > 0x80) { h.h.c = 1; } }
    action leave() { h.h.trace = h.h.trace | 0x8000; exit; }
    action early(bit<1> now) { h.h.trace = h.h.trace | 0x4000; if (now == 1) { return; } h.h.trace = h.h.trace | 0x2000; }
    table first { key = { h.h.a: exact; } actions = { one; two; leave; early; @defaultonly NoAction; } default_action = NoAction(); }
    table second { key = { h.h.b: ternary; } actions = { one; two; leave; } default_action = two(3); }
    table third { key = { h.h.c: exact; h.h.b: exact; } actions = { one; early; NoAction; } default_action = NoAction(); }
    table bare { actions = { one; two; early; } default_action = two(7); }
    apply {
        s.egress_spec = 5;
        if (!h.h.isValid()) { mark_to_drop(s); return; }
        h.h.trace = 0;
        switch (first.apply().action_run) {
            one: { h.h.trace = 1; if (second.apply().hit) { h.h.trace = h.h.trace | 2; } }
            two:
            early: { h.h.trace = h.h.trace | 4; bare.apply(); }
            default: { h.h.trace = h.h.trace | 8; if (!third.apply().hit) { return; } }
        }
        h.h.trace = h.h.trace | 0x10;
        switch (h.h.c) {
            0: { h.h.trace = h.h.trace | 0x20; }
            1: { h.h.trace = h.h.trace | 0x40; if (h.h.b == 7) { exit; } }
            default: { h.h.trace = h.h.trace | 0x80; }
        }
        h.h.trace = h.h.trace | 0x100;
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply { h.h.trace = h.h.trace | 0x10000; }
}
NO_CHECKSUMS
MAIN
