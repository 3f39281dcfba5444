// Headers put in front and taken off: what is emitted follows validity, and lengths follow it.
#include "include/frame.p4"

header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
header tun_t { bit<8> flags; bit<24> id; bit<16> len; bit<16> type; }
header in_t { bit<16> a; bit<16> b; }
struct H { eth_t outer; tun_t tun; eth_t eth; in_t inner; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.outer);
        transition select(h.outer.type) { 0x6558: tun; 0x0900: inner; default: accept; }
    }
    state tun {
        p.extract(h.tun);
        transition select(h.tun.flags, h.tun.type) {
            (0x80 &&& 0x80, 0x6558): eth;
            (0x00 &&& 0xc0, _): inner;
            default: accept;
        }
    }
    state eth { p.extract(h.eth); transition select(h.eth.type) { 0x0900: inner; default: accept; } }
    state inner { p.extract(h.inner); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action drop() { mark_to_drop(s); }
    action open(bit<9> port) {
        h.outer.setInvalid();
        h.tun.setInvalid();
        s.egress_spec = port;
    }
    action wrap(bit<24> id, bit<48> dst, bit<9> port) {
        h.eth = h.outer;
        h.outer.dst = dst;
        h.outer.type = 0x6558;
        h.tun.setValid();
        h.tun = { 0x80, id, 0, 0x6558 };
        s.egress_spec = port;
    }
    table ends { key = { h.tun.id: exact; h.outer.dst: ternary; } actions = { open; drop; } default_action = drop(); }
    table starts { key = { h.outer.dst: exact; } actions = { wrap; drop; } default_action = drop(); }
    apply {
        if (h.tun.isValid()) { ends.apply(); }
        else if (h.outer.isValid()) { starts.apply(); }
        else { drop(); }
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply { if (h.tun.isValid()) { h.tun.len = (bit<16>)s.packet_length; } }
}
NO_CHECKSUMS
MAIN
