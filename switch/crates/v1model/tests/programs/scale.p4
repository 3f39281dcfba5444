// A table of each match kind with room for many entries; the packet says which one it wants.
#include <core.p4>
#include <v1model.p4>

#define ENTRIES 131072

header query_t {
    bit<8> which;
    bit<32> address;
    bit<32> other;
    bit<16> port;
    bit<16> other_port;
    bit<16> result;
}

struct headers_t {
    query_t query;
}

struct metadata_t { }

parser ScaleParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.query);
        transition accept;
    }
}

control ScaleVerify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control ScaleIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    action answer(bit<16> value) {
        hdr.query.result = value;
        standard_metadata.egress_spec = 1;
    }

    table by_exact {
        key = { hdr.query.address: exact; hdr.query.other: exact; }
        actions = { answer; NoAction; }
        const default_action = NoAction;
        size = ENTRIES;
    }

    table by_lpm {
        key = { hdr.query.address: lpm; }
        actions = { answer; NoAction; }
        const default_action = NoAction;
        size = ENTRIES;
    }

    table by_ternary {
        key = { hdr.query.address: ternary; hdr.query.other: ternary; hdr.query.port: ternary; }
        actions = { answer; NoAction; }
        const default_action = NoAction;
        size = ENTRIES;
    }

    table by_range {
        key = { hdr.query.address: exact; hdr.query.port: range; hdr.query.other_port: range; }
        actions = { answer; NoAction; }
        const default_action = NoAction;
        size = ENTRIES;
    }

    table by_optional {
        key = { hdr.query.address: optional; hdr.query.other: optional; }
        actions = { answer; NoAction; }
        const default_action = NoAction;
        size = ENTRIES;
    }

    apply {
        if (hdr.query.which == 0) {
            by_exact.apply();
        } else if (hdr.query.which == 1) {
            by_lpm.apply();
        } else if (hdr.query.which == 2) {
            by_ternary.apply();
        } else if (hdr.query.which == 3) {
            by_range.apply();
        } else if (hdr.query.which == 4) {
            by_optional.apply();
        }
    }
}

control ScaleEgress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    apply { }
}

control ScaleCompute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control ScaleDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.query);
    }
}

V1Switch(ScaleParser(), ScaleVerify(), ScaleIngress(), ScaleEgress(), ScaleCompute(),
         ScaleDeparser()) main;
