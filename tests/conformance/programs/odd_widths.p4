// Fields that keep to no byte: cut, joined, compared, counted round.
#include "include/frame.p4"

header h_t { bit<1> a; bit<3> b; bit<7> c; bit<13> d; bit<33> e; bit<65> f; bit<5> g; bit<1> z; }
struct H { h_t h; h_t second; }
struct M { bit<11> eleven; bool both; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.h);
        transition select(h.h.a ++ h.h.b, h.h.g) {
            (0x3, _): second;
            (_, 5w3..5w17): second;
            (0x8 &&& 0x9, 5w20 &&& 5w0x1c): second;
            default: accept;
        }
    }
    state second { p.extract(h.second); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action set(bit<3> b, bit<13> d, bit<65> f) { h.h.b = b; h.h.d = d; h.h.f = f; }
    action flip() { h.h.a = ~h.h.a; h.h.z = h.h.z ^ h.h.a; }
    action drop() { mark_to_drop(s); }
    table t { key = { h.h.c: exact; h.h.d: ternary; h.h.a: exact; } actions = { set; flip; drop; } default_action = flip(); }
    table u { key = { h.h.e: lpm; } actions = { flip; drop; NoAction; } default_action = NoAction(); }
    apply {
        s.egress_spec = 4;
        if (h.h.isValid()) {
            m.eleven = h.h.c ++ h.h.b ++ h.h.a;
            m.both = h.second.isValid() && h.h.z == 1;
            t.apply();
            u.apply();
            h.h.d = h.h.d + (bit<13>)m.eleven;
            h.h.e = h.h.e - 33w0x1_0000_0001;
            h.h.f[40:30] = m.eleven;
            if (m.both) { h.second.f = h.h.f * 3; h.second.g = h.h.e[17:13]; h.second.b = h.h.f[64:62]; }
        } else { drop(); }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
