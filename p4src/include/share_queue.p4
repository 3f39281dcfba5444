// The queue and the clock of a packet whose class divides its rate (rate_sharing.p4).
#ifndef SHARE_QUEUE_P4
#define SHARE_QUEUE_P4

#include "share_counts.p4"

#define SHARE_WAIT_NS_MAX (64w1 << SHARE_EPOCH_BITS)

register<bit<64>>(CLASS_COUNT) share_scheduled_ns;  // the end of all departures so far

// What is known of the packet's queue before the packet.
struct share_packet_t {
    bit<64> now_ns;
    bit<64> mark;          // of this epoch and class
    bit<64> known_mark;    // of the packet's flow, if that is followed
    bit<1> active;         // its flow is active, or has no part of its own
    bit<1> others;         // packets of no followed flow are active
    bit<64> due_ns;        // when its queue's clock lets it leave
    bit<64> scheduled_ns;  // the end of all departures that the class has given
}

// Sets the packet's queue. The time of a flow that becomes active begins behind all departures that
// the class has given.
control ShareQueue(inout metadata_t meta, in bit<1> syn, in bit<64> now_ns,
                   out share_packet_t packet) {
    apply {
        packet.now_ns = now_ns;
        packet.mark = (((now_ns >> SHARE_EPOCH_BITS) + 2) << SHARE_CLASS_BITS)
                      | (bit<64>) meta.class_id;
        bit<64> last_mark = packet.mark - (64w1 << SHARE_CLASS_BITS);
        bit<64> others_mark;
        share_mark.read(others_mark, meta.class_id);
        packet.others = (bit<1>) (others_mark == packet.mark || others_mark == last_mark);
        packet.known_mark = 0;
        packet.active = 0;
        if (meta.flow_known == 1) {
            share_mark.read(packet.known_mark, CLASS_COUNT + meta.flow_cell);
            packet.active =
                (bit<1>) (packet.known_mark == packet.mark || packet.known_mark == last_mark);
            meta.shares_as_flow =
                (bit<1>) (packet.active == 1 || syn == 1 || meta.payload_bytes != 0);
        }
        if (meta.shares_as_flow == 1) {
            meta.queue_id = CLASS_COUNT + meta.flow_cell;
        } else {
            packet.active = packet.others | meta.flow_known;
        }

        bit<32> due_frac;
        share_scheduled_ns.read(packet.scheduled_ns, meta.class_id);
        clock_ns.read(packet.due_ns, meta.queue_id);
        clock_frac.read(due_frac, meta.queue_id);
        meta.share_waits = (bit<1>) (packet.due_ns >= now_ns
                                     && (packet.due_ns != now_ns || due_frac != 0));
        if (packet.active == 0) {
            // class_clock.p4 gives the departure, so a SYN is let pass before.
            meta.share_from_ns = packet.scheduled_ns;
            if (packet.due_ns < packet.scheduled_ns && syn == 0) {
                packet.due_ns = packet.scheduled_ns;
                due_frac = 0;
                clock_ns.write(meta.queue_id, packet.due_ns);
                clock_frac.write(meta.queue_id, 0);
            }
        }
        if (due_frac != 0) {
            packet.due_ns = packet.due_ns + 1;
        }
        if (packet.due_ns < now_ns) {
            packet.due_ns = now_ns;
        }
        if (packet.due_ns - now_ns > SHARE_WAIT_NS_MAX) {
            meta.limit_bytes = 0;
        }
    }
}

#endif
