// Clones of ingress and of egress, with and without preserved metadata.
#include "include/frame.p4"

header h_t { bit<8> op; bit<8> kept; bit<8> lost; bit<8> kind; }
struct H { h_t h; }
struct M { @field_list(1) bit<8> kept; bit<8> lost; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        m.kept = 0x11;
        m.lost = 0x22;
        s.egress_spec = 1;
        if (h.h.op == 1) { clone(CloneType.I2E, 5); }
        if (h.h.op == 2) { clone_preserving_field_list(CloneType.I2E, 5, 1); }
        if (h.h.op == 3) { clone_preserving_field_list(CloneType.I2E, 9, 1); mark_to_drop(s); }
        if (h.h.op == 6) { clone_preserving_field_list(CloneType.I2E, 5, 1); h.h.kept = 0xff; mark_to_drop(s); }
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        if (s.instance_type == 0) {
            if (h.h.op == 4) { clone(CloneType.E2E, 5); h.h.kept = 0x77; }
            if (h.h.op == 5) { clone_preserving_field_list(CloneType.E2E, 5, 1); mark_to_drop(s); }
        } else {
            h.h.kept = h.h.kept + m.kept;
            h.h.lost = h.h.lost + m.lost;
            h.h.kind = (bit<8>)s.instance_type;
        }
    }
}
NO_CHECKSUMS
MAIN
