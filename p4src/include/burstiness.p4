// Measures bandwidth and burstiness as GtrcNET-1 does; it decides nothing for the packet.
// Per ingress port it counts bandwidth in bins of 500 us. Per port and per flow it takes, in
// windows of T = 100 ms, the average bandwidth ABW_T and the longest queue max(Q)_T in front of a
// virtual bottleneck (Takano et al., "realtime burstiness"): with each packet,
// Q <- max(0, Q - BWvb * dt) + length.
//
// Static burstiness has a given BWvb. Dynamic burstiness has BWvb = ABW_T of the same window, in
// two stages: the first counts the window's bytes and keeps its packets, the second takes Q of the
// kept packets once their window is over (dynamic_burstiness.p4). Previous-window burstiness is not in
// the paper: BWvb is ABW_T of the window before, so one stage is enough. After an empty window
// there is no such rate, and the window counts as 0.
//
// A slot is one measured object: slots 0 to 3 are the ports of these numbers, the others are
// flows. The arrays are rings: cell n of a slot holds bin (or window) number `id`, where id mod
// ring size = n; a cell with another id belongs to another turn of the ring, and that bin
// was empty. Lengths are layer-2 bytes with FCS.
#ifndef BURSTINESS_P4
#define BURSTINESS_P4

#define MEASURED_PORTS 4
#define MEASURED_FLOWS 28
#define SLOTS 32
#define FLOW_ENTRIES 1024
#define BINS 65536
#define WINDOWS 4096
#define WINDOW_NS 100000000

// Packets of a slot that are kept until their window is over: those of a window at 10 Gbit/s, if
// they have 934 bytes in the mean, or at 1 Gbit/s, if they have 96. The rings take 50 MB.
// Stock BMv2 keeps each cell as a big integer, and forwards fewer than 80,000 packets a second.
#ifdef TARGET_BMV2
#define KEPT_PACKETS 8192
#else
#define KEPT_PACKETS 131072
#endif

// Value of window_dynamic_max for a window of which a packet was not kept.
#define DYNAMIC_UNKNOWN 64w0xFFFFFFFFFFFFFFFF

// p4c has no division of a run-time value, so now_ns / 500000 and now_ns / 100000000 are
// multiplications: with m = ceil(2^s / d) and s = 63 + ceil(log2 d), (n * m) >> s = n / d
// exactly for every n < 2^63 (Granlund and Montgomery, PLDI 1994, theorem 4.2), and the
// product stays under 2^127.
#define BIN_MULTIPLIER 128w0x8637bd05af6c69b6
#define BIN_SHIFT 82
#define WINDOW_MULTIPLIER 128w0xabcc77118461cefd
#define WINDOW_SHIFT 90

// 68.7 s: the longest time over which a queue is drained bit by bit, so that dt * rate stays within
// 64 bits at 100 Gbit/s. After a longer silence it is empty.
#define SILENCE_NS 68719476736

// Number of the window of a time.
#define WINDOW_OF(time_ns) \
    ((bit<64>) (((bit<128>) (time_ns) * WINDOW_MULTIPLIER) >> WINDOW_SHIFT))

#include "dynamic_burstiness.p4"

