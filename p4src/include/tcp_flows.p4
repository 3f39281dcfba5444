// Follows TCP flows: decides which flow a segment belongs to or acknowledges, and estimates the
// flow's bytes in flight and round-trip time from passing segments.
//
// A flow is one direction of a connection: its sender's segments and their acknowledgements. Only
// flows of classes that need it are followed. For any other class, only TCP packets have a cost: one
// register read until the first flow is followed, and one look-up from then on, because an
// acknowledgement alone does not tell whether its flow is followed.
//
// A flow is identified by its addresses, ports and VLAN; the table has a cell for each hash of them.
// If another flow has the cell, this is a collision. It is counted, and the flow is not followed
// while the other lives. A cell is free when its flow has sent nothing for FLOW_LIFE_NS. After a SYN
// that time is FLOW_OPENING_NS, so that a SYN flood does not fill the table; after FIN or RST it is
// FLOW_CLOSED_NS.
//
// Bytes in flight: highest sequence number sent less highest acknowledged (modulo 2^32, RFC 9293).
//
// Round-trip time: one segment at a time is timed, from its arrival here to the first
// acknowledgement that covers it, beginning with the SYN. Samples that a retransmission makes
// ambiguous are discarded (Karn and Partridge, SIGCOMM 1987). The time in the pacer's own queue is
// part of the round-trip time, as it is for the sender; the base round-trip time, which is the
// path's, is without it. There is one sample a round trip, so the smoothed value moves by half. A
// sample counts as at most four times that value, because missed acknowledgements make a sample
// that is far too large.
//
// Window: the most bytes in flight in this round trip, or the previous value less an eighth for each
// round trip since, so that a sender that pauses keeps its window. No sender has more than 2^30
// bytes in flight (RFC 7323, section 2.3). If there seem to be more, the acknowledgements take
// another path, and the flow's state is unknown.
//
// A segment is a stray if it is more than two windows and 64 KiB ahead of the flow, or more than
// 2^30 bytes behind. It does not update the flow, unless the next segment continues where it ended:
// then the segments between were not seen here, and the flow starts again.
#ifndef TCP_FLOWS_P4
#define TCP_FLOWS_P4

#define FLOW_LIFE_NS 60000000000
#define FLOW_OPENING_NS 10000000000
#define FLOW_CLOSED_NS 2000000000

// Longest round-trip time that is accepted (17 s): products with it must fit 64 bits.
#define RTT_NS_MAX 0x3FFFFFFFF
#define RTT_GROWTH_BITS 2

// A segment is a stray beyond two windows and STRAY_AHEAD_BYTES, up to STRAY_BEHIND (modulo 2^32).
#define STRAY_AHEAD_BYTES 65536
#define STRAY_BEHIND 0xC0000000

// Indices of the counter `flow_events`.
#define FLOW_STARTED 0
#define FLOW_COLLISION 1
#define FLOW_RETRANSMISSION 2
#define FLOW_EVENTS 3

// 0 until the first flow is followed.
register<bit<1>>(1) flows_followed;

register<bit<64>>(TRACKED_FLOWS) flow_identity;     // see FLOW_CELL
register<bit<128>>(TRACKED_FLOWS) flow_sender;
register<bit<128>>(TRACKED_FLOWS) flow_receiver;
register<bit<64>>(TRACKED_FLOWS) flow_expires_ns;   // 0: never used
register<bit<32>>(TRACKED_FLOWS) flow_next;         // one past the highest sequence number sent
register<bit<32>>(TRACKED_FLOWS) flow_acknowledged;
register<bit<32>>(TRACKED_FLOWS) flow_timed;        // the acknowledgement that ends the sample
register<bit<64>>(TRACKED_FLOWS) flow_timed_at_ns;  // 0: nothing is timed
register<bit<64>>(TRACKED_FLOWS) flow_timed_wait_ns;  // how long the timed segment waits here
register<bit<64>>(TRACKED_FLOWS) flow_rtt_ns;       // smoothed; 0: not known
register<bit<64>>(TRACKED_FLOWS) flow_base_rtt_ns;  // smallest, less time here; 0: not known
register<bit<32>>(TRACKED_FLOWS) flow_peak_bytes;   // most bytes in flight in this round trip
register<bit<32>>(TRACKED_FLOWS) flow_last_peak_bytes;  // in earlier ones, an eighth less each
register<bit<32>>(TRACKED_FLOWS) flow_stray;        // where the last stray segment ended
register<bit<1>>(TRACKED_FLOWS) flow_has_lost;      // a segment was sent again

