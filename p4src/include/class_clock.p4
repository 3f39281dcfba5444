// Classes and their clocks: when may this packet leave?
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

control ClassClock(inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @name(".PacerIngress.clock_ns")
    register<bit<64>>(CLASS_COUNT) clock_ns;
    @name(".PacerIngress.clock_frac")
    register<bit<32>>(CLASS_COUNT) clock_frac;

    @name(".PacerIngress.class_accepted")
    counter(CLASS_COUNT, CounterType.packets_and_bytes) class_accepted;
    @name(".PacerIngress.class_limit_drops")
    counter(CLASS_COUNT, CounterType.packets_and_bytes) class_limit_drops;

    IngressTime() time;
    Backlog() backlog;
    Hold() hold;

    @name(".PacerIngress.unpaced")
    action unpaced() { }

    // time_per_byte_q24: 8e9 / rate_bps in 2^-24 ns. limit_bytes: most the class may queue,
    // frames with FCS. allowance_ns: how much lost time the class may make up after a stall.
    @name(".PacerIngress.paced_static")
    action paced_static(bit<64> time_per_byte_q24, bit<32> limit_bytes, bit<64> allowance_ns) {
        meta.paced = 1;
        meta.time_per_byte_q24 = time_per_byte_q24;
        meta.limit_bytes = limit_bytes;
        meta.allowance_ns = allowance_ns;
    }

    // As paced_static, and packets that find more than ecn_threshold_bytes waiting, themselves
    // included, are marked (congestion_marking.p4).
    @name(".PacerIngress.paced_static_controlled")
    action paced_static_controlled(bit<64> time_per_byte_q24, bit<32> limit_bytes,
                                   bit<64> allowance_ns, bit<32> ecn_threshold_bytes) {
        meta.paced = 1;
        meta.time_per_byte_q24 = time_per_byte_q24;
        meta.limit_bytes = limit_bytes;
        meta.allowance_ns = allowance_ns;
        meta.ecn_threshold_bytes = ecn_threshold_bytes;
    }

    // A fixed gap behind each packet: from the end of its FCS to the preamble of the next one,
    // gap_bytes on a line whose byte takes time_per_byte_q24. The frame's own 12 bytes of
    // inter-frame gap are part of it, as in Data Reservoir's IPG tuning (1023 bytes leave
    // 568 of 941 Mbit/s of TCP on gigabit Ethernet).
    @name(".PacerIngress.paced_ipg")
    action paced_ipg(bit<64> time_per_byte_q24, bit<32> gap_bytes, bit<32> limit_bytes,
                     bit<64> allowance_ns, bit<32> ecn_threshold_bytes) {
        meta.paced = 1;
        meta.time_per_byte_q24 = time_per_byte_q24;
        meta.spacing_bytes = PREAMBLE_BYTES + gap_bytes;
        meta.limit_bytes = limit_bytes;
        meta.allowance_ns = allowance_ns;
        meta.ecn_threshold_bytes = ecn_threshold_bytes;
    }

    @name(".PacerIngress.classes")
    table classes {
        key = {
            meta.class_id: exact @name("class_id");
        }
        actions = { unpaced; paced_static; paced_static_controlled; paced_ipg; }
        const default_action = unpaced;
        size = CLASS_COUNT;
    }

    apply {
        classes.apply();
        if (meta.paced == 1) {
            bit<32> frame_bytes = standard_metadata.packet_length + FCS_BYTES;
            bit<32> backlog_bytes;
            backlog.apply(meta.class_id, backlog_bytes);
            bit<33> waiting_bytes = (bit<33>) backlog_bytes + (bit<33>) frame_bytes;
            if (waiting_bytes > (bit<33>) meta.limit_bytes) {
                class_limit_drops.count(meta.class_id);
                meta.drop_cause = DROP_CLASS_LIMIT;
            } else {
                bit<64> now_ns;
                time.apply(standard_metadata, now_ns);
                bit<64> cost_q24 =
                    (bit<64>) (frame_bytes + meta.spacing_bytes) * meta.time_per_byte_q24;
                if (meta.ecn_threshold_bytes != 0
                    && waiting_bytes > (bit<33>) meta.ecn_threshold_bytes) {
                    meta.congested = 1;
                }
                bit<64> departure_ns;
                @atomic {
                    bit<64> start_ns;
                    bit<32> start_frac;
                    clock_ns.read(start_ns, meta.class_id);
                    clock_frac.read(start_frac, meta.class_id);

                    // D = max(now, C). Equal whole nanoseconds: C is later by its fraction.
                    if (now_ns > start_ns) {
                        start_ns = now_ns;
                        start_frac = 0;
                    }
                    // Never early: a departure within a nanosecond is rounded up.
                    departure_ns = start_ns;
                    if (start_frac != 0) {
                        departure_ns = departure_ns + 1;
                    }

                    // C' = D + (len + FCS) * time_per_byte, exactly (of mode ipg: on-wire bytes).
                    bit<32> sum = start_frac + (bit<32>) (cost_q24 & FRACTION_MASK);
                    clock_ns.write(meta.class_id, start_ns + (cost_q24 >> FRACTION_BITS)
                                                  + (bit<64>) (sum >> FRACTION_BITS));
                    clock_frac.write(meta.class_id, sum & FRACTION_MASK);
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