// Bandwidth and the three queues of one slot. No tables, so that it can be applied twice.
control MeasureSlot(in bit<32> slot, in bit<64> stamp_ns, in bit<32> frame_bytes,
                    in bit<64> bytes_per_ns_q24) {
    @name(".GtrcnetIngress.window_vb_max_bytes")
    register<bit<32>>(SLOTS * WINDOWS) window_vb_max_bytes;
    // In bytes times WINDOW_NS, which avoids the division by T.
    @name(".GtrcnetIngress.window_previous_max")
    register<bit<64>>(SLOTS * WINDOWS) window_previous_max;
    @name(".GtrcnetIngress.vb_now_q24")
    register<bit<64>>(SLOTS) vb_now_q24;
    @name(".GtrcnetIngress.vb_last_ns")
    register<bit<64>>(SLOTS) vb_last_ns;
    @name(".GtrcnetIngress.vb_max_bytes")
    register<bit<32>>(SLOTS) vb_max_bytes;
    // Queue of previous-window burstiness in bytes times WINDOW_NS, and bytes of that window.
    @name(".GtrcnetIngress.previous_now")
    register<bit<64>>(SLOTS) previous_now;
    @name(".GtrcnetIngress.previous_bytes_per_window")
    register<bit<64>>(SLOTS) previous_bytes_per_window;

    KeepPacket() keep_packet;
    TakeKeptPacket() take_kept_packet;

    apply {
        @atomic {
            bit<64> queue_q24;
            bit<64> last_ns;
            vb_now_q24.read(queue_q24, slot);
            vb_last_ns.read(last_ns, slot);
            // Timestamps of a port do not decrease. If one does, no time has passed.
            bit<64> now_ns = stamp_ns < last_ns ? last_ns : stamp_ns;
            bit<64> elapsed_ns = now_ns - last_ns;
            bit<64> drained_q24 = elapsed_ns * bytes_per_ns_q24;
            if (elapsed_ns >= SILENCE_NS || drained_q24 >= queue_q24) {
                queue_q24 = 0;
            } else {
                queue_q24 = queue_q24 - drained_q24;
            }
            queue_q24 = queue_q24 + ((bit<64>) frame_bytes << FRACTION_BITS);
            vb_now_q24.write(slot, queue_q24);
            vb_last_ns.write(slot, now_ns);
            bit<32> queue_bytes = (bit<32>) (queue_q24 >> FRACTION_BITS);

            bit<32> highest_bytes;
            vb_max_bytes.read(highest_bytes, slot);
            if (queue_bytes > highest_bytes) {
                vb_max_bytes.write(slot, queue_bytes);
            }

            bit<64> window = WINDOW_OF(now_ns);
            bit<32> cell = slot * WINDOWS + (bit<32>) (window & (WINDOWS - 1));
            bit<64> id;
            bit<32> bytes;
            bit<64> previous_highest;
            bit<64> queue;
            bit<64> rate;
            window_id.read(id, cell);
            window_bytes.read(bytes, cell);
            window_vb_max_bytes.read(highest_bytes, cell);
            window_previous_max.read(previous_highest, cell);
            previous_now.read(queue, slot);
            previous_bytes_per_window.read(rate, slot);
            // An unused cell reads id 0, like window 0, in which no packet has arrived either.
            if (id != window || bytes == 0) {
                bytes = 0;
                highest_bytes = 0;
                previous_highest = 0;
                window_id.write(cell, window);
                window_dynamic_max.write(cell, 0);

                bit<32> cell_before = slot * WINDOWS + (bit<32>) ((window - 1) & (WINDOWS - 1));
                bit<64> id_before;
                bit<32> bytes_before;
                window_id.read(id_before, cell_before);
                window_bytes.read(bytes_before, cell_before);
                if (id_before + 1 != window || bytes_before == 0) {
                    queue = 0;
                    rate = 0;
                } else {
                    // The queue drains at the former rate until the window begins and at the new
                    // rate from then on. The code below does the latter.
                    bit<64> began_ns = window * WINDOW_NS;
                    if (elapsed_ns != 0) {
                        bit<64> drained = (began_ns - last_ns) * rate;
                        if (drained >= queue) {
                            queue = 0;
                        } else {
                            queue = queue - drained;
                        }
                        elapsed_ns = now_ns - began_ns;
                    }
                    rate = (bit<64>) bytes_before;
                }
                previous_bytes_per_window.write(slot, rate);
            }
            if (rate != 0) {
                bit<64> drained = elapsed_ns * rate;
                if (drained >= queue) {
                    queue = 0;
                } else {
                    queue = queue - drained;
                }
                queue = queue + (bit<64>) frame_bytes * WINDOW_NS;
            }
            previous_now.write(slot, queue);
            if (queue > previous_highest) {
                previous_highest = queue;
            }
            window_previous_max.write(cell, previous_highest);
            window_bytes.write(cell, bytes + frame_bytes);
            if (queue_bytes > highest_bytes) {
                highest_bytes = queue_bytes;
            }
            window_vb_max_bytes.write(cell, highest_bytes);

            // Two packets are taken for each one kept, so that the second stage catches up.
            take_kept_packet.apply(slot, window);
            take_kept_packet.apply(slot, window);
            keep_packet.apply(slot, cell, now_ns, frame_bytes);
        }
    }
}

