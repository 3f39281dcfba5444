// What GtrcNET-1 measured, per ingress port: bandwidth in bins of 500 us and in windows of
// 100 ms, and the queue in front of a virtual bottleneck (Takano et al., "realtime
// burstiness"): with each packet, Q <- max(0, Q - BWvb * dt) + length.
//
// The arrays are rings: cell n holds bin (or window) number `id`, where id mod ring size = n;
// a cell whose id is not the one asked for belongs to another round, and that bin was empty.
// Lengths are layer-2 bytes with FCS.
#ifndef BURSTINESS_P4
#define BURSTINESS_P4

#define MEASURED_PORTS 4
#define BINS 65536
#define WINDOWS 4096

// p4c has no division of a run-time value, so now_ns / 500000 and now_ns / 100000000 are
// multiplications: with m = ceil(2^s / d) and s = 63 + ceil(log2 d), (n * m) >> s = n / d
// exactly for every n < 2^63 (Granlund and Montgomery, PLDI 1994, theorem 4.2), and the
// product stays under 2^127.
#define BIN_MULTIPLIER 128w0x8637bd05af6c69b6
#define BIN_SHIFT 82
#define WINDOW_MULTIPLIER 128w0xabcc77118461cefd
#define WINDOW_SHIFT 90

// Above 2^30 ns of silence any queue that a 100 Gbit/s bottleneck can hold here has drained;
// it also keeps dt * rate within 64 bits.
#define SILENCE_NS 1073741824

control Burstiness(inout measurement_t meta, in standard_metadata_t standard_metadata) {
    @name(".GtrcnetIngress.bin_bytes")
    register<bit<32>>(MEASURED_PORTS * BINS) bin_bytes;
    @name(".GtrcnetIngress.bin_id")
    register<bit<64>>(MEASURED_PORTS * BINS) bin_id;
    @name(".GtrcnetIngress.window_bytes")
    register<bit<32>>(MEASURED_PORTS * WINDOWS) window_bytes;
    @name(".GtrcnetIngress.window_vb_max_bytes")
    register<bit<32>>(MEASURED_PORTS * WINDOWS) window_vb_max_bytes;
    @name(".GtrcnetIngress.window_id")
    register<bit<64>>(MEASURED_PORTS * WINDOWS) window_id;
    @name(".GtrcnetIngress.vb_now_q24")
    register<bit<64>>(MEASURED_PORTS) vb_now_q24;
    @name(".GtrcnetIngress.vb_last_ns")
    register<bit<64>>(MEASURED_PORTS) vb_last_ns;
    @name(".GtrcnetIngress.vb_max_bytes")
    register<bit<32>>(MEASURED_PORTS) vb_max_bytes;

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

    IngressTime() time;

    apply {
        monitor.apply();
        if (meta.measured == 1 && standard_metadata.ingress_port < MEASURED_PORTS) {
            bit<32> port = (bit<32>) standard_metadata.ingress_port;
            bit<32> frame_bytes = standard_metadata.packet_length + FCS_BYTES;
            bit<64> now_ns;
            time.apply(standard_metadata, now_ns);

            @atomic {
                bit<64> queue_q24;
                bit<64> last_ns;
                vb_now_q24.read(queue_q24, port);
                vb_last_ns.read(last_ns, port);
                bit<64> elapsed_ns = now_ns - last_ns;
                // Timestamps of one port do not run backwards; should one, no time has passed.
                if (now_ns < last_ns) {
                    elapsed_ns = 0;
                }
                bit<64> drained_q24 = elapsed_ns * meta.bytes_per_ns_q24;
                if (elapsed_ns >= SILENCE_NS || drained_q24 >= queue_q24) {
                    queue_q24 = 0;
                } else {
                    queue_q24 = queue_q24 - drained_q24;
                }
                queue_q24 = queue_q24 + ((bit<64>) frame_bytes << FRACTION_BITS);
                vb_now_q24.write(port, queue_q24);
                vb_last_ns.write(port, now_ns);
                bit<32> queue_bytes = (bit<32>) (queue_q24 >> FRACTION_BITS);

                bit<32> highest_bytes;
                vb_max_bytes.read(highest_bytes, port);
                if (queue_bytes > highest_bytes) {
                    vb_max_bytes.write(port, queue_bytes);
                }

                bit<64> id;
                bit<64> bin = (bit<64>) (((bit<128>) now_ns * BIN_MULTIPLIER) >> BIN_SHIFT);
                bit<32> cell = port * BINS + (bit<32>) (bin & (BINS - 1));
                bit<32> bytes;
                bin_id.read(id, cell);
                bin_bytes.read(bytes, cell);
                if (id != bin) {
                    bytes = 0;
                    bin_id.write(cell, bin);
                }
                bin_bytes.write(cell, bytes + frame_bytes);

                bit<64> window =
                    (bit<64>) (((bit<128>) now_ns * WINDOW_MULTIPLIER) >> WINDOW_SHIFT);
                cell = port * WINDOWS + (bit<32>) (window & (WINDOWS - 1));
                window_id.read(id, cell);
                window_bytes.read(bytes, cell);
                window_vb_max_bytes.read(highest_bytes, cell);
                if (id != window) {
                    bytes = 0;
                    highest_bytes = 0;
                    window_id.write(cell, window);
                }
                window_bytes.write(cell, bytes + frame_bytes);
                if (queue_bytes > highest_bytes) {
                    highest_bytes = queue_bytes;
                }
                window_vb_max_bytes.write(cell, highest_bytes);
            }
        }
    }
}

#endif
