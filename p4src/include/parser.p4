// Decides which headers a frame has, and deparses them. A frame that ends inside a header gets a
// parser error; PacerIngress drops and counts it.
#ifndef PARSER_P4
#define PARSER_P4

parser PacerParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        meta.flow.ether_type = hdr.ethernet.ether_type;
        transition select(hdr.ethernet.ether_type) {
            TYPE_VLAN: parse_vlan;
            TYPE_IPV4: parse_ipv4;
            TYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        meta.flow.vlan_id = hdr.vlan.vlan_id;
        meta.flow.ether_type = hdr.vlan.ether_type;
        transition select(hdr.vlan.ether_type) {
            TYPE_IPV4: parse_ipv4;
            TYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        meta.flow.src_addr = 96w0xFFFF ++ hdr.ipv4.src_addr;
        meta.flow.dst_addr = 96w0xFFFF ++ hdr.ipv4.dst_addr;
        meta.flow.dscp = hdr.ipv4.dscp;
        meta.flow.protocol = hdr.ipv4.protocol;
        // The ports are read only at a fixed offset: no IP options, no later fragment.
        transition select(hdr.ipv4.header_words, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (5, 0, PROTOCOL_TCP): parse_tcp;
            (5, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        meta.flow.src_addr = hdr.ipv6.src_addr;
        meta.flow.dst_addr = hdr.ipv6.dst_addr;
        meta.flow.dscp = hdr.ipv6.dscp;
        meta.flow.protocol = hdr.ipv6.next_header;
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_TCP: parse_tcp;
            PROTOCOL_UDP: parse_udp;
            default: accept;
        }
    }

    state parse_tcp {
        packet.extract(hdr.tcp);
        meta.flow.src_port = hdr.tcp.src_port;
        meta.flow.dst_port = hdr.tcp.dst_port;
        transition select(hdr.tcp.syn) {
            1: tcp_options;
            default: accept;
        }
    }

    // Options of a SYN, up to the window scale (RFC 7323). Malformed options are not parsed and
    // pass unchanged, since the end hosts judge them. A frame that ends within its options gets a
    // parser error, like one that ends within any header.
    state tcp_options {
        meta.tcp_options_bytes = ((bit<8>) hdr.tcp.header_words |-| 5) * 4;
        transition next_tcp_option;
    }

    state next_tcp_option {
        transition select(meta.tcp_options_bytes, meta.tcp_options_read) {
            (0, _): accept;
            (_, TCP_OPTIONS_READ): accept;
            default: tcp_option_kind;
        }
    }

    state tcp_option_kind {
        meta.tcp_options_read = meta.tcp_options_read + 1;
        transition select(packet.lookahead<bit<8>>(), meta.tcp_options_bytes) {
            (0, _): accept;
            (1, _): tcp_option_of_one_byte;
            (_, 1): accept;
            default: tcp_option_length;
        }
    }

    state tcp_option_of_one_byte {
        packet.extract(hdr.tcp_options.next, 0);
        meta.tcp_options_bytes = meta.tcp_options_bytes - 1;
        transition next_tcp_option;
    }

    state tcp_option_length {
        meta.tcp_option_bytes = packet.lookahead<bit<16>>()[7:0];
        transition select(meta.tcp_option_bytes < 2
                          || meta.tcp_option_bytes > TCP_OPTION_BYTES_MAX
                          || meta.tcp_option_bytes > meta.tcp_options_bytes) {
            true: accept;
            default: tcp_option;
        }
    }

    state tcp_option {
        transition select(packet.lookahead<bit<16>>()) {
            0x0303: tcp_window_scale;
            default: tcp_option_of_many_bytes;
        }
    }

    state tcp_window_scale {
        meta.has_window_scale = 1;
        meta.window_scale = packet.lookahead<bit<24>>()[7:0];
        transition accept;
    }

    state tcp_option_of_many_bytes {
        packet.extract(hdr.tcp_options.next, ((bit<32>) meta.tcp_option_bytes - 1) * 8);
        meta.tcp_options_bytes = meta.tcp_options_bytes - meta.tcp_option_bytes;
        transition next_tcp_option;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        meta.flow.src_port = hdr.udp.src_port;
        meta.flow.dst_port = hdr.udp.dst_port;
        transition accept;
    }
}

// An edge switch is transparent: end hosts detect wrong checksums.
control PacerVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

// A control that changes a field updates the checksum (checksum_update.p4).
control PacerComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control PacerDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.tcp);
        packet.emit(hdr.tcp_options);
        packet.emit(hdr.udp);
    }
}

#endif
