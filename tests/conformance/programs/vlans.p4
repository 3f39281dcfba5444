// VLAN tags: a stack taken to its `last`, pushed, popped and rewritten by tables.
#include "include/frame.p4"

header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
header tag_t { bit<3> pcp; bit<1> dei; bit<12> vid; bit<16> type; }
struct H { eth_t eth; tag_t[3] tags; }
struct M { bit<12> vid; bit<2> count; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.eth);
        transition select(h.eth.type) { 0x8100: tag; 0x88a8: tag; default: accept; }
    }
    state tag {
        p.extract(h.tags.next);
        m.count = m.count + 1;
        transition select(h.tags.last.type) { 0x8100: tag; 0x88a8 &&& 0xfffe: tag; default: accept; }
    }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action none() { }
    action drop() { mark_to_drop(s); }
    action pop() { h.eth.type = h.tags[0].type; h.tags.pop_front(1); }
    action push(bit<12> vid, bit<3> pcp) {
        h.tags.push_front(1);
        h.tags[0].setValid();
        h.tags[0].vid = vid;
        h.tags[0].pcp = pcp;
        h.tags[0].dei = 0;
        h.tags[0].type = h.eth.type;
        h.eth.type = 0x88a8;
    }
    action rewrite(bit<12> vid) { h.tags[0].vid = vid; }
    action to(bit<9> port) { s.egress_spec = port; }
    action flood(bit<16> group) { s.mcast_grp = group; }
    table tagged { key = { h.tags[0].vid: exact; h.tags[0].pcp: ternary; } actions = { pop; rewrite; push; drop; none; } default_action = none(); }
    table untagged { key = { s.ingress_port: exact; } actions = { push; none; drop; } default_action = none(); }
    table forward { key = { m.vid: ternary; h.eth.dst: ternary; } actions = { to; flood; drop; } default_action = drop(); }
    apply {
        if (h.eth.isValid()) {
            if (h.tags[0].isValid()) { m.vid = h.tags[0].vid; tagged.apply(); } else { untagged.apply(); }
            forward.apply();
        } else {
            drop();
        }
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply { if (m.count == 3 && s.egress_port == 2) { mark_to_drop(s); } }
}
NO_CHECKSUMS
MAIN