// Computes the cell of a flow and its identity, which holds all but the addresses: if two flows
// between the same addresses have equal ports and CRC-32, they have the same VLAN. This is a macro
// because a control would copy the addresses of every packet.
#define FLOW_CELL(vlan_id, sender, receiver, sender_port, receiver_port, cell, identity) \
    hash(identity, HashAlgorithm.crc32, 64w0, { (bit<16>) vlan_id, sender, receiver }, \
         64w1 << 32); \
    identity = sender_port ++ receiver_port ++ identity[31:0]; \
    hash(cell, HashAlgorithm.crc16, 32w0, { identity }, 32w1 << TRACKED_FLOWS_BITS);

// Updates the flow that the packet belongs to. If the flow is followed, it sets `meta.flow_known`
// and the metadata that describe the flow.
control FlowOfSender(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    @name(".PacerIngress.flow_events")
    counter(FLOW_EVENTS, CounterType.packets) flow_events;

    // Latest values of a class's flows, for the control plane.
    @name(".PacerIngress.class_rtt_ns")
    register<bit<64>>(CLASS_COUNT) class_rtt_ns;
    @name(".PacerIngress.class_in_flight_bytes")
    register<bit<32>>(CLASS_COUNT) class_in_flight_bytes;

    IngressTime() time;
    FirstFlight() first_flight;

    apply {
        bit<64> identity;
        FLOW_CELL(meta.flow.vlan_id, meta.flow.src_addr, meta.flow.dst_addr,
                  meta.flow.src_port, meta.flow.dst_port, meta.flow_cell, identity)
        bit<32> cell = meta.flow_cell;
        bit<64> now_ns;
        time.apply(standard_metadata, now_ns);

        bit<32> headers_bytes = (bit<32>) hdr.tcp.header_words * 4;
        bit<32> payload_bytes;
        if (hdr.ipv4.isValid()) {
            payload_bytes = (bit<32>) hdr.ipv4.total_length |-| (headers_bytes + 20);
        } else {
            payload_bytes = (bit<32>) hdr.ipv6.payload_length |-| headers_bytes;
        }
        bit<32> taken = payload_bytes + (bit<32>) hdr.tcp.syn + (bit<32>) hdr.tcp.fin;
        bit<32> end = hdr.tcp.sequence + taken;

        bit<64> known;
        bit<128> sender;
        bit<128> receiver;
        bit<64> expires_ns;
        bit<32> next;
        flow_identity.read(known, cell);
        flow_sender.read(sender, cell);
        flow_receiver.read(receiver, cell);
        flow_expires_ns.read(expires_ns, cell);
        flow_next.read(next, cell);

        bit<1> starts = 0;
        bit<1> strays = 0;
        meta.payload_bytes = payload_bytes;
        if (payload_bytes > standard_metadata.packet_length) {
            // The length field is wrong: the packet does not update a flow.
        } else if (expires_ns <= now_ns) {
            starts = 1;
        } else if (known == identity && sender == meta.flow.src_addr
                   && receiver == meta.flow.dst_addr) {
            meta.flow_known = 1;
            // A SYN that is not a retransmission starts another connection of the same
            // addresses and ports.
            bit<32> ahead_bytes = hdr.tcp.sequence - next;
            if (hdr.tcp.syn == 1 && end != next) {
                starts = 1;
            } else if (taken != 0 && ahead_bytes > STRAY_AHEAD_BYTES
                       && ahead_bytes < STRAY_BEHIND) {
                bit<32> window_bytes;
                bit<32> last_peak_bytes;
                flow_peak_bytes.read(window_bytes, cell);
                flow_last_peak_bytes.read(last_peak_bytes, cell);
                if (last_peak_bytes > window_bytes) {
                    window_bytes = last_peak_bytes;
                }
                if ((ahead_bytes - STRAY_AHEAD_BYTES) >> 1 > window_bytes) {
                    bit<32> stray;
                    flow_stray.read(stray, cell);
                    flow_stray.write(cell, end);
                    if (stray == hdr.tcp.sequence) {
                        starts = 1;
                    } else {
                        strays = 1;
                    }
                }
            }
        } else {
            flow_events.count(FLOW_COLLISION);
        }

        if (starts == 1) {
            flow_events.count(FLOW_STARTED);
            flows_followed.write(0, 1);
            meta.flow_known = 1;
            flow_identity.write(cell, identity);
            flow_sender.write(cell, meta.flow.src_addr);
            flow_receiver.write(cell, meta.flow.dst_addr);
            flow_next.write(cell, end);
            flow_acknowledged.write(cell, hdr.tcp.sequence);
            flow_timed.write(cell, end);
            flow_timed_at_ns.write(cell, taken == 0 ? 0 : now_ns);
            meta.flow_timing = (bit<1>) (taken != 0);
            flow_rtt_ns.write(cell, 0);
            flow_base_rtt_ns.write(cell, 0);
            flow_peak_bytes.write(cell, taken);
            flow_last_peak_bytes.write(cell, 0);
            flow_stray.write(cell, end);
            flow_has_lost.write(cell, 0);
            flow_slot.write(cell, 0);
            meta.window_bytes = taken;
            meta.flow_starts = 1;
        } else if (meta.flow_known == 1) {
            bit<64> timed_at_ns;
            bit<32> acknowledged;
            bit<32> peak_bytes;
            bit<32> last_peak_bytes;
            flow_timed_at_ns.read(timed_at_ns, cell);
            if (taken != 0 && strays == 0) {
                bit<32> before = hdr.tcp.sequence - next;  // negative: a retransmission
                bit<32> beyond = end - next;
                if (before[31:31] == 1) {
                    flow_events.count(FLOW_RETRANSMISSION);
                    meta.flow_lost = 1;
                    flow_has_lost.write(cell, 1);
                    timed_at_ns = 0;
                } else if (timed_at_ns == 0) {
                    timed_at_ns = now_ns;
                    flow_timed.write(cell, end);
                    meta.flow_timing = 1;
                }
                flow_timed_at_ns.write(cell, timed_at_ns);
                if (beyond[31:31] == 0) {
                    next = end;
                    flow_next.write(cell, next);
                }
            }
            flow_acknowledged.read(acknowledged, cell);
            flow_peak_bytes.read(peak_bytes, cell);
            flow_last_peak_bytes.read(last_peak_bytes, cell);
            bit<32> in_flight_bytes = next - acknowledged;
            if (in_flight_bytes > peak_bytes) {
                peak_bytes = in_flight_bytes;
                flow_peak_bytes.write(cell, peak_bytes);
            }
            meta.window_bytes = peak_bytes > last_peak_bytes ? peak_bytes : last_peak_bytes;
            flow_rtt_ns.read(meta.rtt_ns, cell);
            if (in_flight_bytes[31:30] != 0) {
                meta.rtt_ns = 0;
            }
            class_rtt_ns.write(meta.class_id, meta.rtt_ns);
            class_in_flight_bytes.write(meta.class_id, in_flight_bytes);
        }
        if (meta.flow_known == 1) {
            if (meta.flow_timing == 1) {
                // class_clock.p4 adds the time for which it is held.
                flow_timed_wait_ns.write(cell, 0);
            }
            first_flight.apply(meta, hdr.tcp.syn, end, payload_bytes,
                               standard_metadata.packet_length + FCS_BYTES, now_ns);
            if (hdr.tcp.fin == 1 || hdr.tcp.rst == 1) {
                meta.flow_closed = 1;
                flow_expires_ns.write(cell, now_ns + FLOW_CLOSED_NS);
            } else if (hdr.tcp.syn == 1) {
                flow_expires_ns.write(cell, now_ns + FLOW_OPENING_NS);
            } else if (taken != 0 || starts == 1 || expires_ns - now_ns > FLOW_CLOSED_NS) {
                flow_expires_ns.write(cell, now_ns + FLOW_LIFE_NS);
            } else {
                // A last acknowledgement, after both ends' FIN, does not open it again.
                meta.flow_closed = 1;
            }
        }
    }
}

