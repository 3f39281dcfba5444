// Every match kind, priorities, constant entries, hit and miss, action_run.
#include "include/frame.p4"

// p4c writes `_` of a range this wide as 0..0.
#define ALL 96w0 .. 96w0xffffffffffffffffffffffff

header h_t { bit<8> table_id; bit<32> a; bit<16> b; bit<8> result; }
header w_t { bit<96> wide; }
struct H { h_t h; w_t w; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); p.extract(h.w); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action set(bit<8> v) { h.h.result = v; }
    action miss() { h.h.result = 0xff; }
    table exact_t { key = { h.h.a: exact; h.h.b: exact; } actions = { set; miss; } default_action = miss(); }
    table run_t { key = { h.h.a: exact; } actions = { set; miss; } default_action = miss(); }
    table lpm_t { key = { h.h.b: exact; h.h.a: lpm; } actions = { set; miss; } default_action = miss(); }
    table ternary_t { key = { h.h.a: ternary; h.h.b: ternary; } actions = { set; miss; } default_action = miss(); }
    table valid_t { key = { h.w.isValid(): exact; h.h.b: ternary; } actions = { set; miss; } default_action = miss(); }
    table constant_t {
        key = { h.h.b: range; h.h.a: optional; h.w.wide: range; }
        actions = { set; miss; }
        const default_action = miss();
        const entries = {
            (10..20, 5, ALL): set(1);
            (15..30, _, 96w0x100000000000000000000000 .. 96w0x2fffffffffffffffffffffff): set(2);
            (15..30, _, ALL): set(3);
            (_, 7, ALL): set(4);
        }
    }
    apply {
        s.egress_spec = 1;
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        switch (h.h.table_id) {
            1: { exact_t.apply(); }
            2: { if (lpm_t.apply().miss) { h.h.table_id = 0xee; } }
            3: { ternary_t.apply(); }
            4: { if (h.w.isValid()) { constant_t.apply(); } }
            5: { switch (run_t.apply().action_run) { set: { h.h.b = 0xaaaa; } miss: { h.h.b = 0xbbbb; } } }
            6: { valid_t.apply(); }
        }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
