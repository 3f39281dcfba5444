// Declares a wire of two ports that reads Ethernet and IPv4 headers: a packet that enters port 1
// leaves port 2, and the other way round. Plain v1model, the same for every target.
#ifndef IP_WIRE_P4
#define IP_WIRE_P4

// Codepoints of RFC 3168, and RFC 9331.
const bit<2> ECN_ECT_1 = 1;
const bit<2> ECN_ECT_0 = 2;
const bit<2> ECN_CE = 3;

header ethernet_t {
    bit<48> dst_mac;
    bit<48> src_mac;
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

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata_t { }

parser WireParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x0800: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control WireVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

// Sets DSCP and ECN, and updates the header's checksum.
control SetTos(inout ipv4_t ipv4, in bit<6> dscp, in bit<2> ecn) {
    ChecksumUpdate() checksum_update;

    apply {
        checksum_update.apply(ipv4.checksum, (bit<16>) (ipv4.dscp ++ ipv4.ecn),
                              (bit<16>) (dscp ++ ecn));
        ipv4.dscp = dscp;
        ipv4.ecn = ecn;
    }
}

control Wire(inout standard_metadata_t standard_metadata) {
    counter(DROP_CAUSES, CounterType.packets_and_bytes) drops;

    action send_to(bit<9> port) {
        standard_metadata.egress_spec = port;
    }

    action drop_unwired() {
        drops.count(DROP_NO_ROUTE);
        mark_to_drop(standard_metadata);
    }

    table ports {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
        }
        actions = { send_to; @defaultonly drop_unwired; }
        const default_action = drop_unwired;
        const entries = {
            1: send_to(2);
            2: send_to(1);
        }
    }

    apply {
        ports.apply();
    }
}

// A control that changes a field updates the checksum.
control WireComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control WireDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

#endif
