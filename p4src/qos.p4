// A wire with quality of service: a packet that enters port 1 leaves port 2, and the other way
// round. On the way it gets the DSCP of its protocol, the egress queue of its DSCP, and a mark
// (ECN) if it found a long queue. Plain v1model, the same for every target.
#include <core.p4>
#include <v1model.p4>

#include "include/limits.p4"
#include "include/checksum_update.p4"

// Differentiated services: expedited forwarding (RFC 3246), assured forwarding AF11 (RFC 2597).
const bit<6> DSCP_EF = 46;
const bit<6> DSCP_AF11 = 10;

const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

// Codepoints of RFC 3168.
const bit<2> ECN_ECT_1 = 1;
const bit<2> ECN_ECT_0 = 2;
const bit<2> ECN_CE = 3;

// A packet is marked if so many packets, or more, were in its queue when it came.
const bit<19> MARK_FROM_PACKETS = 24;

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

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata_t { }

parser QosParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
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
        transition accept;
    }
}

control QosVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control QosIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    counter(DROP_CAUSES, CounterType.packets_and_bytes) drops;
    ChecksumUpdate() checksum_update;
    bit<6> dscp;

    action set_dscp(bit<6> of_protocol) {
        dscp = of_protocol;
    }

    table protocols {
        key = {
            hdr.ipv4.protocol: exact @name("protocol");
        }
        actions = { set_dscp; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            PROTOCOL_UDP: set_dscp(DSCP_EF);
            PROTOCOL_TCP: set_dscp(DSCP_AF11);
        }
    }

    action to_queue(bit<3> queue) {
        standard_metadata.priority = queue;
    }

    table queues {
        key = {
            hdr.ipv4.dscp: exact @name("dscp");
        }
        actions = { to_queue; }
        const default_action = to_queue(0);
        const entries = {
            DSCP_EF: to_queue(1);
        }
    }

    action send_to(bit<9> port) {
        standard_metadata.egress_spec = port;
    }

    action drop_unwired() {
        drops.count(DROP_NO_ROUTE);
        mark_to_drop(standard_metadata);
    }

    table wire {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
        }
        actions = { send_to; @defaultonly drop_unwired; }
        const default_action = drop_unwired;
        const entries = {
            1: send_to(2);
            2: send_to(1);
        }
    }

    apply {
        if (hdr.ipv4.isValid()) {
            dscp = hdr.ipv4.dscp;
            protocols.apply();
            checksum_update.apply(hdr.ipv4.checksum, (bit<16>) (hdr.ipv4.dscp ++ hdr.ipv4.ecn),
                                  (bit<16>) (dscp ++ hdr.ipv4.ecn));
            hdr.ipv4.dscp = dscp;
            queues.apply();
        }
        wire.apply();
    }
}

control QosEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    ChecksumUpdate() checksum_update;

    apply {
        if (hdr.ipv4.isValid() && standard_metadata.enq_qdepth >= MARK_FROM_PACKETS) {
            if (hdr.ipv4.ecn == ECN_ECT_0 || hdr.ipv4.ecn == ECN_ECT_1) {
                checksum_update.apply(hdr.ipv4.checksum, (bit<16>) hdr.ipv4.ecn, (bit<16>) ECN_CE);
                hdr.ipv4.ecn = ECN_CE;
            }
        }
    }
}

control QosComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control QosDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(QosParser(), QosVerifyChecksum(), QosIngress(), QosEgress(), QosComputeChecksum(),
         QosDeparser()) main;
