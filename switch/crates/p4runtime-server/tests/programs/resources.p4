// What tables, meters, registers and digests have beside the plain cases of kinds.p4. Its compiled
// form lies beside it; made by
//   p4c-bm2-ss -o resources.json --p4runtime-files resources.p4info.txtpb resources.p4
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header tag_t {
    bit<3> priority;
    int<13> offset;
    bit<16> type;
}

struct headers_t {
    ethernet_t ethernet;
    tag_t tag;
}

enum Kind { PLAIN, TAGGED }

type int<12> Offset_t;

struct metadata_t {
    bit<2> colour;
}

// A digest with headers in it, one of which a packet may not have.
struct seen_t {
    bit<9> port;
    ethernet_t ethernet;
    tag_t tag;
    bool last;
}

parser ResourcesParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x8100: tag;
            default: accept;
        }
    }
    state tag {
        packet.extract(hdr.tag);
        transition accept;
    }
}

control ResourcesVerify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control ResourcesIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) station_counter;
    direct_meter<bit<2>>(MeterType.bytes) station_meter;
    direct_counter(CounterType.packets_and_bytes) all_counter;
    direct_counter(CounterType.packets_and_bytes) fixed_counter;
    @single_rate_three_color meter(4, MeterType.packets) single;
    @single_rate_two_color meter(4, MeterType.packets) two;
    meter(4, MeterType.packets) double;
    register<int<12>>(4) offsets;
    register<Offset_t>(4) named_offsets;
    register<Kind>(4) kinds;
    register<bit<32>>(100000) marks;
    counter(100000, CounterType.packets) frames;
    meter(100000, MeterType.packets) rates;

    action send(bit<9> port) { std.egress_spec = port; }
    action metered(bit<9> port) {
        std.egress_spec = port;
        station_meter.read(meta.colour);
    }

    table stations {
        key = { hdr.ethernet.src : exact; }
        actions = { metered; NoAction; }
        default_action = NoAction();
        counters = station_counter;
        meters = station_meter;
        size = 16;
    }

    table all {
        actions = { send; NoAction; }
        default_action = send(2);
        counters = all_counter;
    }

    table fixed {
        key = { hdr.ethernet.dst : exact; }
        actions = { send; NoAction; }
        const default_action = NoAction();
        counters = fixed_counter;
        size = 16;
    }

    apply {
        all.apply();
        stations.apply();
        fixed.apply();
        bit<2> colour = 0;
        single.execute_meter(0, colour);
        hdr.ethernet.dst[1:0] = colour;
        two.execute_meter(0, colour);
        hdr.ethernet.dst[3:2] = colour;
        double.execute_meter(0, colour);
        hdr.ethernet.dst[5:4] = colour;
        hdr.ethernet.dst[7:6] = meta.colour;
        if (hdr.tag.isValid()) {
            int<12> offset = (int<12>) hdr.tag.offset;
            offsets.write(1, offset);
            named_offsets.write(1, (Offset_t) offset);
            kinds.write(1, Kind.TAGGED);
        }
        marks.write(1, 7);
        frames.count(1);
        rates.execute_meter(1, meta.colour);
        digest<seen_t>(1, { std.ingress_port, hdr.ethernet, hdr.tag, hdr.tag.isValid() });
    }
}

control ResourcesEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {}
}

control ResourcesCompute(inout headers_t hdr, inout metadata_t meta) { apply {} }

control ResourcesDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.tag);
    }
}

V1Switch(ResourcesParser(), ResourcesVerify(), ResourcesIngress(), ResourcesEgress(),
         ResourcesCompute(), ResourcesDeparser()) main;
