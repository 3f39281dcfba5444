// The first byte of a frame is its priority. Egress writes what it knows of the packet's queue.
#include "include/frame.p4"

header h_t {
    bit<8> priority;
    bit<32> enq_qdepth;
    bit<32> deq_qdepth;
    bit<32> enq_timestamp;
    bit<32> deq_timedelta;
}
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        s.priority = (bit<3>) h.h.priority;
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        h.h.enq_qdepth = (bit<32>) s.enq_qdepth;
        h.h.deq_qdepth = (bit<32>) s.deq_qdepth;
        h.h.enq_timestamp = s.enq_timestamp;
        h.h.deq_timedelta = s.deq_timedelta;
    }
}
NO_CHECKSUMS
MAIN
