// A measuring wire, after the GtrcNET-1 network emulator: a packet that enters one port leaves the
// other, and is measured on the way. The ports of the target's traffic manager have the rate, FIFO
// and delay of the emulated link.
#include <core.p4>
#include <v1model.p4>

#include "include/limits.p4"

#include "include/wire_flow.p4"

// The parser extracts nothing: a wire carries any packet.
struct headers_t { }

struct measurement_t {
    bit<1> measured;
    bit<64> bytes_per_ns_q24;
    bit<32> flow_slot;  // 0: the packet belongs to no measured flow
    bit<64> flow_bytes_per_ns_q24;
    wire_flow_t flow;
}

#ifdef TARGET_BMV2
#include "include/time_of_bmv2.p4"
#else
#include "include/time_of_traffic_manager.p4"
#endif
#include "include/burstiness.p4"

parser GtrcnetParser(packet_in packet, out headers_t hdr, inout measurement_t meta,
                     inout standard_metadata_t standard_metadata) {
    WireFlow() wire_flow;

    state start {
        wire_flow.apply(packet, meta.flow);
        transition accept;
    }
}

control GtrcnetVerifyChecksum(inout headers_t hdr, inout measurement_t meta) {
    apply { }
}

control GtrcnetIngress(inout headers_t hdr, inout measurement_t meta,
                       inout standard_metadata_t standard_metadata) {
    counter(DROP_CAUSES, CounterType.packets_and_bytes) drops;
    Burstiness() burstiness;

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
        size = 512;
    }

    apply {
        burstiness.apply(meta, standard_metadata);
        wire.apply();
    }
}

control GtrcnetEgress(inout headers_t hdr, inout measurement_t meta,
                      inout standard_metadata_t standard_metadata) {
    apply { }
}

control GtrcnetComputeChecksum(inout headers_t hdr, inout measurement_t meta) {
    apply { }
}

control GtrcnetDeparser(packet_out packet, in headers_t hdr) {
    apply { }
}

V1Switch(GtrcnetParser(), GtrcnetVerifyChecksum(), GtrcnetIngress(), GtrcnetEgress(),
         GtrcnetComputeChecksum(), GtrcnetDeparser()) main;
