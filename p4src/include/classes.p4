// Decides which mode a packet's class has (unpaced, static, ipg, timer, pspd,
// dynamic, slow-start, clustered, shared), and sets
// the mode's parameters.
#ifndef CLASSES_P4
#define CLASSES_P4

control Classes(inout metadata_t meta) {
    @name(".PacerIngress.unpaced")
    action unpaced() { }

    // time_per_byte_q24: 8e9 / rate_bps in 2^-24 ns. limit_bytes: most bytes that the class
    // queues, frames with FCS. allowance_ns: the time that the class may make up after a stall.
    @name(".PacerIngress.paced_static")
    action paced_static(bit<64> time_per_byte_q24, bit<32> limit_bytes, bit<64> allowance_ns) {
        meta.paced = 1;
        meta.queue_id = meta.class_id;
        meta.time_per_byte_q24 = time_per_byte_q24;
        meta.limit_bytes = limit_bytes;
        meta.allowance_ns = allowance_ns;
    }

    action clamp_windows(bit<32> bytes_per_ns_q24, bit<32> window_margin_bytes) {
        meta.bytes_per_ns_q24 = (bit<64>) bytes_per_ns_q24;
        meta.window_margin_bytes = (bit<64>) window_margin_bytes;
        meta.follows_flows = meta.follows_flows | (bit<1>) (bytes_per_ns_q24 != 0);
    }

    // As paced_static, with a short queue. A packet that brings the queue above
    // ecn_threshold_bytes (0: no threshold) is marked (congestion_marking.p4). Receive windows are
    // lowered to the rate plus window_margin_bytes (window_clamp.p4), unless bytes_per_ns_q24 is 0.
    @name(".PacerIngress.paced_static_controlled")
    action paced_static_controlled(bit<64> time_per_byte_q24, bit<32> limit_bytes,
                                   bit<64> allowance_ns, bit<32> ecn_threshold_bytes,
                                   bit<32> bytes_per_ns_q24, bit<32> window_margin_bytes) {
        paced_static(time_per_byte_q24, limit_bytes, allowance_ns);
        meta.ecn_threshold_bytes = ecn_threshold_bytes;
        clamp_windows(bytes_per_ns_q24, window_margin_bytes);
    }

    // Packets leave once in cycle_ns (1 us to 1 s), all that the time has tokens for, as in
    // paced_timer. cycles_per_ns_q64 is 2^64 / cycle_ns, rounded down.
    action once_in_cycle(bit<32> cycle_ns, bit<64> cycles_per_ns_q64) {
        meta.tick_ns = (bit<64>) cycle_ns;
        meta.ticks_per_ns_q64 = cycles_per_ns_q64;
        meta.allowance_ns = meta.allowance_ns + (bit<64>) cycle_ns;
    }

    // As once_in_cycle, for classes that pace each flow: of `slots` slots of slot_ns, which are the
    // cycle, each flow gets one (flow_slot.p4).
    action once_in_slot_of_flow(bit<32> cycle_ns, bit<64> cycles_per_ns_q64, bit<32> slot_ns,
                                bit<16> slots) {
        once_in_cycle(cycle_ns, cycles_per_ns_q64);
        meta.slot_ns = slot_ns;
        meta.slots = slots;
    }

    // As paced_static_controlled, once in a cycle, offset_ns (at most cycle_ns) behind multiples of it.
    @name(".PacerIngress.paced_static_in_slot")
    action paced_static_in_slot(bit<64> time_per_byte_q24, bit<32> limit_bytes,
                                bit<64> allowance_ns, bit<32> ecn_threshold_bytes,
                                bit<32> bytes_per_ns_q24, bit<32> window_margin_bytes,
                                bit<32> cycle_ns, bit<64> cycles_per_ns_q64,
                                bit<32> offset_ns) {
        paced_static_controlled(time_per_byte_q24, limit_bytes, allowance_ns,
                                ecn_threshold_bytes, bytes_per_ns_q24, window_margin_bytes);
        once_in_cycle(cycle_ns, cycles_per_ns_q64);
        meta.tick_lead_ns = (bit<64>) (cycle_ns - offset_ns);
    }

    // A fixed gap behind each packet: from the end of its FCS to the preamble of the next one,
    // gap_bytes on a line whose byte takes time_per_byte_q24. The frame's own 12 bytes of
    // inter-frame gap are part of it, as in Data Reservoir's IPG tuning (1023 bytes leave
    // 568 of 941 Mbit/s of TCP on gigabit Ethernet).
    @name(".PacerIngress.paced_ipg")
    action paced_ipg(bit<64> time_per_byte_q24, bit<32> gap_bytes, bit<32> limit_bytes,
                     bit<64> allowance_ns, bit<32> ecn_threshold_bytes) {
        meta.paced = 1;
        meta.queue_id = meta.class_id;
        meta.time_per_byte_q24 = time_per_byte_q24;
        meta.spacing_bytes = PREAMBLE_BYTES + gap_bytes;
        meta.limit_bytes = limit_bytes;
        meta.allowance_ns = allowance_ns;
        meta.ecn_threshold_bytes = ecn_threshold_bytes;
    }

    // As a token bucket whose timer is the system's tick (ticks.p4): packets leave at multiples of
    // tick_ns (1 to 10,000 ticks a second), and a tick has tokens for its time at the rate. They
    // leave together, so the class makes up a tick's time in any case. ticks_per_ns_q64 is
    // 2^64 / tick_ns, rounded down.
    @name(".PacerIngress.paced_timer")
    action paced_timer(bit<64> time_per_byte_q24, bit<32> tick_ns, bit<64> ticks_per_ns_q64,
                       bit<32> limit_bytes, bit<64> allowance_ns, bit<32> ecn_threshold_bytes) {
        paced_static(time_per_byte_q24, limit_bytes, allowance_ns + (bit<64>) tick_ns);
        meta.tick_ns = (bit<64>) tick_ns;
        meta.ticks_per_ns_q64 = ticks_per_ns_q64;
        meta.ecn_threshold_bytes = ecn_threshold_bytes;
    }

    // Each TCP flow of the class is paced by itself (flow_pace.p4) at window / round-trip time, as
    // in PSPacer's dynamic mode (PSPD). Packets of no followed flow are not paced. The limit applies
    // to each flow.
    @name(".PacerIngress.paced_pspd")
    action paced_pspd(bit<32> limit_bytes, bit<64> allowance_ns, bit<32> ecn_threshold_bytes) {
        meta.follows_flows = 1;
        meta.paces_flows = 1;
        meta.pspd = 1;
        meta.inverse_headroom_q16 = 65536;
        meta.limit_bytes = limit_bytes;
        meta.allowance_ns = allowance_ns;
        meta.ecn_threshold_bytes = ecn_threshold_bytes;
    }

    // As paced_pspd, each flow in its slot.
    @name(".PacerIngress.paced_pspd_in_slots")
    action paced_pspd_in_slots(bit<32> limit_bytes, bit<64> allowance_ns,
                               bit<32> ecn_threshold_bytes, bit<32> cycle_ns,
                               bit<64> cycles_per_ns_q64, bit<32> slot_ns, bit<16> slots) {
        paced_pspd(limit_bytes, allowance_ns, ecn_threshold_bytes);
        once_in_slot_of_flow(cycle_ns, cycles_per_ns_q64, slot_ns, slots);
    }

    // As paced_pspd, until the flow retransmits, or until its round-trip time divided by its window
    // in packets is at most release_below_ns (1 ns to 1 s); and released by a tick, in clusters of at
    // most 80 packets (limits.p4).
    @name(".PacerIngress.paced_clustered")
    action paced_clustered(bit<32> release_below_ns, bit<32> limit_bytes, bit<64> allowance_ns,
                           bit<32> ecn_threshold_bytes) {
        paced_pspd(limit_bytes, allowance_ns + CLUSTER_TICK_NS, ecn_threshold_bytes);
        meta.release_below_ns = (bit<64>) release_below_ns;
        meta.tick_ns = CLUSTER_TICK_NS;
        meta.ticks_per_ns_q64 = CLUSTER_TICKS_PER_NS_Q64;
        meta.cost_min_q24 = CLUSTER_COST_MIN_Q24;
    }

    // Each TCP flow of the class is paced by itself (flow_pace.p4) at headroom * window / round-trip
    // time. inverse_headroom_q16 is 65536 / headroom, at most 2^17 (a headroom of one half).
    // time_per_byte_q24 is that of a flow's highest rate, and of all packets together that belong
    // to no followed flow; 0: no such rate. The limit applies to each flow.
    @name(".PacerIngress.paced_dynamic")
    action paced_dynamic(bit<32> inverse_headroom_q16, bit<64> time_per_byte_q24,
                         bit<32> limit_bytes, bit<64> allowance_ns,
                         bit<32> ecn_threshold_bytes, bit<32> bytes_per_ns_q24,
                         bit<32> window_margin_bytes) {
        paced_static_controlled(time_per_byte_q24, limit_bytes, allowance_ns,
                                ecn_threshold_bytes, bytes_per_ns_q24, window_margin_bytes);
        meta.paced = (bit<1>) (time_per_byte_q24 != 0);
        meta.follows_flows = 1;
        meta.paces_flows = 1;
        meta.inverse_headroom_q16 = (bit<64>) inverse_headroom_q16;
    }

    // As paced_dynamic, each flow in its slot.
    @name(".PacerIngress.paced_dynamic_in_slots")
    action paced_dynamic_in_slots(bit<32> inverse_headroom_q16, bit<64> time_per_byte_q24,
                                  bit<32> limit_bytes, bit<64> allowance_ns,
                                  bit<32> ecn_threshold_bytes, bit<32> bytes_per_ns_q24,
                                  bit<32> window_margin_bytes, bit<32> cycle_ns,
                                  bit<64> cycles_per_ns_q64, bit<32> slot_ns, bit<16> slots) {
        paced_dynamic(inverse_headroom_q16, time_per_byte_q24, limit_bytes, allowance_ns,
                      ecn_threshold_bytes, bytes_per_ns_q24, window_margin_bytes);
        once_in_slot_of_flow(cycle_ns, cycles_per_ns_q64, slot_ns, slots);
    }

    // As paced_dynamic until the flow retransmits, or until its round-trip time divided by its
    // window in packets is at most release_below_ns (1 ns to 1 s).
    @name(".PacerIngress.paced_slow_start")
    action paced_slow_start(bit<32> release_below_ns, bit<32> inverse_headroom_q16,
                            bit<64> time_per_byte_q24, bit<32> limit_bytes,
                            bit<64> allowance_ns, bit<32> ecn_threshold_bytes,
                            bit<32> bytes_per_ns_q24, bit<32> window_margin_bytes) {
        paced_dynamic(inverse_headroom_q16, time_per_byte_q24, limit_bytes, allowance_ns,
                      ecn_threshold_bytes, bytes_per_ns_q24, window_margin_bytes);
        meta.release_below_ns = (bit<64>) release_below_ns;
    }

    // The class's active TCP flows share its rate (rate_sharing.p4), which has bytes_per_ns_q24 of
    // payload. The limit and the threshold apply to each flow. If clamps_windows is 1, windows are
    // lowered to a flow's part of the rate plus window_margin_bytes.
    @name(".PacerIngress.paced_shared")
    action paced_shared(bit<64> time_per_byte_q24, bit<32> limit_bytes, bit<64> allowance_ns,
                        bit<32> ecn_threshold_bytes, bit<32> bytes_per_ns_q24,
                        bit<1> clamps_windows, bit<32> window_margin_bytes) {
        paced_static_controlled(time_per_byte_q24, limit_bytes, allowance_ns,
                                ecn_threshold_bytes, bytes_per_ns_q24, window_margin_bytes);
        meta.follows_flows = 1;
        meta.shares = 1;
        meta.clamps_windows = clamps_windows;
    }

    @name(".PacerIngress.classes")
    table classes {
        key = {
            meta.class_id: exact @name("class_id");
        }
        actions = { unpaced; paced_static; paced_static_controlled; paced_ipg; paced_timer;
                    paced_pspd; paced_dynamic; paced_slow_start; paced_clustered;
                    paced_shared; paced_static_in_slot; paced_pspd_in_slots;
                    paced_dynamic_in_slots; }
        const default_action = unpaced;
        size = CLASS_COUNT;
    }

    apply {
        classes.apply();
    }
}

#endif
