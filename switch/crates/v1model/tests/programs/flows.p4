// A paced-flow classifier in small: every kind of header, table and extern that the
// project's own programs lean on, in one program.
#include <core.p4>
#include <v1model.p4>

extern TrafficManager {
    TrafficManager();
    void now(out bit<64> now_ns);
    void backlog(in bit<32> class_id, out bit<32> backlog_bytes);
    void hold(in bit<32> class_id, in bit<64> departure_ns, in bit<64> cost_q24,
              in bit<64> allowance_ns);
}

const bit<9> CPU_PORT = 510;

@controller_header("packet_in")
header packet_in_t { bit<9> ingress_port; bit<7> reason; }
@controller_header("packet_out")
header packet_out_t { bit<9> egress_port; bit<7> pad; }
header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
header vlan_t { bit<3> pcp; bit<1> dei; bit<12> vid; bit<16> ether_type; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<6> dscp; bit<2> ecn; bit<16> total_len;
    bit<16> identification; bit<3> flags; bit<13> frag_offset;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
header ipv6_t {
    bit<4> version; bit<6> dscp; bit<2> ecn; bit<20> flow_label;
    bit<16> payload_len; bit<8> next_header; bit<8> hop_limit;
    bit<128> src; bit<128> dst;
}
header tcp_t {
    bit<16> src_port; bit<16> dst_port; bit<32> seq; bit<32> ack;
    bit<4> data_offset; bit<4> reserved; bit<8> flags;
    bit<16> window; bit<16> checksum; bit<16> urgent;
}
header udp_t { bit<16> src_port; bit<16> dst_port; bit<16> length; bit<16> checksum; }

struct headers_t {
    packet_out_t packet_out;
    packet_in_t packet_in;
    ethernet_t ethernet;
    vlan_t vlan;
    ipv4_t ipv4;
    ipv6_t ipv6;
    tcp_t tcp;
    udp_t udp;
}

struct meta_t {
    bit<12> vlan_id;
    bit<16> ether_type;
    bit<128> src_addr;
    bit<128> dst_addr;
    bit<6> dscp;
    bit<8> protocol;
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> class_id;
    bit<2> color;
    bit<1> drop_red;
    bit<64> now_ns;
    bit<32> backlog;
}

parser FlowParser(packet_in b, out headers_t hdr, inout meta_t meta,
                  inout standard_metadata_t sm) {
    state start {
        transition select(sm.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
    state parse_packet_out {
        b.extract(hdr.packet_out);
        transition parse_ethernet;
    }
    state parse_ethernet {
        b.extract(hdr.ethernet);
        meta.ether_type = hdr.ethernet.ether_type;
        transition select(hdr.ethernet.ether_type) {
            0x8100: parse_vlan;
            0x0800: parse_ipv4;
            0x86dd: parse_ipv6;
            default: accept;
        }
    }
    state parse_vlan {
        b.extract(hdr.vlan);
        meta.vlan_id = hdr.vlan.vid;
        meta.ether_type = hdr.vlan.ether_type;
        transition select(hdr.vlan.ether_type) {
            0x0800: parse_ipv4;
            0x86dd: parse_ipv6;
            default: accept;
        }
    }
    state parse_ipv4 {
        b.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4, error.NoMatch);
        meta.src_addr = 80w0 ++ 16w0xffff ++ hdr.ipv4.src;
        meta.dst_addr = 80w0 ++ 16w0xffff ++ hdr.ipv4.dst;
        meta.dscp = hdr.ipv4.dscp;
        meta.protocol = hdr.ipv4.protocol;
        transition select(hdr.ipv4.frag_offset, hdr.ipv4.ihl, hdr.ipv4.protocol) {
            (0, 5, 6): parse_tcp;
            (0, 5, 17): parse_udp;
            default: accept;
        }
    }
    state parse_ipv6 {
        b.extract(hdr.ipv6);
        meta.src_addr = hdr.ipv6.src;
        meta.dst_addr = hdr.ipv6.dst;
        meta.dscp = hdr.ipv6.dscp;
        meta.protocol = hdr.ipv6.next_header;
        transition select(hdr.ipv6.next_header) {
            6: parse_tcp;
            17: parse_udp;
            default: accept;
        }
    }
    state parse_tcp {
        b.extract(hdr.tcp);
        meta.src_port = hdr.tcp.src_port;
        meta.dst_port = hdr.tcp.dst_port;
        transition accept;
    }
    state parse_udp {
        b.extract(hdr.udp);
        meta.src_port = hdr.udp.src_port;
        meta.dst_port = hdr.udp.dst_port;
        transition accept;
    }
}

control FlowVerify(inout headers_t hdr, inout meta_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len,
              hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control FlowIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    TrafficManager() tm;
    direct_counter(CounterType.packets_and_bytes) flow_counter;
    direct_meter<bit<2>>(MeterType.bytes) flow_meter;
    counter(64, CounterType.packets_and_bytes) class_accepted;
    counter(64, CounterType.packets_and_bytes) class_limit_drops;
    meter(64, MeterType.bytes) class_meter;
    register<bit<64>>(1048576) clock_ns;
    register<bit<32>>(1048576) clock_frac;

    action classify(bit<32> class_id, bit<1> drop_red) {
        meta.class_id = class_id;
        meta.drop_red = drop_red;
        flow_meter.read(meta.color);
        flow_counter.count();
    }
    table flows {
        key = {
            sm.ingress_port: ternary @name("ingress_port");
            meta.ether_type: ternary @name("ether_type");
            meta.vlan_id: ternary @name("vlan_id");
            meta.src_addr: ternary @name("src_addr");
            meta.dst_addr: ternary @name("dst_addr");
            meta.dscp: ternary @name("dscp");
            meta.protocol: ternary @name("protocol");
            meta.src_port: ternary @name("src_port");
            meta.dst_port: ternary @name("dst_port");
        }
        actions = { classify; @defaultonly NoAction; }
        default_action = NoAction();
        counters = flow_counter;
        meters = flow_meter;
        size = 4096;
    }

    action unpaced() {}
    bit<64> tpb = 0;
    bit<32> limit = 0;
    bit<64> allowance = 0;
    action paced_static(bit<64> time_per_byte_q24, bit<32> limit_bytes, bit<64> allowance_ns) {
        tpb = time_per_byte_q24;
        limit = limit_bytes;
        allowance = allowance_ns;
    }
    table classes {
        key = { meta.class_id: exact @name("class_id"); }
        actions = { unpaced; paced_static; }
        default_action = unpaced();
        size = 1024;
    }

    action forward_to(bit<9> port) { sm.egress_spec = port; }
    action flood() { sm.mcast_grp = 1; }
    table forward {
        key = { hdr.ethernet.dst: exact @name("dst_mac"); }
        actions = { forward_to; flood; }
        default_action = flood();
        size = 1024;
    }

    action drop() { mark_to_drop(sm); }
    action set_ttl() { hdr.ipv4.ttl = hdr.ipv4.ttl - 1; }
    table routes {
        key = { hdr.ipv4.dst: lpm; }
        actions = { set_ttl; drop; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    bit<2> class_color = 0;
    apply {
        if (sm.parser_error != error.NoError || sm.checksum_error == 1) {
            drop();
        } else {
            if (hdr.packet_out.isValid() && hdr.packet_out.egress_port != 0) {
                sm.egress_spec = hdr.packet_out.egress_port;
                hdr.packet_out.setInvalid();
                exit;
            }
            hdr.packet_out.setInvalid();
            forward.apply();
            if (hdr.ipv4.isValid()) { routes.apply(); }
            if (flows.apply().hit) {
                class_meter.execute_meter(meta.class_id, class_color);
                if (meta.color == 2 && meta.drop_red == 1 || class_color == 2) {
                    drop();
                } else {
                    switch (classes.apply().action_run) {
                        unpaced: { hdr.ipv4.ecn = 0; }
                        paced_static: {
                            bit<64> c_ns;
                            bit<32> c_frac;
                            tm.now(meta.now_ns);
                            tm.backlog(meta.class_id, meta.backlog);
                            clock_ns.read(c_ns, meta.class_id);
                            clock_frac.read(c_frac, meta.class_id);
                            bit<32> frame_bytes = sm.packet_length + 4;
                            bit<64> cost = (bit<64>)frame_bytes * tpb;
                            bit<64> start_ns = meta.now_ns;
                            bit<64> start_frac = 0;
                            if (c_ns >= meta.now_ns) {
                                start_ns = c_ns;
                                start_frac = (bit<64>)c_frac;
                            }
                            if (meta.backlog + frame_bytes > limit) {
                                class_limit_drops.count(meta.class_id);
                                mark_to_drop(sm);
                            } else {
                                bit<64> frac = start_frac + (bit<64>)cost[23:0];
                                clock_ns.write(meta.class_id,
                                               start_ns + (cost >> 24) + (frac >> 24));
                                clock_frac.write(meta.class_id, (bit<32>)frac[23:0]);
                                bit<64> departure_ns = start_ns;
                                if (start_frac != 0) { departure_ns = departure_ns + 1; }
                                tm.hold(meta.class_id, departure_ns, cost, allowance);
                                class_accepted.count(meta.class_id);
                            }
                        }
                        default: {}
                    }
                }
            }
        }
    }
}

control FlowEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    TrafficManager() tm;
    bit<64> now_ns = 0;
    apply {
        tm.now(now_ns);
        if (sm.mcast_grp != 0 && sm.egress_port == sm.ingress_port) {
            mark_to_drop(sm);
        }
        if (sm.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = sm.ingress_port;
            hdr.packet_in.reason = 1;
            truncate(64);
        }
    }
}

control FlowCompute(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len,
              hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control FlowDeparser(packet_out b, in headers_t hdr) {
    apply {
        b.emit(hdr.packet_in);
        b.emit(hdr.ethernet);
        b.emit(hdr.vlan);
        b.emit(hdr.ipv4);
        b.emit(hdr.ipv6);
        b.emit(hdr.tcp);
        b.emit(hdr.udp);
    }
}

V1Switch(FlowParser(), FlowVerify(), FlowIngress(), FlowEgress(), FlowCompute(),
         FlowDeparser()) main;
