// Decides when a packet of a paced class leaves, and drops it where its class's limit is reached.
//
// A packet uses the clock and the queue of its class. In the modes that pace each TCP flow by
// itself (flow_pace.p4) it uses those of its flow.
//
// PSPacer's accounting (Takano et al., IPSJ Vol. 47 SIG 7): a packet of length L occupies its
// class for (L + FCS) / rate, counted from start to start; the time between the end of one
// packet and the start of the next is the gap that PSPacer filled with PAUSE frames. The class
// clock is the earliest time at which the class may send again; while it is ahead of now, the
// class owes gap tokens. An idle class keeps no credit.
//
// The clock is kept in 2^-24 ns, so that rounding stays under 10 ppm up to 100 Gbit/s: whole
// nanoseconds in one register, the fraction in another. 64 bits of nanoseconds last 584 years.
#ifndef CLASS_CLOCK_P4
#define CLASS_CLOCK_P4

@name(".PacerIngress.clock_ns")
register<bit<64>>(QUEUE_COUNT) clock_ns;
@name(".PacerIngress.clock_frac")
register<bit<32>>(QUEUE_COUNT) clock_frac;

control ClassClock(inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @name(".PacerIngress.class_accepted")
    counter(CLASS_COUNT, CounterType.packets_and_bytes) class_accepted;
    @name(".PacerIngress.class_limit_drops")
    counter(CLASS_COUNT, CounterType.packets_and_bytes) class_limit_drops;

    IngressTime() time;
    Backlog() backlog;
    Hold() hold;
    DepartureAtTick() departure_at_tick;

    apply {
        if (meta.paced == 1) {
            bit<32> frame_bytes = standard_metadata.packet_length + FCS_BYTES;
            bit<32> backlog_bytes;
            backlog.apply(meta.queue_id, backlog_bytes);
            bit<33> waiting_bytes = (bit<33>) backlog_bytes + (bit<33>) frame_bytes;
            if (waiting_bytes > (bit<33>) meta.limit_bytes) {
                class_limit_drops.count(meta.class_id);
                meta.drop_cause = DROP_CLASS_LIMIT;
            } else {
                bit<64> now_ns;
                time.apply(standard_metadata, now_ns);
                bit<64> cost_q24 =
                    (bit<64>) (frame_bytes + meta.spacing_bytes) * meta.time_per_byte_q24;
                if (meta.ecn_threshold_bytes != 0) {
                    if (waiting_bytes > (bit<33>) meta.ecn_threshold_bytes) {
                        meta.congested = 1;
                    }
                }
                bit<64> departure_ns;
                @atomic {
                    bit<64> start_ns;
                    bit<32> start_frac;
                    clock_ns.read(start_ns, meta.queue_id);
                    clock_frac.read(start_frac, meta.queue_id);

                    if (meta.tick_ns != 0) {
                        // A packet that takes no time leaves at the tick of the packet before it, or
                        // now if that has passed.
                        bit<64> from_ns = cost_q24 == 0 ? 0 : now_ns;
                        departure_at_tick.apply(meta.tick_ns, meta.ticks_per_ns_q64,
                                                meta.tick_lead_ns, from_ns, start_ns,
                                                start_frac, departure_ns);
                        if (departure_ns < now_ns) {
                            departure_ns = now_ns;
                        }
                    } else {
                        // D = max(now, C). Equal whole nanoseconds: C is later by its fraction.
                        if (now_ns > start_ns) {
                            start_ns = now_ns;
                            start_frac = 0;
                        }
                        // A departure within a nanosecond is rounded up, so it is never early.
                        departure_ns = start_ns;
                        if (start_frac != 0) {
                            departure_ns = departure_ns + 1;
                        }
                    }

                    // C' = D + (len + FCS) * time_per_byte, exactly (mode ipg: on-wire bytes; pace of a
                    // flow: payload).
                    bit<32> sum = start_frac + (bit<32>) (cost_q24 & FRACTION_MASK);
                    clock_ns.write(meta.queue_id, start_ns + (cost_q24 >> FRACTION_BITS)
                                                  + (bit<64>) (sum >> FRACTION_BITS));
                    clock_frac.write(meta.queue_id, sum & FRACTION_MASK);
                }
                if (meta.flow_timing == 1) {
                    flow_timed_wait_ns.write(meta.flow_cell, departure_ns - now_ns);
                }
                hold.apply(meta, departure_ns, cost_q24);
            }
        }
        if (meta.drop_cause == 0) {
            class_accepted.count(meta.class_id);
        }
    }
}

#endif
