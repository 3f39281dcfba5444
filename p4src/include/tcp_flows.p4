// TCP flows as an edge switch sees them in passing: bytes in flight and round-trip time.
//
// A flow is one direction of a connection: what its sender sends, and what comes back. Only
// flows of classes that need it are followed. A packet of any other class pays for it only if it is
// TCP: with one register read until the first such flow has come, and one look-up from then on (an
// acknowledgement does not say otherwise what it acknowledges).
//
// A flow is known by its addresses, ports and VLAN; the table has a cell for each hash of them. A
// packet whose flow is not the one in its cell is a collision, counted, and its flow is not followed
// as long as the other lives. A cell whose flow has sent nothing for FLOW_LIFE_NS (after a SYN
// FLOW_OPENING_NS, so that many of them do not take the table; after FIN or RST FLOW_CLOSED_NS) is
// free.
//
// In flight: highest sequence number sent less highest acknowledged (modulo 2^32, RFC 9293).
// Round-trip time: one segment at a time is timed, from its arrival here to the first
// acknowledgement that covers it, SYN first; whatever a retransmission could have falsified is not
// taken (Karn and Partridge, SIGCOMM 1987). So time in the pacer's own queue is part of it, as
// it is for the sender. A sample a round trip comes in, so the smoothed value moves by half, and a
// sample counts as four times that value at most: acknowledgements that were not seen for a while
// make one that is far off. The base, which is the path's, is without that time.
//
// Window: the most in flight in this round trip, or an eighth less than in the one before for each
// since: a sender that pauses has its window when it goes on. More than 2^30 bytes in flight are no
// sender's (RFC 7323, section 2.3): what answers it is not seen, and nothing is known of the flow.
//
// A segment far from all that was sent before (more than two windows and 64 KiB ahead, or more than
// 2^30 bytes behind) is not taken for the flow's, unless the next one goes on where it ended: then
// what came between was not seen, and the flow begins anew.
#ifndef TCP_FLOWS_P4
#define TCP_FLOWS_P4

#define FLOW_LIFE_NS 60000000000
#define FLOW_OPENING_NS 10000000000
#define FLOW_CLOSED_NS 2000000000

// Longest round-trip time that is believed (17 s): products with it must fit 64 bits.
#define RTT_NS_MAX 0x3FFFFFFFF
#define RTT_GROWTH_BITS 2

// A segment is a stray from so far ahead on, besides two windows, and to so far behind.
#define STRAY_AHEAD_BYTES 65536
#define STRAY_BEHIND 0xC0000000

// Indices of the counter `flow_events`.
#define FLOW_STARTED 0
#define FLOW_COLLISION 1
#define FLOW_RETRANSMISSION 2
#define FLOW_EVENTS 3

#define TCP_FIN 0
#define TCP_SYN 1
#define TCP_RST 2
#define TCP_ACK 4
#define TCP_ECE 6

// 0 until a flow is followed.
register<bit<1>>(1) flows_followed;

register<bit<64>>(TRACKED_FLOWS) flow_identity;     // see FLOW_CELL
register<bit<128>>(TRACKED_FLOWS) flow_sender;
register<bit<128>>(TRACKED_FLOWS) flow_receiver;
register<bit<64>>(TRACKED_FLOWS) flow_expires_ns;   // 0: never used
register<bit<32>>(TRACKED_FLOWS) flow_next;         // one past the highest sequence number sent
register<bit<32>>(TRACKED_FLOWS) flow_acknowledged;
register<bit<32>>(TRACKED_FLOWS) flow_timed;        // the acknowledgement that ends the sample
register<bit<64>>(TRACKED_FLOWS) flow_timed_at_ns;  // 0: nothing is timed
register<bit<64>>(TRACKED_FLOWS) flow_timed_wait_ns;  // how long what is timed waits here
register<bit<64>>(TRACKED_FLOWS) flow_rtt_ns;       // smoothed; 0: not known
register<bit<64>>(TRACKED_FLOWS) flow_base_rtt_ns;  // smallest, less time here; 0: not known
register<bit<32>>(TRACKED_FLOWS) flow_peak_bytes;   // most in flight in this round trip
register<bit<32>>(TRACKED_FLOWS) flow_last_peak_bytes;  // and before, an eighth less for each
register<bit<32>>(TRACKED_FLOWS) flow_stray;        // where the last stray segment ended

