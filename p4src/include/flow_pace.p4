// Decides the rate of a TCP flow that is paced by itself: window / round-trip time, as in PSPacer's
// dynamic mode (target rate = cwnd * packet size / RTT) and in the TCP-aware NIC
// (gap = RTT / cwnd - packet size / bandwidth).
//
// The window is bytes of payload, so a packet takes the part of the round-trip time that its payload
// is of the window: payload * RTT / (window * headroom). The packets of one window together take one
// round-trip time at a headroom of 1, whatever their sizes and headers; a window of n full segments
// has spaces of RTT / n. A packet without payload takes no time.
//
// Mode pspd is that alone. Until the flow retransmits, its window is at least TCP's initial window
// (RFC 6928): the sender's cwnd is, however little it has sent. From then on it is at least the
// packet's own payload, since a window has a packet.
//
// Mode clustered is Clustered Packet Spacing: the same, while RTT / window is above a threshold and
// nothing was lost, and released by a tick (ticks.p4). A packet with payload takes a least time, so
// that a tick has a largest number of them. One without is not spaced.
//
// Modes dynamic and slow-start multiply the window by the headroom, take it to be at least the
// initial window, and do not space the first flight. There a packet takes at least what its frame
// takes at the class's rate (if it has one) and at the rate of the flow's path (path_rate.p4).
#ifndef FLOW_PACE_P4
#define FLOW_PACE_P4

control FlowPace(inout metadata_t meta, in bit<32> frame_bytes) {
    // Flows that have seen a loss or whose packets are dense enough. Modes slow-start and clustered
    // do not pace them from then on.
    @name(".PacerIngress.flow_released")
    register<bit<1>>(TRACKED_FLOWS) flow_released;

    Backlog() backlog;

    TimePerByte() time_per_byte;

    apply {
        bit<1> released = 0;
        bit<32> window = meta.window_bytes;
        bit<32> window_min = INITIAL_WINDOW_BYTES;
        if (meta.pspd == 1) {
            bit<1> has_lost;
            flow_has_lost.read(has_lost, meta.flow_cell);
            if (has_lost == 1) {
                window_min = meta.payload_bytes;
            }
        }
        if (window < window_min) {
            window = window_min;
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
            // The class may become one of these modes.
            flow_released.write(meta.flow_cell, 0);
        }
        meta.queue_id = CLASS_COUNT + meta.flow_cell;
        bit<1> at_path_rate = 0;
        if (released == 1) {
            meta.time_per_byte_q24 = 0;
            meta.in_train = 0;
        } else if (meta.rtt_ns != 0) {
            meta.paced = 1;
            if (meta.in_train == 0 || meta.pspd == 1) {
                // RTT has 34 bits, headroom 17; the product is kept to 35 bits.
                bit<64> pace_ns = (meta.rtt_ns * meta.inverse_headroom_q16) >> 16;
                bit<64> time_per_byte_q24;
                bit<64> fastest_q24 = 0;
                if (meta.pspd == 0) {
                    bit<1> below;
                    flow_path_below.read(below, meta.flow_cell);
                    if (below == 1 && window[31:31] == 0) {
                        window = window << 1;
                    }
                    flow_fastest_q24.read(fastest_q24, meta.flow_cell);
                }
                time_per_byte.apply(pace_ns, window, time_per_byte_q24);
                // So far meta.time_per_byte_q24 is that of the highest rate allowed (0: no such
                // rate). It stays so while the round-trip time is unknown. A window of at least the
                // payload or 14,600 bytes keeps the products below 2^62.
                bit<64> taken_q24 = time_per_byte_q24 * (bit<64>) meta.payload_bytes;
                bit<64> at_most_q24 = meta.time_per_byte_q24 * (bit<64>) frame_bytes;
                if (taken_q24 >= at_most_q24) {
                    meta.time_per_byte_q24 = time_per_byte_q24;
                    meta.spacing_bytes = meta.payload_bytes - frame_bytes;
                } else {
                    taken_q24 = at_most_q24;
                }
                if (fastest_q24 * (bit<64>) frame_bytes > taken_q24) {
                    meta.time_per_byte_q24 = fastest_q24;
                    meta.spacing_bytes = 0;
                    at_path_rate = 1;
                }
                if (meta.cost_min_q24 > taken_q24) {
                    // As if of one byte.
                    meta.time_per_byte_q24 = meta.payload_bytes == 0 ? 0 : meta.cost_min_q24;
                    meta.spacing_bytes = 1 - frame_bytes;
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
