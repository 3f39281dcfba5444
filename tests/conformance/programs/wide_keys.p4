// Keys of 128 bits and of many fields, in every match kind.
#include "include/frame.p4"

header h_t { bit<128> src; bit<128> dst; bit<1> f; bit<31> g; bit<8> r; bit<8> q; }
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action set(bit<8> v) { h.h.r = h.h.r + v; }
    action mark(bit<8> v) { h.h.q = h.h.q ^ v; }
    table e { key = { h.h.src: exact; h.h.f: exact; } actions = { set; mark; } default_action = mark(1); }
    table l { key = { h.h.f: exact; h.h.dst: lpm; h.h.g: exact; } actions = { set; mark; } default_action = mark(2); }
    table p { key = { h.h.dst: lpm; } actions = { set; mark; } default_action = mark(4); }
    table t { key = { h.h.src: ternary; h.h.dst: ternary; h.h.g: ternary; } actions = { set; mark; } default_action = mark(8); }
    table r { key = { h.h.src: range; h.h.g: range; h.h.f: ternary; } actions = { set; mark; } default_action = mark(16); }
    apply {
        s.egress_spec = 1;
        if (h.h.isValid()) { e.apply(); l.apply(); p.apply(); t.apply(); r.apply(); } else { mark_to_drop(s); }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
