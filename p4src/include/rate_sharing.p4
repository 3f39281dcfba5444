// Divides the rate of a class among its active flows (mode shared), so that parallel streams of one
// transfer end at the same time.
//
// Each followed TCP flow of the class has a clock and a queue of its own. A packet takes
// W * time_per_byte for each of its bytes, where W is the number of active flows, and of those that
// catch up once more; a flow that catches up takes half of that. So the flows' rates together are the
// class's, without a division.
//
// Active: a flow is active from its SYN or first data until it has sent neither for a whole epoch of
// 2^30 ns, or has closed and its queue is empty. The class counts the flows that were active in the
// last epoch or this one, and beside them those of this epoch alone, with which the next one begins.
// So no count depends on the end of a flow being seen. No packet waits longer than an epoch
// (it is dropped as at the class's limit), so a flow that has packets here is always counted.
//
// Catching up: a flow that waits for its clock, and is behind the active ones' mean by more than 1/256
// and four segments, has twice the others' rate until it has reached the mean. Progress is what was
// acknowledged, and the part of what is in flight by which that is more than a flow at the others'
// rate sends until it is acknowledged.
//
// The sum never exceeds the class's rate, although packets keep their departure times when W grows:
// what a flow gets anew (its first departure, or the second half of a doubled rate) begins behind all
// departures that the class has given before. Only a SYN leaves at once.
//
// Packets of no followed flow (other protocols, flows whose cell is taken) have the class's own queue,
// and together the part of one flow. The acknowledgements of flows that send no data have that queue,
// too, and take no time.
#ifndef RATE_SHARING_P4
#define RATE_SHARING_P4

#define SHARE_EPOCH_BITS 30
#define SHARE_WAIT_NS_MAX (64w1 << SHARE_EPOCH_BITS)

// A mark is an epoch and a class: a flow was active then, and there. Epochs count from 2, and 0 is
// none.
#define SHARE_CLASS_BITS 24
#define SHARE_CLASS_MASK 0xFFFFFF

// Longest time per byte (17 ms), so that the time of a packet fits 64 bits.
#define SHARE_TIME_PER_BYTE_Q24_MAX (64w1 << 48)

// Progress is not counted beyond this, so that products with it fit 64 bits.
#define SHARE_PROGRESS_BITS 44
#define SHARE_SLACK_BITS 8
#define SHARE_SLACK_BYTES (4 * SEGMENT_BYTES)

register<bit<64>>(QUEUE_COUNT) share_mark;
register<bit<64>>(TRACKED_FLOWS) share_progress_bytes;
register<bit<32>>(TRACKED_FLOWS) share_acknowledged;  // the number that progress is counted up to
// Until when packets of the flow count as those of one that catches up, or from when on they are; 0:
// it does not catch up.
register<bit<64>>(TRACKED_FLOWS) share_extra_ns;
register<bit<1>>(TRACKED_FLOWS) share_caught_up;  // it still counts, but no more than others get

register<bit<64>>(CLASS_COUNT) share_epoch;
register<bit<64>>(CLASS_COUNT) share_scheduled_ns;  // the end of all departures so far
// Of the flows that are active: their number, how many of them catch up, and their progress.
register<bit<32>>(CLASS_COUNT) share_flows;
register<bit<32>>(CLASS_COUNT) share_extras;
register<bit<64>>(CLASS_COUNT) share_bytes;
// The same of those that were active in this epoch.
register<bit<32>>(CLASS_COUNT) share_next_flows;
register<bit<32>>(CLASS_COUNT) share_next_extras;
register<bit<64>>(CLASS_COUNT) share_next_bytes;

