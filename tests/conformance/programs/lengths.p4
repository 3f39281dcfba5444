// The packet's length, cut short and grown, in both controls.
#include "include/frame.p4"

header h_t { bit<8> op; bit<32> size; bit<32> in_egress; }
header pad_t { bit<80> z; }
struct H { h_t h; pad_t pad; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        h.h.size = s.packet_length;
        if (h.h.op[3:0] == 1) { truncate(12); }
        if (h.h.op[3:0] == 2) { truncate((bit<32>)h.h.op[7:4]); }
        if (h.h.op[3:0] == 3) { h.pad.setValid(); h.pad.z = 80w0x112233445566778899aa; }
        if (h.h.op[3:0] == 4) { h.pad.setValid(); h.pad.z = 0; truncate(20); }
        if (s.packet_length > 60) { s.egress_spec = 2; }
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        h.h.in_egress = s.packet_length;
        if (h.h.op[3:0] == 5) { truncate(15); }
        if (h.h.op[3:0] == 6) { h.pad.setValid(); h.pad.z = 1; }
        if (h.h.op[3:0] == 7) { truncate(10); truncate(30); }
    }
}
NO_CHECKSUMS
MAIN
