// Hands a packet and its departure time to the target's traffic manager, in one extern call; the
// traffic manager decides when the packet leaves.
#ifndef HOLD_IN_TRAFFIC_MANAGER_P4
#define HOLD_IN_TRAFFIC_MANAGER_P4

#include "time_of_traffic_manager.p4"

control Backlog(in bit<32> queue_id, out bit<32> backlog_bytes) {
    apply {
        tm.backlog(queue_id, backlog_bytes);
    }
}

control Hold(inout metadata_t meta, in bit<64> departure_ns, in bit<64> cost_q24) {
    apply {
        tm.hold(meta.queue_id, departure_ns, cost_q24, meta.allowance_ns, meta.class_id);
    }
}

#endif