// Sets the packet's queue and its time per byte. `syn`: of a followed flow.
control RateSharing(inout metadata_t meta, in bit<1> syn,
                    in standard_metadata_t standard_metadata) {
    IngressTime() time;
    TimePerByte() time_per_byte;
    TimePerByte() time_per_byte_of_active;

    bit<32> flows;
    bit<32> extras;
    bit<64> bytes;
    bit<32> next_flows;
    bit<32> next_extras;
    bit<64> next_bytes;

    apply {
        bit<64> now_ns;
        time.apply(standard_metadata, now_ns);
        bit<64> epoch = (now_ns >> SHARE_EPOCH_BITS) + 2;
        bit<64> mark = (epoch << SHARE_CLASS_BITS) | (bit<64>) meta.class_id;
        bit<64> last_mark = mark - (64w1 << SHARE_CLASS_BITS);

        share_next_flows.read(next_flows, meta.class_id);
        share_next_extras.read(next_extras, meta.class_id);
        share_next_bytes.read(next_bytes, meta.class_id);
        bit<64> counted_epoch;
        share_epoch.read(counted_epoch, meta.class_id);
        if (counted_epoch == epoch) {
            share_flows.read(flows, meta.class_id);
            share_extras.read(extras, meta.class_id);
            share_bytes.read(bytes, meta.class_id);
        } else {
            share_epoch.write(meta.class_id, epoch);
            if (counted_epoch + 1 != epoch) {
                next_flows = 0;
                next_extras = 0;
                next_bytes = 0;
            }
            flows = next_flows;
            extras = next_extras;
            bytes = next_bytes;
            next_flows = 0;
            next_extras = 0;
            next_bytes = 0;
        }

        bit<64> others_mark;
        share_mark.read(others_mark, meta.class_id);
        bit<1> others = (bit<1>) (others_mark == mark || others_mark == last_mark);

        bit<64> known_mark = 0;
        bit<1> active = 0;
        if (meta.flow_known == 1) {
            share_mark.read(known_mark, CLASS_COUNT + meta.flow_cell);
            active = (bit<1>) (known_mark == mark || known_mark == last_mark);
            meta.shares_as_flow =
                (bit<1>) (active == 1 || syn == 1 || meta.payload_bytes != 0);
        }
        if (meta.shares_as_flow == 1) {
            meta.queue_id = CLASS_COUNT + meta.flow_cell;
        } else {
            active = others | meta.flow_known;
        }

        bit<64> scheduled_ns;
        bit<64> due_ns;
        bit<32> due_frac;
        share_scheduled_ns.read(scheduled_ns, meta.class_id);
        clock_ns.read(due_ns, meta.queue_id);
        clock_frac.read(due_frac, meta.queue_id);
        meta.share_waits = (bit<1>) (due_ns >= now_ns && (due_ns != now_ns || due_frac != 0));
        if (active == 0) {
            // class_clock.p4 gives the departure, so a SYN is let pass before.
            meta.share_from_ns = scheduled_ns;
            if (due_ns < scheduled_ns && syn == 0) {
                due_ns = scheduled_ns;
                due_frac = 0;
                clock_ns.write(meta.queue_id, due_ns);
                clock_frac.write(meta.queue_id, 0);
            }
        }
        if (due_frac != 0) {
            due_ns = due_ns + 1;
        }
        if (due_ns < now_ns) {
            due_ns = now_ns;
        }
        if (due_ns - now_ns > SHARE_WAIT_NS_MAX) {
            meta.limit_bytes = 0;
        }

        if (meta.shares_as_flow == 1 && active == 0) {
            flows = flows + 1;
        } else if (active == 0) {
            others = 1;
        }
        bit<64> part_q24;
        bit<32> parts = flows + extras + (bit<32>) others;
        if (parts == 0) {
            // An acknowledgement alone.
            parts = 1;
        }
        time_per_byte.apply(meta.bytes_per_ns_q24, parts, part_q24);
        part_q24 = part_q24 >> FRACTION_BITS;
        if (part_q24 == 0) {
            part_q24 = 1;
        }
        // The windows of the others stay as large while some catch up, so that they can go on when
        // these have.
        bit<64> window_part_q24 = part_q24;
        if (meta.clamps_windows == 1 && extras != 0) {
            time_per_byte_of_active.apply(meta.bytes_per_ns_q24, parts - extras, window_part_q24);
            window_part_q24 = window_part_q24 >> FRACTION_BITS;
            if (window_part_q24 == 0) {
                window_part_q24 = 1;
            }
        }

        if (meta.shares_as_flow == 1) {
            bit<64> progress_bytes;
            bit<64> extra_ns;
            bit<32> counted;
            bit<32> acknowledged;
            share_progress_bytes.read(progress_bytes, meta.flow_cell);
            share_extra_ns.read(extra_ns, meta.flow_cell);
            share_acknowledged.read(counted, meta.flow_cell);
            flow_acknowledged.read(acknowledged, meta.flow_cell);
            if (meta.flow_starts == 1
                || known_mark & SHARE_CLASS_MASK != (bit<64>) meta.class_id) {
                if (active == 1) {
                    bytes = bytes - progress_bytes;
                    if (known_mark == mark) {
                        next_bytes = next_bytes - progress_bytes;
                    }
                }
                progress_bytes = 0;
                counted = acknowledged;
            }
            bit<64> step_bytes = (bit<64>) (acknowledged - counted);
            if (step_bytes[31:30] == 0 && progress_bytes[63:SHARE_PROGRESS_BITS] == 0) {
                progress_bytes = progress_bytes + step_bytes;
                if (active == 1) {
                    bytes = bytes + step_bytes;
                    if (known_mark == mark) {
                        next_bytes = next_bytes + step_bytes;
                    }
                }
            }
            share_acknowledged.write(meta.flow_cell, acknowledged);
            share_progress_bytes.write(meta.flow_cell, progress_bytes);
            if (active == 0) {
                extra_ns = 0;
                bytes = bytes + progress_bytes;
            }
            if (known_mark != mark) {
                next_flows = next_flows + 1;
                next_extras = next_extras + (bit<32>) (bit<1>) (extra_ns != 0);
                next_bytes = next_bytes + progress_bytes;
            }
            bit<32> next;
            bit<64> base_rtt_ns;
            flow_next.read(next, meta.flow_cell);
            flow_base_rtt_ns.read(base_rtt_ns, meta.flow_cell);
            bit<32> in_flight_bytes = next - acknowledged;
            // A packet that waits longer is dropped; 35 bits of time, 28 of the rate.
            bit<64> until_ns = due_ns - now_ns;
            if (until_ns > SHARE_WAIT_NS_MAX) {
                until_ns = SHARE_WAIT_NS_MAX;
            }
            bit<64> place_bytes =
                progress_bytes + ((bit<64>) in_flight_bytes
                                  |-| (((until_ns + base_rtt_ns) * part_q24) >> FRACTION_BITS));
            bit<1> caught_up = 0;
            if (extra_ns == 0) {
                place_bytes =
                    place_bytes + (progress_bytes >> SHARE_SLACK_BITS) + SHARE_SLACK_BYTES;
            } else {
                share_caught_up.read(caught_up, meta.flow_cell);
            }
            if (active == 0 || meta.share_waits == 0 || in_flight_bytes[31:30] != 0
                || place_bytes * (bit<64>) flows >= bytes) {
                caught_up = 1;
            } else if (extra_ns == 0) {
                extra_ns = scheduled_ns > due_ns ? scheduled_ns : due_ns;
                extras = extras + 1;
                next_extras = next_extras + 1;
            }
            if (extra_ns != 0 && caught_up == 0) {
                meta.catches_up = (bit<1>) (due_ns >= extra_ns);
            } else if (extra_ns != 0 && (now_ns >= extra_ns || due_ns < extra_ns)) {
                // No packet of twice the rate is left, or there never was one.
                extra_ns = 0;
                extras = extras - 1;
                next_extras = next_extras - 1;
            }
            share_extra_ns.write(meta.flow_cell, extra_ns);
            share_caught_up.write(meta.flow_cell, caught_up);
        }
        if (meta.shares_as_flow == 1 || meta.flow_known == 0) {
            share_mark.write(meta.queue_id, mark);
        }

        share_flows.write(meta.class_id, flows);
        share_extras.write(meta.class_id, extras);
        share_bytes.write(meta.class_id, bytes);
        share_next_flows.write(meta.class_id, next_flows);
        share_next_extras.write(meta.class_id, next_extras);
        share_next_bytes.write(meta.class_id, next_bytes);

        parts = flows + extras + (bit<32>) others;
        if (meta.shares_as_flow == 0 && meta.flow_known == 1) {
            parts = 0;
        }
        meta.time_per_byte_q24 = meta.time_per_byte_q24 * (bit<64>) parts;
        meta.bytes_per_ns_q24 = meta.clamps_windows == 1 ? window_part_q24 : 0;
        if (meta.catches_up == 1) {
            meta.time_per_byte_q24 = meta.time_per_byte_q24 >> 1;
            meta.bytes_per_ns_q24 = meta.bytes_per_ns_q24 << 1;
        }
        if (meta.time_per_byte_q24 > SHARE_TIME_PER_BYTE_Q24_MAX) {
            meta.time_per_byte_q24 = SHARE_TIME_PER_BYTE_Q24_MAX;
        }
    }
}