// Where the cell is of the flow from one end to the other, and its identity but for the addresses: of
// two flows between the same ones, equal ports and CRC-32 mean the same VLAN. (A control would copy
// the addresses of every packet.)
#define FLOW_CELL(vlan_id, sender, receiver, sender_port, receiver_port, cell, identity) \
    hash(identity, HashAlgorithm.crc32, 64w0, { (bit<16>) vlan_id, sender, receiver }, \
         64w1 << 32); \
    identity = sender_port ++ receiver_port ++ identity[31:0]; \
    hash(cell, HashAlgorithm.crc16, 32w0, { identity }, 32w1 << TRACKED_FLOWS_BITS);

// What the packet says of the flow that it belongs to. Sets `meta.flow_known` if the flow is
// followed, and then what is known of it.
control FlowOfSender(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    @name(".PacerIngress.flow_events")
    counter(FLOW_EVENTS, CounterType.packets) flow_events;

    // What was last seen of a class's flows, for whoever wants to look.
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
        bit<32> taken = payload_bytes + (bit<32>) hdr.tcp.flags[TCP_SYN:TCP_SYN]
                        + (bit<32>) hdr.tcp.flags[TCP_FIN:TCP_FIN];
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
        if (payload_bytes > standard_metadata.packet_length) {
            // The length is false: nothing that it says of a flow is taken.
        } else if (expires_ns <= now_ns) {
            starts = 1;
        } else if (known == identity && sender == meta.flow.src_addr
                   && receiver == meta.flow.dst_addr) {
            meta.flow_known = 1;
            // Another connection of the same addresses and ports.
            bit<32> ahead_bytes = hdr.tcp.sequence - next;
            if (hdr.tcp.flags[TCP_SYN:TCP_SYN] == 1 && end != next) {
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
            meta.window_bytes = taken;
            meta.flow_starts = 1;
        } else if (meta.flow_known == 1) {
            bit<64> timed_at_ns;
            bit<32> acknowledged;
            bit<32> peak_bytes;
            bit<32> last_peak_bytes;
            flow_timed_at_ns.read(timed_at_ns, cell);
            if (taken != 0 && strays == 0) {
                bit<32> before = hdr.tcp.sequence - next;  // "negative": sent before
                bit<32> beyond = end - next;
                if (before[31:31] == 1) {
                    flow_events.count(FLOW_RETRANSMISSION);
                    meta.flow_lost = 1;
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
                // Unless it is held (class_clock.p4).
                flow_timed_wait_ns.write(cell, 0);
            }
            first_flight.apply(meta, hdr.tcp.flags[TCP_SYN:TCP_SYN], end, payload_bytes,
                               standard_metadata.packet_length + FCS_BYTES, now_ns);
            if (hdr.tcp.flags[TCP_FIN:TCP_FIN] == 1 || hdr.tcp.flags[TCP_RST:TCP_RST] == 1) {
                flow_expires_ns.write(cell, now_ns + FLOW_CLOSED_NS);
            } else if (hdr.tcp.flags[TCP_SYN:TCP_SYN] == 1) {
                flow_expires_ns.write(cell, now_ns + FLOW_OPENING_NS);
            } else if (taken != 0 || starts == 1 || expires_ns - now_ns > FLOW_CLOSED_NS) {
                // A last acknowledgement, after both ends' FIN, does not open it again.
                flow_expires_ns.write(cell, now_ns + FLOW_LIFE_NS);
            }
        }
    }
}

// What an acknowledgement says of the flow that it answers.
// Sets `meta.answered` if that flow is followed; where it is, for a SYN in any case, and
// `meta.answered_elsewhere` if another flow that lives has the cell.
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
        } else if (hdr.tcp.flags[TCP_ACK:TCP_ACK] == 1 && expires_ns > now_ns) {
            meta.answered = 1;
            bit<32> next;
            bit<32> acknowledged;
            flow_next.read(next, cell);
            flow_acknowledged.read(acknowledged, cell);
            bit<32> advance = hdr.tcp.acknowledgement - acknowledged;
            bit<32> in_flight_bytes = next - hdr.tcp.acknowledgement;
            // Neither an old one nor one of what was never sent.
            if (advance != 0 && advance[31:31] == 0 && in_flight_bytes[31:31] == 0) {
                flow_acknowledged.write(cell, hdr.tcp.acknowledgement);
                first_flight_answered.apply(cell, hdr.tcp.acknowledgement, now_ns);
                if (hdr.tcp.flags[TCP_ECE:TCP_ECE] == 1) {
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
                    // A round trip is over.
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
