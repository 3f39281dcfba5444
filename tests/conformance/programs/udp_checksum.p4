// Checksums with a pseudo header and the payload, under conditions, before and after a change.
#include "include/frame.p4"

header ip_t { bit<32> src; bit<32> dst; bit<8> protocol; bit<8> flags; }
header udp_t { bit<16> src; bit<16> dst; bit<16> len; bit<16> sum; }
header tcp_t { bit<16> src; bit<16> dst; bit<32> seq; bit<4> offset; bit<12> rest; bit<16> sum; }
struct H { ip_t ip; udp_t udp; tcp_t tcp; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.ip); transition select(h.ip.protocol) { 17: udp; 6: tcp; default: accept; } }
    state udp { p.extract(h.udp); transition accept; }
    state tcp { p.extract(h.tcp); transition accept; }
}
control V(inout H h, inout M m) {
    apply {
        verify_checksum_with_payload(h.udp.isValid() && h.ip.flags[0:0] == 1,
            { h.ip.src, h.ip.dst, 8w0, h.ip.protocol, h.udp.len, h.udp.src, h.udp.dst, h.udp.len },
            h.udp.sum, HashAlgorithm.csum16);
    }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action nat(bit<32> src, bit<16> port, bit<9> to) {
        h.ip.src = src;
        h.udp.src = port;
        s.egress_spec = to;
    }
    action drop() { mark_to_drop(s); }
    table t { key = { h.ip.src: ternary; h.ip.dst: lpm; } actions = { nat; drop; } default_action = nat(0x0a000001, 99, 2); }
    apply {
        if (!h.ip.isValid()) { drop(); }
        else {
            if (s.checksum_error == 1) { h.ip.flags = h.ip.flags | 0x80; }
            t.apply();
        }
    }
}
control C(inout H h, inout M m) {
    apply {
        update_checksum_with_payload(h.udp.isValid() && h.ip.flags[1:1] == 1,
            { h.ip.src, h.ip.dst, 8w0, h.ip.protocol, h.udp.len, h.udp.src, h.udp.dst, h.udp.len },
            h.udp.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(h.tcp.isValid(),
            { h.ip.src, h.ip.dst, h.ip.protocol, h.tcp.src, h.tcp.dst, h.tcp.seq, h.tcp.offset, 4w3 },
            h.tcp.sum, HashAlgorithm.csum16);
    }
}
NO_EGRESS
MAIN
