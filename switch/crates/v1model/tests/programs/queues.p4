// Reads an egress queue that the packet names, in ingress and in egress, and chooses the packet's.
#include <core.p4>
#include <v1model.p4>
#include "../../../../../p4src/include/egress_queues.p4"

header h_t {
    bit<1> chooses;
    bit<4> unused;
    bit<3> priority;
    bit<8> choice;
    bit<7> unused_too;
    bit<9> port;
    bit<8> queue;
    bit<32> bytes;
    bit<32> packets;
    bit<64> sojourn_ns;
    bit<32> egress_bytes;
    bit<32> egress_packets;
    bit<64> egress_sojourn_ns;
    bit<32> deq_timedelta;
}
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control V(inout H h, inout M m) { apply { } }
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        s.priority = h.h.priority;
        egress_queues.depth(h.h.port, h.h.queue, h.h.bytes, h.h.packets);
        egress_queues.sojourn(h.h.port, h.h.queue, h.h.sojourn_ns);
        if (h.h.chooses == 1) {
            egress_queues.choose(h.h.choice);
        }
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        egress_queues.depth(h.h.port, h.h.queue, h.h.egress_bytes, h.h.egress_packets);
        egress_queues.sojourn(h.h.port, h.h.queue, h.h.egress_sojourn_ns);
        h.h.deq_timedelta = s.deq_timedelta;
    }
}
control C(inout H h, inout M m) { apply { } }
control D(packet_out p, in H h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
