// Decides the rate of a flow's path: the rate above which the flow's packets only queue or get lost
// on the path.
//
// A sender doubles its window each round trip until a packet is lost, and learns of the loss a round
// trip later. By then window / round-trip time is twice the rate of the path. So this control
// measures the rate beforehand (Hoe, SIGCOMM 1996; Keshav, SIGCOMM 1991). The flow's first flight,
// which every path must accept at once (RFC 6928), is not spaced, and the narrowest link spaces its
// acknowledgements. The time per byte is the time between two acknowledgements, divided by the frame
// bytes between them. The first is the first that covers more than a segment (the first segment may
// be an application's header). The second is the first that covers three quarters of the flight (the
// last one may be a delayed acknowledgement).
//
// A rate that is far too low costs the flow its path, while no rate costs nothing. So the measured
// rate counts only under three conditions: both acknowledgements cover the flight alone; the sender
// sent the flight clearly faster and without a pause; and the class's own rate, at which this switch
// spaced the flight, is clearly faster.
//
// A flow whose path rate is known gets twice its window / round-trip time while its window grows as
// in slow start, so that the window doubles in one round trip and not in two. That ends with the
// first retransmission, the first ECN echo, or the first round trip in which the most bytes in flight
// did not grow by a quarter.
//
// A first flight can mislead: other traffic comes between its packets, or its acknowledgements arrive
// together. So the rate grows again. It begins 1/256 below the measured rate. It grows while the flow
// is held to it and no packet of the flow queues downstream: by 1/4096 of itself a round trip, and
// after 32 round trips by twice as much each time. If a packet queues downstream for longer than
// eight packets take and longer than a millisecond, half of the growth is taken back. The queueing
// time is the round-trip time above the smallest, without the time in this switch (Vegas: Brakmo and
// Peterson, SIGCOMM 1994). A millisecond is more than hosts add by interrupt moderation and
// coalescing, and less than a bottleneck's buffer holds. The rate never falls below where it began,
// whoever fills the queue. If it reaches sixteen times that, the measurement was not the path's, and
// the flow has no path rate from then on.
//
// If each of 32 round trips in a row was longer than that, the shortest of them becomes the new base,
// because the path may have changed. A queue that other flows keep up for as long therefore counts as
// part of the path, as in BBR after ten seconds.
#ifndef PATH_RATE_P4
#define PATH_RATE_P4

#define TRAIN_NONE 0
#define TRAIN_LEAVES 1    // the first flight is being sent
#define TRAIN_ANSWERED 2  // a part is acknowledged: the flight has ended
#define TRAIN_RETURNS 3   // more than a segment is acknowledged: time is taken

// Least bytes and longest time (2 s) between the two acknowledgements.
#define TRAIN_BYTES_MIN 2920
#define TRAIN_NS_MAX 0x7FFFFFFF

// Shortest first flight that is measured.
#define TRAIN_LENGTH_MIN (4 * SEGMENT_BYTES)

#define PATH_QUEUE_BYTES 12144
#define PATH_QUEUE_NS_MIN 1000000
#define PATH_LATE_ROUNDS 32
#define PATH_STEP_Q16 32w16
#define PATH_ROUNDS_BY_STEP 32
#define PATH_ROUNDS_MAX 40
#define PATH_GAIN_Q16_MAX 61440

register<bit<8>>(TRACKED_FLOWS) flow_train_state;
register<bit<32>>(TRACKED_FLOWS) flow_train_from;      // first sequence number
register<bit<32>>(TRACKED_FLOWS) flow_train_until;     // one past its last
register<bit<32>>(TRACKED_FLOWS) flow_train_begun;     // the acknowledgement that time is taken from
register<bit<64>>(TRACKED_FLOWS) flow_train_at_ns;     // when the first was sent, then from when
register<bit<64>>(TRACKED_FLOWS) flow_train_sent_ns;   // when the last was sent, then how long it took
register<bit<64>>(TRACKED_FLOWS) flow_train_pause_ns;  // longest time between two of its packets
register<bit<64>>(TRACKED_FLOWS) flow_train_class_q24; // the class's time of a byte
register<bit<32>>(TRACKED_FLOWS) flow_train_payload_bytes;  // of its largest packet
register<bit<32>>(TRACKED_FLOWS) flow_train_frame_bytes;

