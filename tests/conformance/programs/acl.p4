// Rules for five-tuples with ranges, masks and optional fields, under priorities; two in a row.
#include "include/frame.p4"

header ip_t { bit<8> protocol; bit<32> src; bit<32> dst; }
header ports_t { bit<16> src; bit<16> dst; }
struct H { ip_t ip; ports_t ports; }
struct M { bit<16> src; bit<16> dst; bit<8> mark; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.ip);
        transition select(h.ip.protocol) { 6: ports; 17: ports; default: accept; }
    }
    state ports { p.extract(h.ports); m.src = h.ports.src; m.dst = h.ports.dst; transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    direct_counter(CounterType.packets_and_bytes) hits;
    action permit(bit<9> port) { hits.count(); s.egress_spec = port; }
    action deny() { hits.count(); mark_to_drop(s); }
    action mark(bit<8> value) { m.mark = value; }
    table rules {
        key = {
            h.ip.src: ternary; h.ip.dst: ternary; h.ip.protocol: ternary;
            m.src: range; m.dst: range; h.ports.isValid(): ternary;
        }
        actions = { permit; deny; }
        default_action = permit(1);
        counters = hits;
    }
    table marks {
        key = { h.ip.protocol: optional; m.dst: range; h.ip.dst: ternary; }
        actions = { mark; NoAction; }
        default_action = NoAction();
    }
    apply {
        if (!h.ip.isValid()) { mark_to_drop(s); }
        else if (rules.apply().hit) { marks.apply(); h.ip.protocol = h.ip.protocol + m.mark; }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
