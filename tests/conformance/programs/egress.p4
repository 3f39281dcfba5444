// Tables and drops in egress, by port and by copy; lengths as egress sees them.
#include "include/frame.p4"

header h_t { bit<16> group; bit<8> kind; bit<9> port; bit<7> pad; bit<16> rid; bit<32> len; }
header extra_t { bit<64> data; }
struct H { h_t h; extra_t extra; extra_t more; }
struct M { bit<8> from; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition select(h.h.kind[0:0]) { 1: extra; default: accept; } }
    state extra { p.extract(h.extra); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        m.from = (bit<8>)s.ingress_port;
        s.egress_spec = (bit<9>)h.h.kind[3:1];
        if (h.h.kind[7:4] == 1) { s.mcast_grp = h.h.group & 7; }
        if (h.h.kind[7:4] == 2) { mark_to_drop(s); s.egress_spec = 3; }
        if (h.h.kind[7:4] == 3) { s.mcast_grp = 2; mark_to_drop(s); }
        if (h.h.kind[7:4] == 4) { h.more.setValid(); h.more.data = 64w0x1122334455667788; }
        if (h.h.kind[7:4] == 5) { h.extra.setInvalid(); }
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    action drop() { mark_to_drop(s); }
    action note(bit<7> v) { h.h.pad = v; }
    action grow() { h.more.setValid(); h.more.data = 0; }
    table leaving { key = { s.egress_port: exact; s.egress_rid: ternary; m.from: ternary; } actions = { drop; note; grow; NoAction; } default_action = NoAction(); }
    apply {
        if (h.h.isValid()) {
            h.h.port = s.egress_port;
            h.h.rid = s.egress_rid;
            h.h.len = s.packet_length;
            h.h.kind = h.h.kind ^ (bit<8>)s.instance_type;
            leaving.apply();
        }
    }
}
NO_CHECKSUMS
MAIN