control Burstiness(inout measurement_t meta, in standard_metadata_t standard_metadata) {
    @name(".GtrcnetIngress.bin_bytes")
    register<bit<32>>(MEASURED_PORTS * BINS) bin_bytes;
    @name(".GtrcnetIngress.bin_id")
    register<bit<64>>(MEASURED_PORTS * BINS) bin_id;

    // bytes_per_ns_q24: rate of the virtual bottleneck, in 2^-24 bytes per nanosecond.
    @name(".GtrcnetIngress.measure")
    action measure(bit<64> bytes_per_ns_q24) {
        meta.measured = 1;
        meta.bytes_per_ns_q24 = bytes_per_ns_q24;
    }

    @name(".GtrcnetIngress.monitor")
    table monitor {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
        }
        actions = { measure; @defaultonly NoAction; }
        const default_action = NoAction;
        size = MEASURED_PORTS;
    }

    // slot: MEASURED_PORTS to SLOTS - 1.
    @name(".GtrcnetIngress.measure_flow")
    action measure_flow(bit<32> slot, bit<64> bytes_per_ns_q24) {
        meta.flow_slot = slot;
        meta.flow_bytes_per_ns_q24 = bytes_per_ns_q24;
    }

    @name(".GtrcnetIngress.flows")
    table flows {
        key = {
            standard_metadata.ingress_port: ternary @name("ingress_port");
            meta.flow.ether_type: ternary @name("ether_type");
            meta.flow.vlan_id: ternary @name("vlan_id");
            meta.flow.src_addr: ternary @name("src_addr");
            meta.flow.dst_addr: ternary @name("dst_addr");
            meta.flow.dscp: ternary @name("dscp");
            meta.flow.protocol: ternary @name("protocol");
            meta.flow.src_port: ternary @name("src_port");
            meta.flow.dst_port: ternary @name("dst_port");
        }
        actions = { measure_flow; @defaultonly NoAction; }
        const default_action = NoAction;
        size = FLOW_ENTRIES;
    }

    IngressTime() time;
    MeasureSlot() slots;

    apply {
        bit<32> frame_bytes = standard_metadata.packet_length + FCS_BYTES;
        bit<64> now_ns;
        time.apply(standard_metadata, now_ns);

        monitor.apply();
        if (meta.measured == 1 && standard_metadata.ingress_port < MEASURED_PORTS) {
            bit<32> port = (bit<32>) standard_metadata.ingress_port;
            slots.apply(port, now_ns, frame_bytes, meta.bytes_per_ns_q24);
            @atomic {
                bit<64> id;
                bit<32> bytes;
                bit<64> bin = (bit<64>) (((bit<128>) now_ns * BIN_MULTIPLIER) >> BIN_SHIFT);
                bit<32> cell = port * BINS + (bit<32>) (bin & (BINS - 1));
                bin_id.read(id, cell);
                bin_bytes.read(bytes, cell);
                if (id != bin) {
                    bytes = 0;
                    bin_id.write(cell, bin);
                }
                bin_bytes.write(cell, bytes + frame_bytes);
            }
        }

        flows.apply();
        if (meta.flow_slot >= MEASURED_PORTS && meta.flow_slot < SLOTS) {
            slots.apply(meta.flow_slot, now_ns, frame_bytes, meta.flow_bytes_per_ns_q24);
        }
    }
}

#endif
