// Decides the largest receive window that a TCP receiver may advertise: what its sender needs to
// fill its rate. So a sender's large buffers do not become a queue in this switch.
//
// window = rate * base round-trip time + margin, at most the advertised window and at least two
// segments. The scale of the 16-bit field is that of the receiver's SYN (RFC 7323); a flow whose
// handshake was not seen is not clamped. The checksum is updated by RFC 1624 (equation 3), so a
// wrong one stays wrong.
#ifndef WINDOW_CLAMP_P4
#define WINDOW_CLAMP_P4

#define WINDOW_BYTES_MIN 2920
#define WINDOW_SCALE_MAX 14

register<bit<32>>(TRACKED_FLOWS) flow_window_bytes;  // largest window to advertise; 0: any
register<bit<64>>(TRACKED_FLOWS) flow_scale_of;      // the flow that has the scale: see FLOW_CELL
register<bit<128>>(TRACKED_FLOWS) flow_scale_sender;
register<bit<128>>(TRACKED_FLOWS) flow_scale_receiver;
register<bit<8>>(TRACKED_FLOWS) flow_scale;

// A SYN: notes the window scale of its sender, which applies if the other end scales, too. A SYN
// does not overwrite the scale of another live flow; otherwise a SYN flood would erase all scales.
control WindowScale(inout metadata_t meta) {
    apply {
        if (meta.answered_elsewhere == 0) {
            flow_scale_of.write(meta.answered_cell, meta.answered_identity);
            flow_scale_sender.write(meta.answered_cell, meta.flow.dst_addr);
            flow_scale_receiver.write(meta.answered_cell, meta.flow.src_addr);
            flow_scale.write(meta.answered_cell,
                             meta.window_scale > WINDOW_SCALE_MAX ? WINDOW_SCALE_MAX
                                                                  : meta.window_scale);
        }
        if (meta.has_window_scale == 0) {
            // Then the other end's windows are not scaled either, even if its SYN offered it. The
            // flow that these windows belong to need not be followed yet.
            bit<64> identity;
            bit<32> cell;
            bit<64> scale_of;
            bit<128> sender;
            bit<128> receiver;
            FLOW_CELL(meta.flow.vlan_id, meta.flow.src_addr, meta.flow.dst_addr,
                      meta.flow.src_port, meta.flow.dst_port, cell, identity)
            flow_scale_of.read(scale_of, cell);
            flow_scale_sender.read(sender, cell);
            flow_scale_receiver.read(receiver, cell);
            if (scale_of == identity && sender == meta.flow.src_addr
                && receiver == meta.flow.dst_addr) {
                flow_scale.write(cell, 0);
            }
        }
    }
}

// A packet of a followed flow: computes the largest window for it.
control WindowLimit(inout metadata_t meta) {
    apply {
        bit<64> window_bytes = 0;
        if (meta.bytes_per_ns_q24 != 0) {
            bit<64> base_rtt_ns;
            flow_base_rtt_ns.read(base_rtt_ns, meta.flow_cell);
            if (base_rtt_ns != 0) {
                window_bytes = ((base_rtt_ns * meta.bytes_per_ns_q24) >> FRACTION_BITS)
                               + meta.window_margin_bytes;
                if (window_bytes < WINDOW_BYTES_MIN) {
                    window_bytes = WINDOW_BYTES_MIN;
                } else if (window_bytes > 0xFFFFFFFF) {
                    window_bytes = 0xFFFFFFFF;
                }
            }
        }
        flow_window_bytes.write(meta.flow_cell, (bit<32>) window_bytes);
    }
}

// An acknowledgement: lowers its window.
control WindowClamp(inout headers_t hdr, inout metadata_t meta) {
    @name(".PacerIngress.windows_lowered")
    counter(1, CounterType.packets) windows_lowered;

    ChecksumUpdate() checksum_update;

    apply {
        bit<32> most_bytes;
        flow_window_bytes.read(most_bytes, meta.answered_cell);
        if (most_bytes != 0) {
            bit<64> scale_of;
            bit<128> sender;
            bit<128> receiver;
            bit<8> scale;
            flow_scale_of.read(scale_of, meta.answered_cell);
            flow_scale_sender.read(sender, meta.answered_cell);
            flow_scale_receiver.read(receiver, meta.answered_cell);
            flow_scale.read(scale, meta.answered_cell);
            // Rounded up, since a window below the field's unit would read 0.
            bit<64> units = ((bit<64>) most_bytes + (64w1 << scale) - 1) >> scale;
            if (scale_of == meta.answered_identity && sender == meta.flow.dst_addr
                && receiver == meta.flow.src_addr && units < (bit<64>) hdr.tcp.window) {
                windows_lowered.count(0);
                checksum_update.apply(hdr.tcp.checksum, hdr.tcp.window, units[15:0]);
                hdr.tcp.window = units[15:0];
            }
        }
    }
}

#endif
