// The flows of a class that divides its rate (rate_sharing.p4) and are behind the others.
//
// Catching up: a flow that waits for its clock, and is behind the active ones' mean by more than 1/256
// and four segments, has twice the others' rate until it has reached the mean. Progress is what was
// acknowledged, and the part of what is in flight by which that is more than a flow at the others'
// rate sends until it is acknowledged.
#ifndef CATCHING_UP_P4
#define CATCHING_UP_P4

#include "share_counts.p4"
#include "share_queue.p4"

// Progress is not counted beyond this, so that products with it fit 64 bits.
#define SHARE_PROGRESS_BITS 44
#define SHARE_SLACK_BITS 8
#define SHARE_SLACK_BYTES (4 * SEGMENT_BYTES)

register<bit<64>>(TRACKED_FLOWS) share_progress_bytes;
register<bit<32>>(TRACKED_FLOWS) share_acknowledged;  // the number that progress is counted up to
// Until when packets of the flow count as those of one that catches up, or from when on they are; 0:
// it does not catch up.
register<bit<64>>(TRACKED_FLOWS) share_extra_ns;
register<bit<1>>(TRACKED_FLOWS) share_caught_up;  // it still counts, but no more than others get

// Counts what was acknowledged of the packet's flow since its last packet.
control ShareProgress(inout metadata_t meta, in share_packet_t packet, in bit<32> acknowledged,
                      inout share_counts_t counts, out bit<64> progress_bytes) {
    apply {
        bit<32> counted;
        share_progress_bytes.read(progress_bytes, meta.flow_cell);
        share_acknowledged.read(counted, meta.flow_cell);
        if (meta.flow_starts == 1
            || packet.known_mark & SHARE_CLASS_MASK != (bit<64>) meta.class_id) {
            if (packet.active == 1) {
                counts.bytes = counts.bytes - progress_bytes;
                if (packet.known_mark == packet.mark) {
                    counts.next_bytes = counts.next_bytes - progress_bytes;
                }
            }
            progress_bytes = 0;
            counted = acknowledged;
        }
        bit<64> step_bytes = (bit<64>) (acknowledged - counted);
        if (step_bytes[31:30] == 0 && progress_bytes[63:SHARE_PROGRESS_BITS] == 0) {
            progress_bytes = progress_bytes + step_bytes;
            if (packet.active == 1) {
                counts.bytes = counts.bytes + step_bytes;
                if (packet.known_mark == packet.mark) {
                    counts.next_bytes = counts.next_bytes + step_bytes;
                }
            }
        }
        share_acknowledged.write(meta.flow_cell, acknowledged);
        share_progress_bytes.write(meta.flow_cell, progress_bytes);
    }
}

// Sets `meta.catches_up`. `part_q24`: bytes per ns that one of the active flows gets.
control CatchingUp(inout metadata_t meta, in share_packet_t packet, in bit<64> part_q24,
                   inout share_counts_t counts) {
    ShareProgress() progress;

    apply {
        bit<64> progress_bytes;
        bit<64> extra_ns;
        bit<32> acknowledged;
        flow_acknowledged.read(acknowledged, meta.flow_cell);
        progress.apply(meta, packet, acknowledged, counts, progress_bytes);
        share_extra_ns.read(extra_ns, meta.flow_cell);
        if (packet.active == 0) {
            extra_ns = 0;
            counts.bytes = counts.bytes + progress_bytes;
        }
        if (packet.known_mark != packet.mark) {
            counts.next_flows = counts.next_flows + 1;
            counts.next_extras = counts.next_extras + (bit<32>) (bit<1>) (extra_ns != 0);
            counts.next_bytes = counts.next_bytes + progress_bytes;
        }

        bit<32> next;
        bit<64> base_rtt_ns;
        flow_next.read(next, meta.flow_cell);
        flow_base_rtt_ns.read(base_rtt_ns, meta.flow_cell);
        bit<32> in_flight_bytes = next - acknowledged;
        // A packet that waits longer is dropped; 35 bits of time, 28 of the rate.
        bit<64> until_ns = packet.due_ns - packet.now_ns;
        if (until_ns > SHARE_WAIT_NS_MAX) {
            until_ns = SHARE_WAIT_NS_MAX;
        }
        bit<64> place_bytes =
            progress_bytes + ((bit<64>) in_flight_bytes
                              |-| (((until_ns + base_rtt_ns) * part_q24) >> FRACTION_BITS));
        bit<1> caught_up = 0;
        if (extra_ns == 0) {
            place_bytes = place_bytes + (progress_bytes >> SHARE_SLACK_BITS) + SHARE_SLACK_BYTES;
        } else {
            share_caught_up.read(caught_up, meta.flow_cell);
        }
        if (packet.active == 0 || meta.share_waits == 0 || in_flight_bytes[31:30] != 0
            || place_bytes * (bit<64>) counts.flows >= counts.bytes) {
            caught_up = 1;
        } else if (extra_ns == 0) {
            extra_ns = packet.scheduled_ns > packet.due_ns ? packet.scheduled_ns : packet.due_ns;
            counts.extras = counts.extras + 1;
            counts.next_extras = counts.next_extras + 1;
        }
        if (extra_ns != 0 && caught_up == 0) {
            meta.catches_up = (bit<1>) (packet.due_ns >= extra_ns);
        } else if (extra_ns != 0 && (packet.now_ns >= extra_ns || packet.due_ns < extra_ns)) {
            // No packet of twice the rate is left, or there never was one.
            extra_ns = 0;
            counts.extras = counts.extras - 1;
            counts.next_extras = counts.next_extras - 1;
        }
        share_extra_ns.write(meta.flow_cell, extra_ns);
        share_caught_up.write(meta.flow_cell, caught_up);
    }
}

#endif