register<bit<64>>(TRACKED_FLOWS) flow_slowest_q24;     // where the time of a byte began; 0: not known
register<bit<64>>(TRACKED_FLOWS) flow_fastest_q24;     // and where it is
register<bit<16>>(TRACKED_FLOWS) flow_path_gain_q16;   // how much below
register<bit<8>>(TRACKED_FLOWS) flow_path_rounds;      // that nothing waited in
register<bit<64>>(TRACKED_FLOWS) flow_path_base_ns;    // the path's round-trip time; 0: not known yet
register<bit<8>>(TRACKED_FLOWS) flow_path_late;        // rounds in a row that something waited in
register<bit<64>>(TRACKED_FLOWS) flow_path_least_ns;   // shortest of these
register<bit<1>>(TRACKED_FLOWS) flow_path_below;       // the rate is known, and the window grows fast
register<bit<1>>(TRACKED_FLOWS) flow_timed_at_path_rate;  // the segment that is timed was held to it

// A packet of a followed flow: decides whether it belongs to the first flight. `opens`: it is a SYN.
control FirstFlight(inout metadata_t meta, in bit<1> opens, in bit<32> end,
                    in bit<32> payload_bytes, in bit<32> frame_bytes, in bit<64> now_ns) {
    apply {
        bit<32> cell = meta.flow_cell;
        bit<8> state;
        flow_train_state.read(state, cell);
        if (meta.flow_lost == 1) {
            flow_path_below.write(cell, 0);
        }
        if (meta.flow_starts == 1) {
            // A flow that began unseen has no first flight. In mode pspd the switch spaces it, so its
            // acknowledgements show nothing of the path.
            flow_train_state.write(cell, (bit<8>) (opens & meta.paces_flows & ~meta.pspd));
            flow_train_from.write(cell, end);
            flow_train_until.write(cell, end);
            flow_train_payload_bytes.write(cell, 0);
            flow_slowest_q24.write(cell, 0);
            flow_fastest_q24.write(cell, 0);
            flow_path_gain_q16.write(cell, 0);
            flow_path_rounds.write(cell, 0);
            flow_path_base_ns.write(cell, 0);
            flow_path_late.write(cell, 0);
            flow_path_below.write(cell, 0);
        } else if (state != TRAIN_NONE && payload_bytes != 0) {
            bit<32> from;
            flow_train_from.read(from, cell);
            if (meta.flow_lost == 1) {
                flow_train_state.write(cell, TRAIN_NONE);
            } else if (state == TRAIN_LEAVES && end - from <= INITIAL_WINDOW_BYTES) {
                bit<32> until;
                bit<32> largest_bytes;
                flow_train_until.read(until, cell);
                flow_train_payload_bytes.read(largest_bytes, cell);
                if (until == from) {
                    flow_train_at_ns.write(cell, now_ns);
                    flow_train_pause_ns.write(cell, 0);
                } else {
                    bit<64> sent_ns;
                    bit<64> pause_ns;
                    flow_train_sent_ns.read(sent_ns, cell);
                    flow_train_pause_ns.read(pause_ns, cell);
                    if (now_ns - sent_ns > pause_ns) {
                        flow_train_pause_ns.write(cell, now_ns - sent_ns);
                    }
                }
                flow_train_sent_ns.write(cell, now_ns);
                flow_train_until.write(cell, end);
                flow_train_class_q24.write(cell, meta.time_per_byte_q24);
                if (payload_bytes > largest_bytes) {
                    flow_train_payload_bytes.write(cell, payload_bytes);
                    flow_train_frame_bytes.write(cell, frame_bytes);
                }
                meta.in_train = (bit<1>) (meta.rtt_ns != 0);
            }
        }
    }
}

