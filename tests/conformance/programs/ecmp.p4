// Groups whose members a hash of the flow chooses, and the same hash in plain sight.
#include "include/frame.p4"

header ip_t { bit<32> src; bit<32> dst; bit<8> protocol; bit<16> hash; }
struct H { ip_t ip; }
struct M { bit<16> bucket; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.ip); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action drop() { mark_to_drop(s); }
    action to(bit<9> port, bit<8> mark) { s.egress_spec = port; h.ip.protocol = mark; }
    @name("by_crc16") action_selector(HashAlgorithm.crc16, 64, 14) by_crc16;
    @name("by_crc32") action_selector(HashAlgorithm.crc32, 64, 16) by_crc32;
    table routes16 {
        key = { h.ip.dst: lpm; h.ip.src: selector; h.ip.dst: selector; h.ip.protocol: selector; }
        actions = { to; drop; }
        implementation = by_crc16;
    }
    table routes32 {
        key = { h.ip.dst: ternary; h.ip.src: selector; h.ip.protocol: selector; }
        actions = { to; drop; NoAction; }
        implementation = by_crc32;
    }
    apply {
        if (!h.ip.isValid()) { drop(); }
        else {
            hash(m.bucket, HashAlgorithm.crc32, 16w3, { h.ip.src, h.ip.dst, h.ip.protocol }, 32w61);
            h.ip.hash = m.bucket;
            if (!routes16.apply().hit) { routes32.apply(); }
        }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
