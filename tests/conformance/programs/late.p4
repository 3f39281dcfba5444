// What happens after egress, and what does not outlive it: truncation, checksums, clones of egress.
#include "include/frame.p4"

header h_t { bit<8> op; bit<8> seen; bit<16> sum; }
struct H { h_t h; }
struct M { @field_list(1) bit<8> round; bit<8> fix; bit<8> whole; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control V(inout H h, inout M m) { apply { } }
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (m.round == 1) { h.h.seen = (bit<8>)s.packet_length; exit; }
        if (h.h.op == 1) { truncate(5); s.mcast_grp = 1; }
        if (h.h.op == 4) { m.whole = 1; truncate(6); }
        // Nothing chose a port; egress sends it round.
        if (h.h.op == 5) { s.egress_spec = 0; }
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        if (m.round == 0 && (h.h.op == 2 || h.h.op == 5)) {
            m.round = 1;
            if (h.h.op == 2) { truncate(5); }
            recirculate_preserving_field_list(1);
        }
        if (h.h.op == 3 && s.instance_type == 0) { m.fix = 1; clone(CloneType.E2E, 5); }
    }
}
control C(inout H h, inout M m) {
    apply {
        update_checksum(m.fix == 1, { h.h.op, h.h.seen }, h.h.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(m.whole == 1, { h.h.op, h.h.seen }, h.h.sum, HashAlgorithm.csum16);
    }
}
MAIN
