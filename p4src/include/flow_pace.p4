// Decides the rate of a TCP flow that is paced by itself: window / round-trip time, as in PSPacer's
// dynamic mode (target rate = cwnd * packet size / RTT) and in the TCP-aware NIC
// (gap = RTT / cwnd - packet size / bandwidth). The time per byte is RTT / (window * headroom), and
// at least the time per byte of the flow's path (path_rate.p4). The first flight is not spaced.
#ifndef FLOW_PACE_P4
#define FLOW_PACE_P4

control FlowPace(inout metadata_t meta) {
    // Flows that have seen a loss or whose packets are dense enough. Mode slow-start does not pace
    // them from then on.
    @name(".PacerIngress.flow_released")
    register<bit<1>>(TRACKED_FLOWS) flow_released;

    Backlog() backlog;

    TimePerByte() time_per_byte;

    apply {
        bit<1> released = 0;
        bit<32> window = meta.window_bytes;
        if (window < INITIAL_WINDOW_BYTES) {
            window = INITIAL_WINDOW_BYTES;
        }
        if (meta.release_below_ns != 0) {
            if (meta.flow_starts == 0) {
                flow_released.read(released, meta.flow_cell);
            }
            // RTT / (window in packets) <= threshold, without the division.
            if (meta.flow_lost == 1
                || (meta.rtt_ns != 0
                    && meta.rtt_ns * SEGMENT_BYTES <= meta.release_below_ns * (bit<64>) window)) {
                released = 1;
            }
            flow_released.write(meta.flow_cell, released);
        } else if (meta.flow_starts == 1) {
            // The class may become one of mode slow-start.
            flow_released.write(meta.flow_cell, 0);
        }
        meta.queue_id = CLASS_COUNT + meta.flow_cell;
        bit<1> at_path_rate = 0;
        if (released == 1) {
            meta.time_per_byte_q24 = 0;
            meta.in_train = 0;
        } else if (meta.rtt_ns != 0) {
            meta.paced = 1;
            if (meta.in_train == 0) {
                // RTT has 34 bits, headroom 17; the product is kept to 35 bits.
                bit<64> pace_ns = (meta.rtt_ns * meta.inverse_headroom_q16) >> 16;
                bit<64> time_per_byte_q24;
                bit<64> fastest_q24;
                bit<1> below;
                flow_path_below.read(below, meta.flow_cell);
                if (below == 1 && window[31:31] == 0) {
                    window = window << 1;
                }
                time_per_byte.apply(pace_ns, window, time_per_byte_q24);
                flow_fastest_q24.read(fastest_q24, meta.flow_cell);
                // So far meta.time_per_byte_q24 is that of the highest rate allowed (0: no such
                // rate). It stays so while the round-trip time is unknown.
                if (time_per_byte_q24 > meta.time_per_byte_q24) {
                    meta.time_per_byte_q24 = time_per_byte_q24;
                }
                if (fastest_q24 > meta.time_per_byte_q24) {
                    meta.time_per_byte_q24 = fastest_q24;
                    at_path_rate = 1;
                }
            }
        }
        if (meta.flow_timing == 1) {
            flow_timed_at_path_rate.write(meta.flow_cell, at_path_rate);
        }
        if (meta.time_per_byte_q24 == 0) {
            // A packet without spacing becomes unpaced once no packet of its flow is held.
            bit<32> backlog_bytes;
            backlog.apply(meta.queue_id, backlog_bytes);
            meta.paced = (bit<1>) (backlog_bytes != 0);
        }
    }
}

#endif
