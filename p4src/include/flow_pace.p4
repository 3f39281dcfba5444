// Spacing by what a flow does itself: window / round-trip time, as PSPacer's dynamic mode
// (target rate = cwnd * packet size / RTT) and the TCP-aware NIC (gap = RTT / cwnd - packet size /
// bandwidth) have it. The time of a byte is RTT / (window * headroom).
//
// There is no division: the reciprocal of the window comes from a table of 32 and one step of
// Newton's method. With the table off by at most 1/65 it is off by at most 1/65^2 = 0.024 %,
// always to the fast side.
#ifndef FLOW_PACE_P4
#define FLOW_PACE_P4

// What a packet of the window is taken for.
#define SEGMENT_BYTES 1460

// Bits of a reciprocal: 2^59 / m, for m from 2^31 to 2^32.
#define RECIPROCAL_BITS 59

control FlowPace(inout metadata_t meta) {
    // Flows that have seen a loss, or whose packets come dense enough: mode slow-start leaves
    // them alone from then on.
    @name(".PacerIngress.flow_released")
    register<bit<1>>(TRACKED_FLOWS) flow_released;

    Backlog() backlog;

    bit<5> interval;
    bit<64> reciprocal;

    @name(".PacerIngress.first_reciprocal")
    action first_reciprocal(bit<64> value) {
        reciprocal = value;
    }

    // 2^59 / the middle of the interval that begins at (32 + interval) * 2^26.
    @name(".PacerIngress.reciprocals")
    table reciprocals {
        key = {
            interval: exact;
        }
        actions = { first_reciprocal; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            0: first_reciprocal(264305680);
            1: first_reciprocal(256415958);
            2: first_reciprocal(248983611);
            3: first_reciprocal(241969989);
            4: first_reciprocal(235340674);
            5: first_reciprocal(229064922);
            6: first_reciprocal(223115184);
            7: first_reciprocal(217466699);
            8: first_reciprocal(212097150);
            9: first_reciprocal(206986376);
            10: first_reciprocal(202116108);
            11: first_reciprocal(197469761);
            12: first_reciprocal(193032238);
            13: first_reciprocal(188789771);
            14: first_reciprocal(184729776);
            15: first_reciprocal(180840728);
            16: first_reciprocal(177112053);
            17: first_reciprocal(173534032);
            18: first_reciprocal(170097715);
            19: first_reciprocal(166794846);
            20: first_reciprocal(163617802);
            21: first_reciprocal(160559525);
            22: first_reciprocal(157613479);
            23: first_reciprocal(154773596);
            24: first_reciprocal(152034241);
            25: first_reciprocal(149390167);
            26: first_reciprocal(146836489);
            27: first_reciprocal(144368649);
            28: first_reciprocal(141982390);
            29: first_reciprocal(139673733);
            30: first_reciprocal(137438953);
            31: first_reciprocal(135274561);
        }
    }

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
            // RTT / (window in packets) <= threshold, multiplied out.
            if (meta.flow_lost == 1
                || (meta.rtt_ns != 0
                    && meta.rtt_ns * SEGMENT_BYTES <= meta.release_below_ns * (bit<64>) window)) {
                released = 1;
            }
            flow_released.write(meta.flow_cell, released);
        }
        meta.queue_id = CLASS_COUNT + meta.flow_cell;
        if (released == 1) {
            meta.time_per_byte_q24 = 0;
        } else if (meta.rtt_ns != 0) {
            meta.paced = 1;
            // The window's leading one to the top.
            bit<32> mantissa = window;
            bit<8> shift = 0;
            if (mantissa[31:16] == 0) { mantissa = mantissa << 16; shift = shift + 16; }
            if (mantissa[31:24] == 0) { mantissa = mantissa << 8; shift = shift + 8; }
            if (mantissa[31:28] == 0) { mantissa = mantissa << 4; shift = shift + 4; }
            if (mantissa[31:30] == 0) { mantissa = mantissa << 2; shift = shift + 2; }
            if (mantissa[31:31] == 0) { mantissa = mantissa << 1; shift = shift + 1; }
            interval = mantissa[30:26];
            reciprocal = 0;
            reciprocals.apply();
            // r' = r * (2 - m * r)
            bit<64> rest = (64w1 << (RECIPROCAL_BITS + 1)) - (bit<64>) mantissa * reciprocal;
            reciprocal = (reciprocal * (rest >> 27)) >> (RECIPROCAL_BITS - 27);
            // 34 bits of RTT and 17 of headroom; 35 bits of their product and 28 of reciprocal.
            bit<64> pace_ns = (meta.rtt_ns * meta.inverse_headroom_q16) >> 16;
            bit<64> time_per_byte_q24 =
                (pace_ns * reciprocal) >> (RECIPROCAL_BITS - FRACTION_BITS - shift);
            // What meta.time_per_byte_q24 was is of the highest rate allowed; 0: any. It stays
            // that as long as the round-trip time is not known.
            if (time_per_byte_q24 > meta.time_per_byte_q24) {
                meta.time_per_byte_q24 = time_per_byte_q24;
            }
        }
        if (meta.time_per_byte_q24 == 0) {
            // A flow that is left alone joins the unpaced packets, once none of it is held.
            bit<32> backlog_bytes;
            backlog.apply(meta.queue_id, backlog_bytes);
            meta.paced = (bit<1>) (backlog_bytes != 0);
        }
    }
}

#endif
