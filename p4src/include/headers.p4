// Declares the packet headers and the per-packet metadata of pacer.p4: what controls read and
// write. It decides nothing.
#ifndef HEADERS_P4
#define HEADERS_P4

typedef bit<9> port_t;
typedef bit<48> mac_t;
typedef bit<128> address_t;  // IPv6, or IPv4 mapped into ::ffff:0:0/96 (RFC 4291, 2.5.5.2)
typedef bit<32> class_t;

const bit<16> TYPE_VLAN = 0x8100;
const bit<16> TYPE_IPV4 = 0x0800;
const bit<16> TYPE_IPV6 = 0x86DD;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

@controller_header("packet_in")
header packet_in_t {
    port_t ingress_port;
    bit<7> reason;
}

@controller_header("packet_out")
header packet_out_t {
    port_t egress_port;  // 0: the packet passes the tables, as if received on the CPU port
    bit<7> pad;
}

header ethernet_t {
    mac_t dst_mac;
    mac_t src_mac;
    bit<16> ether_type;
}

header vlan_t {
    bit<3> priority;
    bit<1> drop_eligible;
    bit<12> vlan_id;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4> version;
    bit<4> header_words;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

header ipv6_t {
    bit<4> version;
    bit<6> dscp;
    bit<2> ecn;
    bit<20> flow_label;
    bit<16> payload_length;
    bit<8> next_header;
    bit<8> hop_limit;
    bit<128> src_addr;
    bit<128> dst_addr;
}

header tcp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<4> header_words;
    bit<4> reserved;
    bit<1> cwr;
    bit<1> ece;
    bit<1> urg;
    bit<1> ack;
    bit<1> psh;
    bit<1> rst;
    bit<1> syn;
    bit<1> fin;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

// A TCP option. `rest` is empty for the options of one byte (end, no operation).
header tcp_option_t {
    bit<8> kind;
    varbit<136> rest;  // TCP_OPTION_BYTES_MAX
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    vlan_t vlan;
    ipv4_t ipv4;
    ipv6_t ipv6;
    tcp_t tcp;
    tcp_option_t[TCP_OPTIONS_READ] tcp_options;  // of a SYN, up to the window scale option
    udp_t udp;
}

// The 5-tuple and the other fields that flow entries match; zero where the packet has none.
struct flow_key_t {
    bit<16> ether_type;
    bit<12> vlan_id;
    address_t src_addr;
    address_t dst_addr;
    bit<6> dscp;
    bit<8> protocol;
    bit<16> src_port;
    bit<16> dst_port;
}

// The state of a held packet on a switch that holds packets by recirculation.
struct hold_t {
    @field_list(1)
    bit<8> state;  // see hold_by_recirculation.p4
    @field_list(1)
    bit<32> queue_id;
    @field_list(1)
    bit<64> departure_ns;
    @field_list(1)
    bit<32> sequence;
    @field_list(1)
    port_t egress_port;
}

struct metadata_t {
    flow_key_t flow;
    class_t class_id;
    bit<8> colour;       // 0 green, 1 yellow, 2 red (RFC 2698)
    bit<1> drop_red;
    bit<1> mark;
    bit<6> yellow_dscp;
    bit<6> red_dscp;
    bit<1> paced;
    bit<8> drop_cause;   // DROP_* of limits.p4; 0: the packet goes on
    bit<7> reason;       // why the controller gets a copy
    bit<1> to_controller_only;
    bit<64> time_per_byte_q24;
    bit<32> spacing_bytes;       // bytes that a packet takes of its class besides the frame;
                                 // negative (modulo 2^32) where only its payload counts
    bit<32> limit_bytes;
    bit<64> allowance_ns;
    bit<64> tick_ns;             // packets leave once in it (ticks.p4); 0: at any time
    bit<64> ticks_per_ns_q64;    // 2^64 / tick_ns, rounded down
    bit<64> tick_lead_ns;        // by how much they leave before these multiples
    bit<16> slots;               // slots that flows get in turn (flow_slot.p4); 0: none
    bit<32> slot_ns;
    bit<32> ecn_threshold_bytes; // 0: the class does not mark
    bit<1> congested;            // the queue is above that threshold
    bit<32> queue_id;            // the class's number, or a followed flow's above CLASS_COUNT

    // TCP flows, where the class needs them (tcp_flows.p4, flow_pace.p4).
    bit<1> follows_flows;
    bit<1> paces_flows;
    bit<1> pspd;                 // modes pspd, clustered: window / round-trip time, nothing else
    bit<64> cost_min_q24;        // mode clustered: the least that a packet takes of its flow
    bit<64> inverse_headroom_q16;
    bit<64> release_below_ns;    // modes slow-start, clustered; 0: another mode
    bit<1> flow_known;           // the packet's flow is followed
    bit<1> flow_starts;
    bit<1> flow_lost;            // this packet is a retransmission
    bit<1> flow_timing;          // this packet's round-trip time is measured
    bit<1> in_train;             // the packet is of the first flight (path_rate.p4)
    bit<32> flow_cell;
    bit<32> payload_bytes;
    bit<32> window_bytes;        // most bytes in flight within a round trip
    bit<64> rtt_ns;              // 0: not known yet
    bit<1> answered;             // the packet acknowledges a flow that is followed
    bit<1> answered_elsewhere;   // another live flow has that flow's cell
    bit<32> answered_cell;
    bit<64> answered_identity;
    bit<1> flow_closed;          // this packet, or one before, has FIN or RST

    // Mode shared (rate_sharing.p4).
    bit<1> shares;
    bit<1> clamps_windows;       // to a flow's part of the rate
    bit<1> shares_as_flow;       // the packet's flow is one that shares; 0: with others
    bit<1> share_waits;          // its clock is ahead
    bit<1> catches_up;           // it has twice the others' rate
    bit<64> share_from_ns;       // a flow that becomes active: when its time begins

    // Receive windows (window_clamp.p4).
    bit<64> bytes_per_ns_q24;    // rate that the window is computed for; 0: no clamp
    bit<64> window_margin_bytes;
    bit<1> has_window_scale;
    bit<8> window_scale;
    bit<8> tcp_options_read;
    bit<8> tcp_options_bytes;    // bytes of options that are not parsed yet
    bit<8> tcp_option_bytes;
    hold_t hold;
}

#endif
