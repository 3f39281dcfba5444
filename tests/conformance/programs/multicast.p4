// Multicast: replicas with their ids.
#include "include/frame.p4"

header h_t { bit<16> group; bit<16> rid; bit<8> kind; bit<8> port; }
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        s.egress_spec = 1;
        s.mcast_grp = h.h.group;
        if (h.h.kind == 0xdd) { mark_to_drop(s); }
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        h.h.rid = s.egress_rid;
        h.h.kind = (bit<8>)s.instance_type;
        h.h.port = (bit<8>)s.egress_port;
        if (s.egress_port == 4) { mark_to_drop(s); }
    }
}
NO_CHECKSUMS
MAIN
