// Enumerations with and without values, booleans in headers, tuples and nested structures.
#include "include/frame.p4"

enum bit<8> Kind { First = 1, Second = 2, Third = 0x30 }
enum Colour { Red, Green, Blue }
header h_t { Kind kind; bool yes; bit<7> n; bit<16> v; }
struct inner_t { bit<16> v; Colour colour; bool even; }
struct outer_t { inner_t a; inner_t b; }
struct H { h_t h; h_t again; }
struct M { outer_t o; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.h);
        transition select(h.h.kind) { Kind.First: accept; Kind.Third: again; default: accept; }
    }
    state again { p.extract(h.again); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action kind(Kind k) { h.h.kind = k; }
    action swap() { inner_t t = m.o.a; m.o.a = m.o.b; m.o.b = t; }
    table t { key = { h.h.kind: exact; m.o.a.even: exact; } actions = { kind; swap; } default_action = swap(); }
    apply {
        s.egress_spec = 1;
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        m.o.a = { h.h.v, Colour.Green, h.h.v[0:0] == 0 };
        m.o.b = { h.h.v + 1, Colour.Blue, !m.o.a.even };
        t.apply();
        if (m.o.a.colour == Colour.Blue) { h.h.yes = !h.h.yes; }
        if (m.o.a == m.o.b) { h.h.n = 0x7f; } else { h.h.v = m.o.a.v; }
        if (h.h.kind == Kind.Second || h.again.isValid() && h.again.yes) { h.h.n = h.h.n + 1; }
        tuple<bit<16>, bit<7>> both = { h.h.v, h.h.n };
        h.h.n = both[1] ^ both[0][6:0];
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