// A packet that was given a departure time: notes the end of its time, and the end of its flow.
control SharedDeparture(inout metadata_t meta) {
    apply {
        bit<64> end_ns;
        bit<32> end_frac;
        bit<64> scheduled_ns;
        clock_ns.read(end_ns, meta.queue_id);
        clock_frac.read(end_frac, meta.queue_id);
        if (end_frac != 0) {
            end_ns = end_ns + 1;
        }
        share_scheduled_ns.read(scheduled_ns, meta.class_id);
        if (end_ns > scheduled_ns) {
            share_scheduled_ns.write(meta.class_id, end_ns);
        } else if (end_ns < meta.share_from_ns) {
            clock_ns.write(meta.queue_id, meta.share_from_ns);
            clock_frac.write(meta.queue_id, 0);
        }
        if (meta.shares_as_flow == 1) {
            if (meta.catches_up == 1) {
                share_extra_ns.write(meta.flow_cell, end_ns);
            }
            if (meta.flow_closed == 1 && meta.payload_bytes == 0 && meta.share_waits == 0) {
                bit<32> flows;
                bit<32> next_flows;
                bit<64> bytes;
                bit<64> next_bytes;
                bit<64> progress_bytes;
                bit<64> extra_ns;
                share_flows.read(flows, meta.class_id);
                share_next_flows.read(next_flows, meta.class_id);
                share_flows.write(meta.class_id, flows - 1);
                share_next_flows.write(meta.class_id, next_flows - 1);
                share_extra_ns.read(extra_ns, meta.flow_cell);
                if (extra_ns != 0) {
                    bit<32> extras;
                    bit<32> next_extras;
                    share_extras.read(extras, meta.class_id);
                    share_next_extras.read(next_extras, meta.class_id);
                    share_extras.write(meta.class_id, extras - 1);
                    share_next_extras.write(meta.class_id, next_extras - 1);
                }
                share_bytes.read(bytes, meta.class_id);
                share_next_bytes.read(next_bytes, meta.class_id);
                share_progress_bytes.read(progress_bytes, meta.flow_cell);
                share_bytes.write(meta.class_id, bytes - progress_bytes);
                share_next_bytes.write(meta.class_id, next_bytes - progress_bytes);
                // Of this class, and of no epoch.
                share_mark.write(meta.queue_id, (bit<64>) meta.class_id);
            }
        }
    }
}

#endif
