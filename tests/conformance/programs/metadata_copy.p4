// The standard metadata handed on as a copy: what is dropped is what the copy comes back with.
#include "include/frame.p4"

header h_t { bit<8> op; bit<8> v; }
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
action drop_it(inout standard_metadata_t x) { mark_to_drop(x); }
control Inner(inout standard_metadata_t x, in bit<8> v) {
    apply { if (v > 0x80) { mark_to_drop(x); } else { x.egress_spec = (bit<9>)v[2:0]; } }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    Inner() inner;
    action to(bit<9> port) { s.egress_spec = port; }
    table t { key = { h.h.v: exact; } actions = { to; drop_it(s); } default_action = drop_it(s); }
    apply {
        s.egress_spec = 3;
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        if (h.h.op[1:0] == 0) { t.apply(); }
        if (h.h.op[1:0] == 1) { inner.apply(s, h.h.v); }
        if (h.h.op[1:0] == 2) { s.mcast_grp = 2; inner.apply(s, h.h.v); }
        if (h.h.op[1:0] == 3) { mark_to_drop(s); inner.apply(s, h.h.v); }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