// An acknowledgement of new data: measures the first flight.
control FirstFlightAnswered(in bit<32> cell, in bit<32> acknowledgement, in bit<64> now_ns) {
    TimePerByte() time_per_byte;

    apply {
        bit<8> state;
        flow_train_state.read(state, cell);
        if (state != TRAIN_NONE) {
            bit<32> from;
            bit<32> until;
            bit<64> at_ns;
            bit<64> sent_ns;
            flow_train_from.read(from, cell);
            flow_train_until.read(until, cell);
            flow_train_at_ns.read(at_ns, cell);
            flow_train_sent_ns.read(sent_ns, cell);
            bit<32> bytes = acknowledgement - from;
            bit<32> length = until - from;
            // 0 or negative (modulo 2^32): it acknowledges the SYN only.
            bit<1> of_data = (bit<1>) (bytes != 0 && bytes[31:31] == 0);
            bit<1> of_most = (bit<1>) (bytes >= length - (length >> 2));
            if (state == TRAIN_RETURNS) {
                if (of_most == 1) {
                    bit<32> begun;
                    bit<64> pause_ns;
                    flow_train_begun.read(begun, cell);
                    flow_train_pause_ns.read(pause_ns, cell);
                    bit<64> span_ns = now_ns - at_ns;
                    bit<32> measured_bytes = acknowledgement - begun;
                    flow_train_state.write(cell, TRAIN_NONE);
                    if (bytes <= length && measured_bytes >= TRAIN_BYTES_MIN
                        && span_ns <= TRAIN_NS_MAX && span_ns * 3 > sent_ns * 4
                        && span_ns > pause_ns * 8) {
                        bit<32> payload_bytes;
                        bit<32> frame_bytes;
                        bit<64> slowest_q24;
                        bit<64> class_q24;
                        flow_train_payload_bytes.read(payload_bytes, cell);
                        flow_train_frame_bytes.read(frame_bytes, cell);
                        flow_train_class_q24.read(class_q24, cell);
                        // span / (bytes / payload * frame). The factors have 31 and 11 bits, and
                        // 14 and 11 (jumbo frames 14). A frame is longer than its payload, so the
                        // result has at most 44 bits.
                        time_per_byte.apply((span_ns * (bit<64>) payload_bytes) >> 10,
                                            (measured_bytes * frame_bytes) >> 10, slowest_q24);
                        if (slowest_q24 * 3 > class_q24 * 4) {
                            slowest_q24 = slowest_q24 + (slowest_q24 >> 8);
                            flow_slowest_q24.write(cell, slowest_q24);
                            flow_fastest_q24.write(cell, slowest_q24);
                            flow_path_below.write(cell, 1);
                        }
                    }
                }
            } else if (of_data == 1) {
                if (state == TRAIN_LEAVES) {
                    state = TRAIN_ANSWERED;
                    flow_train_sent_ns.write(cell, sent_ns - at_ns);
                }
                if (of_most == 1 || length < TRAIN_LENGTH_MIN) {
                    state = TRAIN_NONE;
                } else if (bytes > SEGMENT_BYTES) {
                    state = TRAIN_RETURNS;
                    flow_train_begun.write(cell, acknowledgement);
                    flow_train_at_ns.write(cell, now_ns);
                }
                flow_train_state.write(cell, state);
            }
        }
    }
}

// A round trip has ended. It took `path_ns` without the time in this switch; the flow's shortest took
// `base_rtt_ns`.
control PathRate(in bit<32> cell, in bit<64> path_ns, in bit<64> base_rtt_ns) {
    apply {
        bit<64> slowest_q24;
        flow_slowest_q24.read(slowest_q24, cell);
        if (slowest_q24 != 0) {
            bit<64> fastest_q24;
            bit<16> gain_q16;
            bit<8> rounds;
            bit<64> base_ns;
            bit<8> late;
            bit<1> at_path_rate;
            flow_fastest_q24.read(fastest_q24, cell);
            flow_path_gain_q16.read(gain_q16, cell);
            flow_path_rounds.read(rounds, cell);
            flow_path_base_ns.read(base_ns, cell);
            flow_path_late.read(late, cell);
            flow_timed_at_path_rate.read(at_path_rate, cell);
            if (base_ns == 0) {
                base_ns = base_rtt_ns;
            }
            if (path_ns < base_ns) {
                base_ns = path_ns;
            }
            bit<64> waited_ns = path_ns - base_ns;
            if (waited_ns > PATH_QUEUE_NS_MIN
                && (waited_ns << FRACTION_BITS) > fastest_q24 * PATH_QUEUE_BYTES) {
                bit<64> least_ns;
                flow_path_least_ns.read(least_ns, cell);
                if (late == 0 || path_ns < least_ns) {
                    least_ns = path_ns;
                }
                late = late + 1;
                if (late == PATH_LATE_ROUNDS) {
                    base_ns = least_ns;
                    late = 0;
                }
                flow_path_least_ns.write(cell, least_ns);
                gain_q16 = gain_q16 >> 1;
                rounds = 0;
            } else {
                late = 0;
                if (at_path_rate == 1) {
                    bit<32> grown_q16 = (bit<32>) gain_q16
                        + (PATH_STEP_Q16 << (rounds |-| PATH_ROUNDS_BY_STEP));
                    if (grown_q16 > PATH_GAIN_Q16_MAX) {
                        slowest_q24 = 0;
                        flow_slowest_q24.write(cell, 0);
                        flow_path_below.write(cell, 0);
                    }
                    gain_q16 = grown_q16[15:0];
                    if (rounds < PATH_ROUNDS_MAX) {
                        rounds = rounds + 1;
                    }
                }
            }
            flow_path_base_ns.write(cell, base_ns);
            flow_path_late.write(cell, late);
            flow_path_gain_q16.write(cell, gain_q16);
            flow_path_rounds.write(cell, rounds);
            flow_fastest_q24.write(
                cell, (slowest_q24 * (65536 - (bit<64>) gain_q16)) >> 16);
        }
    }
}

#endif
