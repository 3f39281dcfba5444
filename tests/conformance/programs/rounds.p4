// Resubmission and recirculation with preserved metadata.
#include "include/frame.p4"

header h_t { bit<8> op; bit<8> times; bit<8> kind; bit<8> port; }
struct H { h_t h; h_t pushed; }
struct M { @field_list(1) bit<8> times; bit<8> lost; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        s.egress_spec = 1;
        m.lost = m.lost + 1;
        h.h.kind = (bit<8>)s.instance_type;
        h.h.port = (bit<8>)s.ingress_port;
        if (h.h.op == 1 && m.times < 3) {
            m.times = m.times + 1;
            h.h.times = 0xee;
            resubmit_preserving_field_list(1);
        } else {
            h.h.times = (m.times << 4) | m.lost;
        }
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        if (h.h.op == 2 && m.times < 2) {
            m.times = m.times + 1;
            h.pushed.setValid();
            h.pushed = h.h;
            recirculate_preserving_field_list(1);
        }
    }
}
NO_CHECKSUMS
MAIN
