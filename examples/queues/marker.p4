// Spreads the flows of a port over 16 egress queues, and marks packets that would join a long queue:
// congestion experienced (ECN, RFC 3168).
#include <core.p4>
#include <v1model.p4>
#include "../../p4src/include/egress_queues.p4"
#include "../../p4src/include/checksum_update.p4"

#define ECN_ECT_1 1
#define ECN_ECT_0 2
#define ECN_CE 3

header ethernet_t {
    bit<48> dst_mac;
    bit<48> src_mac;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4> version;
    bit<4> header_words;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

// The first bytes of TCP and of UDP.
header ports_t {
    bit<16> src_port;
    bit<16> dst_port;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    ports_t ports;
}

struct metadata_t {
    bit<32> mark_bytes;
}

parser MarkerParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x0800: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.header_words, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (5, 0, 6): parse_ports;
            (5, 0, 17): parse_ports;
            default: accept;
        }
    }

    state parse_ports {
        packet.extract(hdr.ports);
        transition accept;
    }
}

control MarkerVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MarkerIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    ChecksumUpdate() checksum_update;

    action drop() {
        mark_to_drop(standard_metadata);
    }

    // Packets that find more than mark_bytes in their queue are marked.
    action forward(bit<9> port, bit<32> mark_bytes) {
        standard_metadata.egress_spec = port;
        meta.mark_bytes = mark_bytes;
    }

    table routes {
        key = { hdr.ipv4.dst_addr: lpm; }
        actions = { forward; drop; }
        const default_action = drop();
        size = 1024;
    }

    apply {
        if (!hdr.ipv4.isValid()) {
            drop();
        } else if (routes.apply().hit) {
            bit<8> queue;
            hash(queue, HashAlgorithm.crc32, 8w0,
                 { hdr.ipv4.src_addr, hdr.ipv4.dst_addr, hdr.ipv4.protocol,
                   hdr.ports.src_port, hdr.ports.dst_port }, 8w16);
            egress_queues.choose(queue);

            bit<32> depth_bytes;
            bit<32> depth_packets;
            egress_queues.depth(standard_metadata.egress_spec, queue, depth_bytes, depth_packets);
            if (depth_bytes > meta.mark_bytes
                    && (hdr.ipv4.ecn == ECN_ECT_0 || hdr.ipv4.ecn == ECN_ECT_1)) {
                checksum_update.apply(hdr.ipv4.checksum, (bit<16>) hdr.ipv4.ecn,
                                      (bit<16>) ECN_CE);
                hdr.ipv4.ecn = ECN_CE;
            }
        }
    }
}

control MarkerEgress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    apply { }
}

control MarkerComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MarkerDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ports);
    }
}

V1Switch(MarkerParser(), MarkerVerifyChecksum(), MarkerIngress(), MarkerEgress(),
         MarkerComputeChecksum(), MarkerDeparser()) main;
