// A label stack to the bottom: swapped, popped by as many as an entry says, pushed.
#include "include/frame.p4"

header label_t { bit<20> label; bit<3> tc; bit<1> bottom; bit<8> ttl; }
header inner_t { bit<8> kind; bit<32> address; }
struct H { label_t[4] labels; inner_t inner; }
struct M { bit<8> found; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.labels.next);
        transition select(h.labels.last.bottom) { 0: start; 1: inner; }
    }
    state inner { p.extract(h.inner); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action drop() { mark_to_drop(s); }
    action swap(bit<20> label, bit<9> port) {
        h.labels[0].label = label;
        h.labels[0].ttl = h.labels[0].ttl - 1;
        s.egress_spec = port;
    }
    action pop(bit<9> port) { h.labels.pop_front(1); s.egress_spec = port; }
    action pop2(bit<9> port) { h.labels.pop_front(2); s.egress_spec = port; }
    action push(bit<20> label, bit<3> tc, bit<9> port) {
        h.labels.push_front(1);
        h.labels[0].setValid();
        h.labels[0] = { label, tc, 0, 64 };
        s.egress_spec = port;
    }
    table switching {
        key = { h.labels[0].label: exact; h.labels[0].bottom: exact; }
        actions = { swap; pop; pop2; push; drop; }
        default_action = drop();
    }
    apply {
        if (!h.labels[0].isValid() || s.parser_error == error.StackOutOfBounds) { drop(); }
        else if (h.labels[0].ttl <= 1) { drop(); }
        else { switching.apply(); }
        if (h.inner.isValid() && h.inner.kind > 0x80) { h.inner.address = h.inner.address ^ 0x80000001; }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
