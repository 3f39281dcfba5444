// Divides the rate of a class among its active flows (mode shared), so that parallel streams of one
// transfer end at the same time.
//
// Each followed TCP flow of the class has a clock and a queue of its own. A packet takes
// W * time_per_byte for each of its bytes, where W is the number of active flows, and of those that
// catch up once more; a flow that catches up takes half of that. So the flows' rates together are the
// class's, without a division.
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

#include "catching_up.p4"
#include "share_counts.p4"
#include "share_queue.p4"

// Longest time per byte (17 ms), so that the time of a packet fits 64 bits.
#define SHARE_TIME_PER_BYTE_Q24_MAX (64w1 << 48)

// The bytes per ns of one of `parts` parts of a class's rate; at least 2^-24.
control SharePart(in bit<64> bytes_per_ns_q24, in bit<32> parts, out bit<64> part_q24) {
    TimePerByte() time_per_byte;

    apply {
        time_per_byte.apply(bytes_per_ns_q24, parts, part_q24);
        part_q24 = part_q24 >> FRACTION_BITS;
        if (part_q24 == 0) {
            part_q24 = 1;
        }
    }
}

// Sets the packet's queue and its time per byte. `syn`: of a followed flow.
control RateSharing(inout metadata_t meta, in bit<1> syn,
                    in standard_metadata_t standard_metadata) {
    IngressTime() time;
    ShareQueue() queue;
    ReadShareCounts() read_counts;
    SharePart() part;
    SharePart() part_of_active;
    CatchingUp() catching_up;
    WriteShareCounts() write_counts;

    apply {
        share_packet_t packet;
        share_counts_t counts;
        bit<64> now_ns;
        time.apply(standard_metadata, now_ns);
        queue.apply(meta, syn, now_ns, packet);
        read_counts.apply(meta.class_id, packet.mark >> SHARE_CLASS_BITS, counts);
        if (meta.shares_as_flow == 1 && packet.active == 0) {
            counts.flows = counts.flows + 1;
        } else if (packet.active == 0) {
            packet.others = 1;
        }

        bit<64> part_q24;
        bit<32> parts = counts.flows + counts.extras + (bit<32>) packet.others;
        if (parts == 0) {
            // An acknowledgement alone.
            parts = 1;
        }
        part.apply(meta.bytes_per_ns_q24, parts, part_q24);
        // The windows of the others stay as large while some catch up, so that they can go on when
        // these have.
        bit<64> window_part_q24 = part_q24;
        if (meta.clamps_windows == 1 && counts.extras != 0) {
            part_of_active.apply(meta.bytes_per_ns_q24, parts - counts.extras, window_part_q24);
        }

        if (meta.shares_as_flow == 1) {
            catching_up.apply(meta, packet, part_q24, counts);
        }
        if (meta.shares_as_flow == 1 || meta.flow_known == 0) {
            share_mark.write(meta.queue_id, packet.mark);
        }
        write_counts.apply(meta.class_id, counts);

        parts = counts.flows + counts.extras + (bit<32>) packet.others;
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

// Takes a flow that has ended from the counts of its class.
control ShareEnd(inout metadata_t meta) {
    apply {
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

// A packet that was given a departure time: notes the end of its time, and the end of its flow.
control SharedDeparture(inout metadata_t meta) {
    ShareEnd() end;

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
                end.apply(meta);
            }
        }
    }
}

#endif
