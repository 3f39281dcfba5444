// Decides whether a held packet leaves or recirculates once more, on a target without a traffic
// manager (stock BMv2). A packet recirculates until its departure time, in its class's order.
//
// Each recirculation is a pass through the whole switch. Time has the resolution of one pass and
// of a microsecond. Each pass goes through an egress queue of 64 packets, which drops silently when
// it is full and so limits how many packets can be held. Held packets are therefore counted here,
// and packets beyond HELD_PACKETS_MAX are dropped and counted. A burst that overflows the queue can
// still push out a held packet; the packets behind it in its class wait LOST_AFTER_NS for it, then
// proceed. The burst allowance is not applied.
//
// A held packet carries its state in preserved metadata, since a recirculated packet has
// neither ingress port nor timestamp:
//   HOLD_NONE    not held
//   HOLD_WANTED  ingress has asked for a hold; egress gives it its place in the class's order
//   HOLD_HELD    recirculating
#ifndef HOLD_BY_RECIRCULATION_P4
#define HOLD_BY_RECIRCULATION_P4

#include "time_of_bmv2.p4"

#define HOLD_NONE 0
#define HOLD_WANTED 1
#define HOLD_HELD 2

#define HELD_PACKETS_MAX 48
#define LOST_AFTER_NS 100000000
#define INSTANCE_TYPE_RECIRCULATED 4

// simple_switch runs egress in 4 threads (port modulo 4), and @atomic does not hold across them.
// Each thread has its own cells, so that no two threads write the same one.
#define EGRESS_THREADS 4
register<bit<32>>(EGRESS_THREADS) held_packets;
register<bit<32>>(QUEUE_COUNT * EGRESS_THREADS) held_bytes;
register<bit<32>>(QUEUE_COUNT * EGRESS_THREADS) next_place;    // next sequence number to give
register<bit<32>>(QUEUE_COUNT * EGRESS_THREADS) next_to_leave;

control Backlog(in bit<32> queue_id, out bit<32> backlog_bytes) {
    apply {
        bit<32> bytes;
        held_bytes.read(backlog_bytes, queue_id * EGRESS_THREADS);
        held_bytes.read(bytes, queue_id * EGRESS_THREADS + 1);
        backlog_bytes = backlog_bytes + bytes;
        held_bytes.read(bytes, queue_id * EGRESS_THREADS + 2);
        backlog_bytes = backlog_bytes + bytes;
        held_bytes.read(bytes, queue_id * EGRESS_THREADS + 3);
        backlog_bytes = backlog_bytes + bytes;
    }
}

control Hold(inout metadata_t meta, in bit<64> departure_ns, in bit<64> cost_q24) {
    apply {
        meta.hold.state = HOLD_WANTED;
        meta.hold.queue_id = meta.queue_id;
        meta.hold.departure_ns = departure_ns;
    }
}

// First in ingress: a held packet returns to its egress port and skips the tables.
control HeldIngress(inout metadata_t meta, inout standard_metadata_t standard_metadata,
                    out bit<1> recirculated) {
    apply {
        recirculated = 0;
        if (standard_metadata.instance_type == INSTANCE_TYPE_RECIRCULATED) {
            recirculated = 1;
            standard_metadata.egress_spec = meta.hold.egress_port;
        }
    }
}

// Last in egress: the packet leaves or recirculates.
control HeldEgress(inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @name(".PacerEgress.hold_drops")
    counter(1, CounterType.packets_and_bytes) hold_drops;

    apply {
        if (meta.hold.state != HOLD_NONE && standard_metadata.egress_port != CPU_PORT) {
            bit<32> frame_bytes = standard_metadata.packet_length + FCS_BYTES;
            bit<32> packets;
            bit<32> bytes;
            bit<1> refused = 0;
            bit<32> thread = (bit<32>) (standard_metadata.egress_port & (EGRESS_THREADS - 1));
            bit<32> cell = meta.hold.queue_id * EGRESS_THREADS + thread;
            @atomic {
                held_packets.read(packets, thread);
                held_bytes.read(bytes, cell);
                if (meta.hold.state == HOLD_WANTED) {
                    if (packets >= HELD_PACKETS_MAX) {
                        refused = 1;
                    } else {
                        next_place.read(meta.hold.sequence, cell);
                        next_place.write(cell, meta.hold.sequence + 1);
                        held_packets.write(thread, packets + 1);
                        held_bytes.write(cell, bytes + frame_bytes);
                        meta.hold.egress_port = standard_metadata.egress_port;
                        meta.hold.state = HOLD_HELD;
                        packets = packets + 1;
                        bytes = bytes + frame_bytes;
                    }
                }
                if (refused == 0) {
                    bit<32> leaves;
                    bit<64> now_ns =
                        (bit<64>) standard_metadata.egress_global_timestamp * 1000;
                    next_to_leave.read(leaves, cell);
                    // How many packets of the class are ahead of this one: 0 when it is next,
                    // negative (modulo 2^32) when it was itself taken for lost.
                    bit<32> before = meta.hold.sequence - leaves;
                    if (before[31:31] == 1) {
                        meta.hold.state = HOLD_NONE;
                    } else if (now_ns >= meta.hold.departure_ns
                               && (before == 0
                                   || now_ns >= meta.hold.departure_ns + LOST_AFTER_NS)) {
                        next_to_leave.write(cell, meta.hold.sequence + 1);
                        held_packets.write(thread, packets |-| (before + 1));
                        held_bytes.write(cell, bytes |-| (frame_bytes * (before + 1)));
                        meta.hold.state = HOLD_NONE;
                    }
                }
            }
            if (refused == 1) {
                hold_drops.count(0);
                mark_to_drop(standard_metadata);
            } else if (meta.hold.state == HOLD_HELD) {
                recirculate_preserving_field_list(1);
            }
        }
    }
}

#endif
