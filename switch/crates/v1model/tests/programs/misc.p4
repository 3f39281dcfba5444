// Clone, resubmit, recirculate, truncate, hashes, const entries, header copy, lookahead,
// advance, indexed stacks, ranges, optional keys, log_msg, assert.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
header label_t { bit<20> label; bit<3> tc; bit<1> s; bit<8> ttl; }
header op_t { bit<8> op; bit<8> x; bit<16> y; bit<32> z; }
struct headers_t { ethernet_t ethernet; ethernet_t outer; label_t[4] labels; op_t op; }
struct meta_t {
    @field_list(1) bit<8> times;
    @field_list(1, 2) bit<16> kept;
    bit<32> lost;
    bit<16> peek;
    bit<16> h16;
    bit<32> h32;
    bit<16> hx;
    bit<32> hid;
    bit<16> hc;
}
error { BadOp }

parser P(packet_in b, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        b.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x8847: labels;
            0x1234 &&& 0xfff0: op;
            0x5555: skip;
            default: accept;
        }
    }
    state labels {
        b.extract(hdr.labels.next);
        transition select(hdr.labels.last.s) {
            0: labels;
            1: accept;
        }
    }
    state skip {
        meta.peek = b.lookahead<bit<16>>();
        b.advance(32);
        transition op;
    }
    state op {
        b.extract(hdr.op);
        verify(hdr.op.op != 255, error.BadOp);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    action to(bit<9> port) { sm.egress_spec = port; }
    action drop() { mark_to_drop(sm); }
    table fixed {
        key = { hdr.op.op: ternary; hdr.op.x: range; hdr.op.y: optional; }
        actions = { to; drop; }
        const default_action = drop();
        const entries = {
            (1, _, _): to(1);
            (2 &&& 0xfe, 10..20, _): to(2);
            (_, _, 77): to(3);
            (_, 100..255, _): to(4);
        }
    }
    apply {
        hash(meta.h16, HashAlgorithm.crc16, 16w0, { hdr.ethernet.dst, hdr.ethernet.src }, 32w65536);
        hash(meta.h32, HashAlgorithm.crc32, 32w0, { hdr.ethernet.dst, hdr.ethernet.src }, 64w4294967296);
        hash(meta.hx, HashAlgorithm.xor16, 16w5, { hdr.ethernet.dst, hdr.ethernet.src }, 32w100);
        hash(meta.hid, HashAlgorithm.identity, 32w0, { hdr.op.z }, 64w4294967296);
        hash(meta.hc, HashAlgorithm.csum16, 16w0, { hdr.ethernet.dst, hdr.ethernet.src }, 32w65536);
        log_msg("op {} of {}", { hdr.op.op, hdr.ethernet.src });
        assert(meta.times < 5);
        fixed.apply();
        meta.kept = hdr.op.y + 1;
        meta.lost = 7;
        if (hdr.op.op == 10) { clone(CloneType.I2E, 32w5); sm.egress_spec = 1; }
        if (hdr.op.op == 11) { clone_preserving_field_list(CloneType.I2E, 32w6, 2); sm.egress_spec = 1; }
        if (hdr.op.op == 12 && meta.times < 3) {
            meta.times = meta.times + 1;
            resubmit_preserving_field_list(1);
        }
        if (hdr.op.op == 13) { sm.egress_spec = 1; }
        if (hdr.op.op == 14) { hdr.outer = hdr.ethernet; hdr.outer.src = 0x020000000001; sm.egress_spec = 1; }
        if (hdr.op.op == 15) { truncate(20); sm.egress_spec = 1; }
        if (hdr.op.op == 16) {
            sm.egress_spec = 1;
            hdr.op.y = meta.h16;
            hdr.op.z = meta.h32;
            hdr.ethernet.ether_type = meta.hx;
            hdr.ethernet.dst = (bit<48>)meta.hid;
            hdr.ethernet.src = (bit<48>)meta.hc;
        }
        if (hdr.op.op == 17) {
            sm.egress_spec = 1;
            hdr.op.setInvalid();
            hdr.op.setValid();
            hdr.op.x = hdr.op.y == 0 ? 8w1 : 8w2;
        }
        if (hdr.labels[0].isValid()) {
            sm.egress_spec = 2;
            hdr.labels[0].ttl = hdr.labels[0].ttl - 1;
            if (hdr.labels[1].isValid()) { hdr.labels.pop_front(1); }
            else { hdr.labels.push_front(1); hdr.labels[0].setValid(); hdr.labels[0].label = 99; }
        }
        if (hdr.ethernet.ether_type == 0x5555) { hdr.op.y = meta.peek; sm.egress_spec = 3; }
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        if (sm.instance_type == 1) {
            hdr.op.y = meta.kept;
            hdr.op.z = meta.lost;
        } else if (hdr.op.op == 13 && sm.instance_type != 4) {
            hdr.op.x = hdr.op.x + 1;
            if (hdr.op.x < 4) { recirculate_preserving_field_list(2); }
        } else if (hdr.op.op == 18 && sm.instance_type == 0) {
            clone_preserving_field_list(CloneType.E2E, 32w7, 1);
        }
    }
}
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) {
    apply { b.emit(hdr.outer); b.emit(hdr.ethernet); b.emit(hdr.labels); b.emit(hdr.op); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
