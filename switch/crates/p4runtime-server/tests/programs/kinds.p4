// Every match kind, table kind and array that the P4Runtime server translates, in one small
// program. Its compiled form lies beside it; made by
//   p4c-bm2-ss -o kinds.json --p4runtime-files kinds.p4info.txtpb kinds.p4
#include <core.p4>
#include <v1model.p4>

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

struct metadata_t {}

parser KindsParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control KindsVerify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control KindsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) route_counter;
    direct_meter<bit<2>>(MeterType.packets) route_meter;
    counter(16, CounterType.packets_and_bytes) seen;
    meter(8, MeterType.bytes) limits;
    register<bit<12>>(10000) tags;
    register<Mode>(4) modes;
    bit<2> colour = 0;

    action send(bit<9> port) { std.egress_spec = port; }
    action drop() { mark_to_drop(std); }
    action set_dst(bit<48> dst, bit<9> port) {
        route_meter.read(colour);
        hdr.ethernet.dst = dst;
        std.egress_spec = port;
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

    apply {
        routes.apply();
        filters.apply();
        fixed.apply();
        everything.apply();
        seen.count((bit<32>) std.ingress_port);
        limits.execute_meter((bit<32>) std.ingress_port, colour);
        tags.write((bit<32>) std.ingress_port, (bit<12>) colour);
        modes.write(0, Mode.ON);
    }
}

control KindsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {}
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
