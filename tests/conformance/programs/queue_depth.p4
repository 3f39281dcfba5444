// How many packets wait for the port: when one is queued, and when it leaves.
#include "include/frame.p4"

header h_t { bit<32> enqueued; bit<32> dequeued; }
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply { s.egress_spec = 1; }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        h.h.enqueued = (bit<32>) s.enq_qdepth;
        h.h.dequeued = (bit<32>) s.deq_qdepth;
    }
}
NO_CHECKSUMS
MAIN
