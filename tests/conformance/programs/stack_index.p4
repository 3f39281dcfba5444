// Elements of a stack by a computed index, within what has been parsed.
#include "include/frame.p4"

header top_t { bit<8> count; bit<8> index; bit<8> other; bit<8> op; bit<8> result; }
header e_t { bit<8> k; bit<8> v; }
struct H { top_t top; e_t[5] s; }
struct M { bit<8> left; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.top);
        m.left = h.top.count;
        transition select(h.top.count) { 1..5: more; default: accept; }
    }
    state more {
        p.extract(h.s.next);
        m.left = m.left - 1;
        transition select(m.left) { 0: accept; default: more; }
    }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action put(bit<8> v) { h.s[h.top.index].v = v; }
    action swap() { bit<8> t = h.s[h.top.index].v; h.s[h.top.index].v = h.s[h.top.other].v; h.s[h.top.other].v = t; }
    action drop() { mark_to_drop(s); }
    table t { key = { h.top.index: exact; h.top.other: ternary; } actions = { put; swap; drop; } default_action = swap(); }
    apply {
        s.egress_spec = 1;
        if (!h.top.isValid() || s.parser_error != error.NoError || h.top.count == 0 || h.top.count > 5) { drop(); }
        else if (h.top.index >= h.top.count || h.top.other >= h.top.count) { h.top.result = 0xff; }
        else {
            if (h.top.op == 0) { t.apply(); }
            if (h.top.op == 1) { h.top.result = h.s[h.top.index].v - h.s[h.top.other].k; }
            if (h.top.op == 2) { h.s[h.top.index].setInvalid(); }
            if (h.top.op == 3) { h.s[h.top.index].k = h.s[h.top.other].v; }
            if (h.top.op == 4 && h.s[h.top.index].v == h.s[h.top.other].v) { h.top.result = 0xaa; }
            if (h.top.op == 5) { h.s[h.top.index] = { 0x11, h.top.other }; }
        }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
