// Every match kind, table kind, array and engine that the P4Runtime server translates, in one small
// program. Its compiled form lies beside it; made by
//   p4c-bm2-ss -o kinds.json --p4runtime-files kinds.p4info.txtpb kinds.p4
#include <core.p4>
#include <v1model.p4>

#define CPU_PORT 510

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> reason;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    @padding bit<7> pad;
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
}

enum bit<8> Mode { OFF = 0, ON = 1 }

// What a value set's members match.
struct tag_t {
    @match(ternary) bit<16> type;
    bit<48> src;
}

// What a packet tells the controller.
struct seen_t {
    bit<48> src;
    int<12> offset;
    bool tagged;
    Mode mode;
    bit<9> port;
}

struct metadata_t {
    bool tagged;
}

parser KindsParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t std) {
    value_set<bit<16>>(4) types;
    value_set<tag_t>(2) tags;

    state start {
        transition select(std.ingress_port) {
            CPU_PORT: from_controller;
            default: ethernet;
        }
    }
    state from_controller {
        packet.extract(hdr.packet_out);
        transition ethernet;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type, hdr.ethernet.src) {
            tags: tagged;
            default: by_type;
        }
    }
    state by_type {
        transition select(hdr.ethernet.type) {
            types: tagged;
            default: accept;
        }
    }
    state tagged {
        meta.tagged = true;
        transition accept;
    }
}

control KindsVerify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control KindsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) route_counter;
    direct_meter<bit<2>>(MeterType.packets) route_meter;
    counter(16, CounterType.packets_and_bytes) seen;
    meter(8, MeterType.bytes) limits;
    register<bit<12>>(10000) marks;
    register<Mode>(4) modes;
    bit<2> colour = 0;

    action send(bit<9> port) { std.egress_spec = port; }
    action drop() { mark_to_drop(std); }
    action set_dst(bit<48> dst, bit<9> port) {
        route_meter.read(colour);
        hdr.ethernet.dst = dst;
        std.egress_spec = port;
    }
    action replicate(bit<16> group) { std.mcast_grp = group; }
    action mirror(bit<9> port) {
        std.egress_spec = port;
        clone(CloneType.I2E, 7);
    }
    action learn(bit<9> port) {
        std.egress_spec = port;
        digest<seen_t>(1, {
            hdr.ethernet.src, -12s2, meta.tagged, Mode.ON, std.ingress_port
        });
    }

    table routes {
        key = { hdr.ethernet.dst : lpm; std.ingress_port : exact; }
        actions = { set_dst; @tableonly send; @defaultonly drop; }
        default_action = drop();
        counters = route_counter;
        meters = route_meter;
        size = 4;
    }

    table filters {
        key = {
            hdr.ethernet.type : range @name("type");
            hdr.ethernet.src : optional @name("source");
            std.ingress_port : ternary @name("port");
        }
        actions = { send; drop; NoAction; }
        size = 64;
    }

    table fixed {
        key = { std.ingress_port : exact; }
        actions = { send; drop; }
        const default_action = drop();
        const entries = {
            1 : send(2);
            2 : send(1);
        }
    }

    table everything {
        actions = { send; drop; }
        default_action = send(3);
    }

    // What the tests send packets through: applied last.
    table special {
        key = { hdr.ethernet.dst : exact; }
        actions = { send; replicate; mirror; learn; drop; }
        support_timeout = true;
        size = 1024;
    }

    @max_group_size(6)
    action_selector(HashAlgorithm.crc16, 16, 16) paths;
    table spread {
        key = { hdr.ethernet.dst : exact; hdr.ethernet.src : selector; }
        actions = { send; drop; NoAction; }
        implementation = paths;
    }

    action_profile(4) shared;
    table indirect {
        key = { hdr.ethernet.dst : exact; }
        actions = { send; @defaultonly NoAction; }
        implementation = shared;
    }

    apply {
        if (hdr.packet_out.isValid()) {
            std.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            routes.apply();
            filters.apply();
            fixed.apply();
            everything.apply();
            spread.apply();
            indirect.apply();
            special.apply();
            if (meta.tagged) {
                std.egress_spec = 2;
            }
            seen.count((bit<32>) std.ingress_port);
            limits.execute_meter((bit<32>) std.ingress_port, colour);
            marks.write((bit<32>) std.ingress_port, (bit<12>) colour);
            modes.write(0, Mode.ON);
        }
    }
}

control KindsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (std.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
            hdr.packet_in.reason = (bit<7>) std.instance_type;
        }
    }
}

control KindsCompute(inout headers_t hdr, inout metadata_t meta) { apply {} }

control KindsDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.packet_out);
        packet.emit(hdr.ethernet);
    }
}

V1Switch(KindsParser(), KindsVerify(), KindsIngress(), KindsEgress(), KindsCompute(),
         KindsDeparser()) main;
