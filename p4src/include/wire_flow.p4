// Decides which measured flow a packet on the measuring wire belongs to. It looks fields up without
// extracting headers, so every packet leaves unchanged. Ports are read only at a fixed offset: no
// IPv4 options, no later fragment, no IPv6 extension headers.
#ifndef WIRE_FLOW_P4
#define WIRE_FLOW_P4

// Bits of headers (IEEE 802.3, 802.1Q; RFC 791, 8200; RFC 768 and 9293 begin with the ports).
#define ETHERNET_BITS 112
#define TAGGED_BITS 144
#define IPV4_BITS 160
#define IPV6_BITS 320
#define PORTS_BITS 32

// Bit numbers within the two IP headers, counted from the last one.
#define IPV4_HEADER_WORDS 155:152
#define IPV4_DSCP 151:146
#define IPV4_FRAGMENT_OFFSET 108:96
#define IPV4_PROTOCOL 87:80
#define IPV4_SOURCE 63:32
#define IPV4_DESTINATION 31:0
#define IPV6_DSCP 315:310
#define IPV6_NEXT_HEADER 271:264
#define IPV6_SOURCE 255:128
#define IPV6_DESTINATION 127:0

// The same keys as pacer.p4's flows, so that flow entries are written alike for both programs;
// zero where the packet has no such field.
struct wire_flow_t {
    bit<16> ether_type;
    bit<12> vlan_id;
    bit<128> src_addr;  // IPv4 mapped into ::ffff:0:0/96 (RFC 4291, 2.5.5.2)
    bit<128> dst_addr;
    bit<6> dscp;
    bit<8> protocol;
    bit<16> src_port;
    bit<16> dst_port;
}

parser WireFlow(packet_in packet, out wire_flow_t flow) {
    bit<IPV4_BITS> ipv4;
    bit<IPV6_BITS> ipv6;
    bit<PORTS_BITS> ports;
    bit<1> tagged;

    state start {
        flow.ether_type = 0;
        flow.vlan_id = 0;
        flow.src_addr = 0;
        flow.dst_addr = 0;
        flow.dscp = 0;
        flow.protocol = 0;
        flow.src_port = 0;
        flow.dst_port = 0;
        tagged = 0;
        flow.ether_type = packet.lookahead<bit<ETHERNET_BITS>>()[15:0];
        transition select(flow.ether_type) {
            0x8100: peek_tag;
            0x0800: peek_ipv4;
            0x86DD: peek_ipv6;
            default: accept;
        }
    }

    state peek_tag {
        bit<TAGGED_BITS> tag = packet.lookahead<bit<TAGGED_BITS>>();
        flow.vlan_id = tag[27:16];
        flow.ether_type = tag[15:0];
        tagged = 1;
        transition select(flow.ether_type) {
            0x0800: peek_tagged_ipv4;
            0x86DD: peek_tagged_ipv6;
            default: accept;
        }
    }

    state peek_ipv4 {
        ipv4 = packet.lookahead<bit<(ETHERNET_BITS + IPV4_BITS)>>()[IPV4_BITS - 1:0];
        transition take_ipv4;
    }

    state peek_tagged_ipv4 {
        ipv4 = packet.lookahead<bit<(TAGGED_BITS + IPV4_BITS)>>()[IPV4_BITS - 1:0];
        transition take_ipv4;
    }

    state take_ipv4 {
        flow.src_addr = 96w0xFFFF ++ ipv4[IPV4_SOURCE];
        flow.dst_addr = 96w0xFFFF ++ ipv4[IPV4_DESTINATION];
        flow.dscp = ipv4[IPV4_DSCP];
        flow.protocol = ipv4[IPV4_PROTOCOL];
        transition select(ipv4[IPV4_HEADER_WORDS], ipv4[IPV4_FRAGMENT_OFFSET],
                          ipv4[IPV4_PROTOCOL], tagged) {
            (5, 0, 6, 0): peek_ipv4_ports;
            (5, 0, 17, 0): peek_ipv4_ports;
            (5, 0, 6, 1): peek_tagged_ipv4_ports;
            (5, 0, 17, 1): peek_tagged_ipv4_ports;
            default: accept;
        }
    }

    state peek_ipv6 {
        ipv6 = packet.lookahead<bit<(ETHERNET_BITS + IPV6_BITS)>>()[IPV6_BITS - 1:0];
        transition take_ipv6;
    }

    state peek_tagged_ipv6 {
        ipv6 = packet.lookahead<bit<(TAGGED_BITS + IPV6_BITS)>>()[IPV6_BITS - 1:0];
        transition take_ipv6;
    }

    state take_ipv6 {
        flow.src_addr = ipv6[IPV6_SOURCE];
        flow.dst_addr = ipv6[IPV6_DESTINATION];
        flow.dscp = ipv6[IPV6_DSCP];
        flow.protocol = ipv6[IPV6_NEXT_HEADER];
        transition select(ipv6[IPV6_NEXT_HEADER], tagged) {
            (6, 0): peek_ipv6_ports;
            (17, 0): peek_ipv6_ports;
            (6, 1): peek_tagged_ipv6_ports;
            (17, 1): peek_tagged_ipv6_ports;
            default: accept;
        }
    }

    state peek_ipv4_ports {
        ports = packet.lookahead<bit<(ETHERNET_BITS + IPV4_BITS + PORTS_BITS)>>()[31:0];
        transition take_ports;
    }

    state peek_tagged_ipv4_ports {
        ports = packet.lookahead<bit<(TAGGED_BITS + IPV4_BITS + PORTS_BITS)>>()[31:0];
        transition take_ports;
    }

    state peek_ipv6_ports {
        ports = packet.lookahead<bit<(ETHERNET_BITS + IPV6_BITS + PORTS_BITS)>>()[31:0];
        transition take_ports;
    }

    state peek_tagged_ipv6_ports {
        ports = packet.lookahead<bit<(TAGGED_BITS + IPV6_BITS + PORTS_BITS)>>()[31:0];
        transition take_ports;
    }

    state take_ports {
        flow.src_port = ports[31:16];
        flow.dst_port = ports[15:0];
        transition accept;
    }
}

#endif
