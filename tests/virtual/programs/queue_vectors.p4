// Does with each packet what a vector of egress queues says of it: sends it by a port, and holds it
// or chooses its queue.
// Egress writes what it sees of the packet's queue into the frame. The IP header, whose ECN field,
// DSCP and addresses the queues read, is left alone.
#include <core.p4>
#include <v1model.p4>
#include "../../../p4src/include/egress_queues.p4"
#include "../../../p4src/include/traffic_manager.p4"

// No class has this number: the packet is not held.
#define NOT_HELD 255

// In place of the MAC addresses.
header seen_t {
    bit<32> enq_qdepth;
    bit<32> deq_qdepth;
    bit<32> port;
}

// The EtherType and the first bytes of the IP header, or all of IPv4's.
header ip_t {
    bit<176> bytes;
}

header wanted_t {
    bit<32> number;
    bit<8> queue;
    bit<8> class_id;
    bit<64> departure_ns;
    bit<64> cost_q24;
    bit<32> allowance_ns;
}

struct headers_t {
    seen_t seen;
    ip_t ip;
    wanted_t wanted;
}

struct metadata_t { }

parser VectorParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.seen);
        packet.extract(hdr.ip);
        packet.extract(hdr.wanted);
        transition accept;
    }
}

control VectorVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control VectorIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = (bit<9>) hdr.seen.port;
        if (hdr.wanted.class_id == NOT_HELD) {
            egress_queues.choose(hdr.wanted.queue);
        } else {
            tm.hold((bit<32>) hdr.wanted.class_id, hdr.wanted.departure_ns, hdr.wanted.cost_q24,
                    (bit<64>) hdr.wanted.allowance_ns, (bit<32>) hdr.wanted.class_id);
        }
    }
}

control VectorEgress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    apply {
        hdr.seen.enq_qdepth = (bit<32>) standard_metadata.enq_qdepth;
        hdr.seen.deq_qdepth = (bit<32>) standard_metadata.deq_qdepth;
    }
}

control VectorComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control VectorDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(VectorParser(), VectorVerifyChecksum(), VectorIngress(), VectorEgress(),
         VectorComputeChecksum(), VectorDeparser()) main;
