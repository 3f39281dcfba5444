// A chain of variable headers of one kind, each with its own length field, as in IPv6.
#include "include/frame.p4"

header base_t { bit<4> version; bit<8> traffic; bit<20> flow; bit<16> len; bit<8> next; bit<8> hops; bit<128> src; bit<128> dst; }
header ext_t { bit<8> next; bit<8> len; varbit<128> data; }
header l4_t { bit<16> src; bit<16> dst; }
struct H { base_t base; ext_t hop; ext_t dest; ext_t route; l4_t l4; }
struct M { bit<8> seen; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.base);
        m.seen = 0;
        transition chosen;
    }
    state chosen {
        transition select(h.base.next) { 0: hop; 60: dest; 43: route; 6: l4; 17: l4; default: accept; }
    }
    state hop {
        p.extract(h.hop, (bit<32>)(p.lookahead<bit<16>>()[7:0]) << 3);
        m.seen = m.seen | 1;
        transition select(h.hop.next) { 60: dest; 43: route; 6: l4; 17: l4; default: accept; }
    }
    state dest {
        p.extract(h.dest, (bit<32>)(p.lookahead<bit<16>>()[7:0]) << 3);
        m.seen = m.seen | 2;
        transition select(h.dest.next) { 43: route; 6: l4; 17: l4; default: accept; }
    }
    state route {
        p.extract(h.route, (bit<32>)(p.lookahead<bit<16>>()[7:0]) << 3);
        m.seen = m.seen | 4;
        transition select(h.route.next) { 6: l4; 17: l4; default: accept; }
    }
    state l4 { p.extract(h.l4); m.seen = m.seen | 8; transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action drop() { mark_to_drop(s); }
    action to(bit<9> port) { s.egress_spec = port; }
    action strip(bit<9> port) { s.egress_spec = port; h.hop.setInvalid(); }
    table routes { key = { h.base.dst: lpm; } actions = { to; strip; drop; } default_action = to(3); }
    apply {
        if (!h.base.isValid()) { drop(); }
        else {
            routes.apply();
            h.base.traffic = m.seen;
            if (h.l4.isValid()) { bit<16> t = h.l4.src; h.l4.src = h.l4.dst; h.l4.dst = t; }
            if (h.dest.isValid() && !h.route.isValid()) { h.route = h.dest; }
        }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
