// The edge switch: forwards at layer 2, classifies flows, meters them, and spaces the packets
// of each paced class as PSPacer's gap packets would.
//
// Two flavours from one source: by default packets are held by the TrafficManager extern of
// pacing_switch (compile with --emit-externs); with -DTARGET_BMV2 they are held by
// recirculation on a stock simple_switch.
#include <core.p4>
#include <v1model.p4>

#include "include/limits.p4"
#include "include/headers.p4"
#include "include/parser.p4"
#include "include/classifier.p4"
#include "include/checksum_update.p4"
#include "include/metering.p4"
#include "include/classes.p4"
#include "include/forwarding.p4"
#ifdef TARGET_BMV2
#include "include/hold_by_recirculation.p4"
#else
#include "include/hold_in_traffic_manager.p4"
#endif
#include "include/time_per_byte.p4"
#include "include/path_rate.p4"
#include "include/flow_slot.p4"
#include "include/tcp_flows.p4"
#include "include/ticks.p4"
#include "include/class_clock.p4"
#include "include/rate_sharing.p4"
#include "include/flow_pace.p4"
#include "include/window_clamp.p4"
#include "include/congestion_marking.p4"
#include "include/drops.p4"

// A TCP segment: updates the flow that it belongs to and the flow that it acknowledges, then
// applies that state to the segment (pace, window clamp).
control TcpFlows(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard_metadata) {
    FlowOfSender() flow_of_sender;
    FlowOfReceiver() flow_of_receiver;
    FlowPace() flow_pace;
    FlowSlot() flow_slot_of_cycle;
    WindowScale() window_scale;
    WindowClamp() window_clamp;

    apply {
        flow_of_receiver.apply(hdr, meta, standard_metadata);
        if (meta.follows_flows == 1) {
            flow_of_sender.apply(hdr, meta, standard_metadata);
            // A packet of a flow that is not followed is paced with its class.
            if (meta.flow_known == 1 && meta.paces_flows == 1) {
                flow_pace.apply(meta, standard_metadata.packet_length + FCS_BYTES);
                if (meta.slots != 0) {
                    flow_slot_of_cycle.apply(meta);
                }
            }
        }
        if (hdr.tcp.syn == 1) {
            window_scale.apply(meta);
        } else if (meta.answered == 1) {
            window_clamp.apply(hdr, meta);
        }
    }
}

// A packet that is forwarded: its class, the class's pacing, and what that does to the packet.
control Pacing(inout headers_t hdr, inout metadata_t meta,
               inout standard_metadata_t standard_metadata) {
    Classes() classes;
    TcpFlows() tcp_flows;
    RateSharing() rate_sharing;
    WindowLimit() window_limit;
    ClassClock() class_clock;
    SharedDeparture() shared_departure;
    CongestionMarking() congestion_marking;

    apply {
        classes.apply(meta);
        if (hdr.tcp.isValid()) {
            bit<1> followed;
            flows_followed.read(followed, 0);
            if (followed == 1 || hdr.tcp.syn == 1 || meta.follows_flows == 1) {
                tcp_flows.apply(hdr, meta, standard_metadata);
            }
        }
        if (meta.shares == 1) {
            rate_sharing.apply(meta, hdr.tcp.syn & meta.flow_known, standard_metadata);
        }
        if (meta.flow_known == 1) {
            window_limit.apply(meta);
        }
        class_clock.apply(meta, standard_metadata);
        if (meta.shares == 1 && meta.drop_cause == 0) {
            shared_departure.apply(meta);
        }
        if (meta.congested == 1) {
            congestion_marking.apply(hdr, meta);
        }
    }
}

control PacerIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    Forwarding() forwarding;
    Classifier() classifier;
    Metering() metering;
    Pacing() pacing;
    CountedDrop() counted_drop;
#ifdef TARGET_BMV2
    HeldIngress() held_ingress;
#endif

    apply {
        bit<1> recirculated = 0;
#ifdef TARGET_BMV2
        held_ingress.apply(meta, standard_metadata, recirculated);
#endif
        if (recirculated == 1) {
            // A held packet has passed the tables before.
        } else if (standard_metadata.parser_error != error.NoError) {
            meta.drop_cause = DROP_PARSER_ERROR;
        } else if (hdr.packet_out.isValid() && hdr.packet_out.egress_port != 0) {
            // The controller names the port, so the packet passes no table.
            standard_metadata.egress_spec = hdr.packet_out.egress_port;
        } else {
            forwarding.apply(hdr, meta, standard_metadata);
            if (meta.drop_cause == 0 && meta.to_controller_only == 0) {
                classifier.apply(meta, standard_metadata);
                metering.apply(hdr, meta);
            }
            if (meta.drop_cause == 0 && meta.to_controller_only == 0) {
                pacing.apply(hdr, meta, standard_metadata);
            }
        }
        hdr.packet_out.setInvalid();
        if (meta.drop_cause != 0) {
            counted_drop.apply(meta, standard_metadata);
        }
    }
}

control PacerEgress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
#ifdef TARGET_BMV2
    HeldEgress() held_egress;
#endif

    apply {
        if (standard_metadata.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard_metadata.ingress_port;
            hdr.packet_in.reason = meta.reason;
        } else if (standard_metadata.egress_rid != 0
                   && standard_metadata.egress_port == standard_metadata.ingress_port) {
            // A flooded packet does not return to its ingress port.
            mark_to_drop(standard_metadata);
        }
#ifdef TARGET_BMV2
        else {
            held_egress.apply(meta, standard_metadata);
        }
#endif
    }
}

V1Switch(PacerParser(), PacerVerifyChecksum(), PacerIngress(), PacerEgress(),
         PacerComputeChecksum(), PacerDeparser()) main;
