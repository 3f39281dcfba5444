// IPv4 router: options, header checksum verified and computed, longest prefix, TTL, next hops.
#include "include/frame.p4"

header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> len; bit<16> id; bit<3> flags; bit<13> frag;
    bit<8> ttl; bit<8> protocol; bit<16> sum; bit<32> src; bit<32> dst; varbit<320> options;
}
struct H { eth_t eth; ipv4_t ip; }
struct M { bit<16> hop; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.eth);
        transition select(h.eth.type) { 0x0800: ip; default: accept; }
    }
    state ip {
        transition select(p.lookahead<bit<8>>()) { 0x45..0x4f: whole; 0x40..0x44: short; default: accept; }
    }
    state short { verify(false, error.HeaderTooShort); transition accept; }
    state whole {
        p.extract(h.ip, ((bit<32>)(p.lookahead<bit<8>>()[3:0]) - 5) * 32);
        transition accept;
    }
}
control V(inout H h, inout M m) {
    apply {
        verify_checksum(h.ip.isValid(), { h.ip.version, h.ip.ihl, h.ip.tos, h.ip.len, h.ip.id, h.ip.flags,
            h.ip.frag, h.ip.ttl, h.ip.protocol, h.ip.src, h.ip.dst, h.ip.options }, h.ip.sum,
            HashAlgorithm.csum16);
    }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action drop() { mark_to_drop(s); }
    action via(bit<16> hop) { m.hop = hop; }
    action to(bit<48> mac, bit<9> port) {
        s.egress_spec = port;
        h.eth.src = h.eth.dst;
        h.eth.dst = mac;
        h.ip.ttl = h.ip.ttl |-| 1;
    }
    table routes { key = { h.ip.dst: lpm; } actions = { via; drop; } default_action = drop(); }
    table hops { key = { m.hop: exact; } actions = { to; drop; } default_action = drop(); }
    apply {
        if (!h.ip.isValid()) {
            mark_to_drop(s);
        } else if (s.checksum_error == 1) {
            h.ip.tos = 0xee;
            s.egress_spec = 7;
        } else if (routes.apply().hit) {
            hops.apply();
            if (h.ip.ttl == 0) { mark_to_drop(s); }
        }
    }
}
control C(inout H h, inout M m) {
    apply {
        update_checksum(h.ip.isValid(), { h.ip.version, h.ip.ihl, h.ip.tos, h.ip.len, h.ip.id, h.ip.flags,
            h.ip.frag, h.ip.ttl, h.ip.protocol, h.ip.src, h.ip.dst, h.ip.options }, h.ip.sum,
            HashAlgorithm.csum16);
    }
}
NO_EGRESS
MAIN
