// Takes dynamic burstiness (burstiness.p4): the queue in front of a virtual bottleneck whose rate is
// the average bandwidth of the window that the packets are in. That rate is known once the window
// is over, so each packet of a slot is kept, length and time, in a ring of registers. Each packet
// that arrives then takes up to two kept ones of windows that are over.
//
// Each window starts with an empty queue. The bottleneck carries exactly the window's bytes in T, so
// a queue that went on into the next window could never become shorter.
//
// The ring never holds more packets than the fullest window had. When it is full, the packet is not
// kept, it is counted in kept_overflow, and its window's burstiness is DYNAMIC_UNKNOWN. While no
// packet arrives, kept packets stay; who reads the registers takes the rest.
#ifndef DYNAMIC_BURSTINESS_P4
#define DYNAMIC_BURSTINESS_P4

// Longest queue of a window, in bytes times WINDOW_NS.
@name(".GtrcnetIngress.window_dynamic_max")
register<bit<64>>(SLOTS * WINDOWS) window_dynamic_max;
@name(".GtrcnetIngress.window_id")
register<bit<64>>(SLOTS * WINDOWS) window_id;
@name(".GtrcnetIngress.window_bytes")
register<bit<32>>(SLOTS * WINDOWS) window_bytes;

// The ring: packet number n of a slot is in cell n mod KEPT_PACKETS.
@name(".GtrcnetIngress.kept_ns")
register<bit<64>>(SLOTS * KEPT_PACKETS) kept_ns;
@name(".GtrcnetIngress.kept_bytes")
register<bit<32>>(SLOTS * KEPT_PACKETS) kept_bytes;
// Number of packets that were kept, and of those that were taken again.
@name(".GtrcnetIngress.kept_count")
register<bit<64>>(SLOTS) kept_count;
@name(".GtrcnetIngress.taken_count")
register<bit<64>>(SLOTS) taken_count;
@name(".GtrcnetIngress.kept_overflow")
register<bit<64>>(SLOTS) kept_overflow;

// cell: of the packet's window.
control KeepPacket(in bit<32> slot, in bit<32> cell, in bit<64> now_ns, in bit<32> frame_bytes) {
    apply {
        bit<64> kept;
        bit<64> taken;
        kept_count.read(kept, slot);
        taken_count.read(taken, slot);
        if (kept - taken >= KEPT_PACKETS) {
            bit<64> overflow;
            kept_overflow.read(overflow, slot);
            kept_overflow.write(slot, overflow + 1);
            window_dynamic_max.write(cell, DYNAMIC_UNKNOWN);
        } else {
            bit<32> place = slot * KEPT_PACKETS + (bit<32>) (kept & (KEPT_PACKETS - 1));
            kept_ns.write(place, now_ns);
            kept_bytes.write(place, frame_bytes);
            kept_count.write(slot, kept + 1);
        }
    }
}

// window: the one that is not over yet.
control TakeKeptPacket(in bit<32> slot, in bit<64> window) {
    // Queue in bytes times WINDOW_NS, and time and window of the packet that was taken last.
    @name(".GtrcnetIngress.dynamic_now")
    register<bit<64>>(SLOTS) dynamic_now;
    @name(".GtrcnetIngress.dynamic_last_ns")
    register<bit<64>>(SLOTS) dynamic_last_ns;
    @name(".GtrcnetIngress.dynamic_window")
    register<bit<64>>(SLOTS) dynamic_window;

    apply {
        bit<64> kept;
        bit<64> taken;
        kept_count.read(kept, slot);
        taken_count.read(taken, slot);
        if (kept != taken) {
            bit<32> place = slot * KEPT_PACKETS + (bit<32>) (taken & (KEPT_PACKETS - 1));
            bit<64> at_ns;
            kept_ns.read(at_ns, place);
            bit<64> own_window = WINDOW_OF(at_ns);
            if (own_window < window) {
                bit<32> frame_bytes;
                bit<64> last_ns;
                bit<64> last_window;
                bit<64> queue;
                kept_bytes.read(frame_bytes, place);
                dynamic_last_ns.read(last_ns, slot);
                dynamic_window.read(last_window, slot);
                dynamic_now.read(queue, slot);

                bit<32> cell = slot * WINDOWS + (bit<32>) (own_window & (WINDOWS - 1));
                bit<32> bytes_per_window;
                bit<64> id;
                bit<64> highest;
                window_bytes.read(bytes_per_window, cell);
                window_id.read(id, cell);
                window_dynamic_max.read(highest, cell);
                bit<64> drained = (at_ns - last_ns) * (bit<64>) bytes_per_window;
                if (own_window != last_window || drained >= queue) {
                    queue = 0;
                } else {
                    queue = queue - drained;
                }
                queue = queue + (bit<64>) frame_bytes * WINDOW_NS;
                // More than WINDOWS windows later, the cell belongs to another one.
                if (id == own_window && queue > highest) {
                    window_dynamic_max.write(cell, queue);
                }
                dynamic_now.write(slot, queue);
                dynamic_last_ns.write(slot, at_ns);
                dynamic_window.write(slot, own_window);
                taken_count.write(slot, taken + 1);
            }
        }
    }
}

#endif
