// Entries and defaults of the program itself, beside those of the control plane.
#include "include/frame.p4"

header h_t { bit<8> a; bit<16> b; bit<8> r1; bit<8> r2; bit<8> r3; bit<8> r4; }
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action set1(bit<8> v) { h.h.r1 = v; }
    action set2(bit<8> v, bit<8> w) { h.h.r2 = v ^ w; }
    action set3(bit<8> v) { h.h.r3 = v; }
    action set4(bit<8> v) { h.h.r4 = v; }
    table fixed {
        key = { h.h.a: exact; }
        actions = { set1; NoAction; }
        const default_action = set1(0xd1);
        const entries = { 0: set1(1); 1: set1(2); 0xff: NoAction(); }
    }
    table masked {
        key = { h.h.a: ternary; h.h.b: ternary; }
        actions = { set2; NoAction; }
        default_action = set2(0xd0, 0x02);
        const entries = {
            (0x10 &&& 0xf0, 0x0001): set2(1, 0);
            (0x10 &&& 0xf0, _): set2(2, 0);
            (_, 0x8000 &&& 0x8000): set2(3, 0);
            (0x18, 0x8001): set2(4, 0);
        }
    }
    table prefixes {
        key = { h.h.b: lpm; }
        actions = { set3; }
        default_action = set3(0xd3);
        const entries = { 0x1200 &&& 0xff00: set3(1); 0x1234: set3(2); 0x1000 &&& 0xf000: set3(3); }
    }
    table open { key = { h.h.b: range; } actions = { set4; NoAction; } default_action = set4(0xd4); }
    apply {
        s.egress_spec = 6;
        if (h.h.isValid()) { fixed.apply(); masked.apply(); prefixes.apply(); open.apply(); } else { mark_to_drop(s); }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