// Updates the flow that the packet acknowledges. Sets `meta.answered` if that flow is followed.
// Sets `meta.answered_cell` if it is followed or the packet is a SYN, and
// `meta.answered_elsewhere` if another live flow has the cell.
control FlowOfReceiver(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    IngressTime() time;
    FirstFlightAnswered() first_flight_answered;
    PathRate() path_rate;

    apply {
        bit<64> known;
        bit<128> sender;
        bit<128> receiver;
        bit<64> expires_ns;
        bit<64> now_ns;
        FLOW_CELL(meta.flow.vlan_id, meta.flow.dst_addr, meta.flow.src_addr,
                  meta.flow.dst_port, meta.flow.src_port, meta.answered_cell,
                  meta.answered_identity)
        bit<32> cell = meta.answered_cell;
        flow_identity.read(known, cell);
        flow_sender.read(sender, cell);
        flow_receiver.read(receiver, cell);
        flow_expires_ns.read(expires_ns, cell);
        time.apply(standard_metadata, now_ns);
        if (expires_ns > now_ns && (known != meta.answered_identity
                                    || sender != meta.flow.dst_addr
                                    || receiver != meta.flow.src_addr)) {
            meta.answered_elsewhere = 1;
        } else if (hdr.tcp.ack == 1 && expires_ns > now_ns) {
            meta.answered = 1;
            bit<32> next;
            bit<32> acknowledged;
            flow_next.read(next, cell);
            flow_acknowledged.read(acknowledged, cell);
            bit<32> advance = hdr.tcp.acknowledgement - acknowledged;
            bit<32> in_flight_bytes = next - hdr.tcp.acknowledgement;
            // It is neither old nor beyond what was sent.
            if (advance != 0 && advance[31:31] == 0 && in_flight_bytes[31:31] == 0) {
                flow_acknowledged.write(cell, hdr.tcp.acknowledgement);
                first_flight_answered.apply(cell, hdr.tcp.acknowledgement, now_ns);
                if (hdr.tcp.ece == 1) {
                    flow_path_below.write(cell, 0);
                }
                bit<64> timed_at_ns;
                bit<32> timed;
                flow_timed_at_ns.read(timed_at_ns, cell);
                flow_timed.read(timed, cell);
                bit<32> covered = hdr.tcp.acknowledgement - timed;
                if (timed_at_ns != 0 && covered[31:31] == 0) {
                    bit<64> sample_ns = now_ns |-| timed_at_ns;
                    bit<32> peak_bytes;
                    bit<32> last_peak_bytes;
                    if (sample_ns <= RTT_NS_MAX) {
                        bit<64> rtt_ns;
                        bit<64> base_rtt_ns;
                        bit<64> wait_ns;
                        flow_rtt_ns.read(rtt_ns, cell);
                        if (rtt_ns == 0) {
                            rtt_ns = sample_ns;
                        } else if (sample_ns > rtt_ns << RTT_GROWTH_BITS) {
                            rtt_ns = (rtt_ns + (rtt_ns << RTT_GROWTH_BITS)) >> 1;
                        } else {
                            rtt_ns = (rtt_ns + sample_ns) >> 1;
                        }
                        flow_rtt_ns.write(cell, rtt_ns);
                        flow_timed_wait_ns.read(wait_ns, cell);
                        sample_ns = sample_ns |-| wait_ns;
                        flow_base_rtt_ns.read(base_rtt_ns, cell);
                        if (base_rtt_ns == 0 || sample_ns < base_rtt_ns) {
                            base_rtt_ns = sample_ns;
                            flow_base_rtt_ns.write(cell, sample_ns);
                        }
                        path_rate.apply(cell, sample_ns, base_rtt_ns);
                    }
                    flow_timed_at_ns.write(cell, 0);
                    // A round trip has ended.
                    flow_peak_bytes.read(peak_bytes, cell);
                    flow_last_peak_bytes.read(last_peak_bytes, cell);
                    if (peak_bytes |-| last_peak_bytes < last_peak_bytes >> 2) {
                        flow_path_below.write(cell, 0);
                    }
                    last_peak_bytes = last_peak_bytes - (last_peak_bytes >> 3);
                    if (peak_bytes > last_peak_bytes) {
                        last_peak_bytes = peak_bytes;
                    }
                    flow_last_peak_bytes.write(cell, last_peak_bytes);
                    flow_peak_bytes.write(cell, in_flight_bytes);
                }
            }
        }
    }
}

#endif
