// A wire with quality of service: a packet that enters port 1 leaves port 2, and the other way
// round. On the way it gets the DSCP of its protocol, the egress queue of its DSCP, and a mark
// (ECN) if it found a long queue. Plain v1model, the same for every target.
#include <core.p4>
#include <v1model.p4>

#include "include/limits.p4"
#include "include/checksum_update.p4"
#include "include/ip_wire.p4"

// Differentiated services: expedited forwarding (RFC 3246), assured forwarding AF11 (RFC 2597).
const bit<6> DSCP_EF = 46;
const bit<6> DSCP_AF11 = 10;

const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

// A packet is marked if so many packets, or more, were in its queue when it came.
const bit<19> MARK_FROM_PACKETS = 24;

control QosIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    SetTos() set_tos;
    Wire() wire;
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

    apply {
        if (hdr.ipv4.isValid()) {
            dscp = hdr.ipv4.dscp;
            protocols.apply();
            set_tos.apply(hdr.ipv4, dscp, hdr.ipv4.ecn);
            queues.apply();
        }
        wire.apply(standard_metadata);
    }
}

control QosEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    SetTos() set_tos;

    apply {
        if (hdr.ipv4.isValid() && standard_metadata.enq_qdepth >= MARK_FROM_PACKETS) {
            if (hdr.ipv4.ecn == ECN_ECT_0 || hdr.ipv4.ecn == ECN_ECT_1) {
                set_tos.apply(hdr.ipv4, hdr.ipv4.dscp, ECN_CE);
            }
        }
    }
}

V1Switch(WireParser(), WireVerifyChecksum(), QosIngress(), QosEgress(), WireComputeChecksum(),
         WireDeparser()) main;
