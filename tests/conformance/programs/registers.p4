// Registers, also wide ones and out of range; counters and truncate do not disturb.
#include "include/frame.p4"

header h_t { bit<8> op; bit<32> index; bit<96> value; }
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    register<bit<96>>(4) cells;
    counter(4, CounterType.packets_and_bytes) seen;
    apply {
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        s.egress_spec = 1;
        seen.count(h.h.index);
        if (h.h.op == 0) { cells.write(h.h.index, h.h.value); }
        if (h.h.op == 1) { cells.read(h.h.value, h.h.index); }
        if (h.h.op == 2) { truncate(8); }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
