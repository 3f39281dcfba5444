// Parser value sets, alone and beside constants.
#include "include/frame.p4"

header h_t { bit<8> kind; bit<12> port; bit<4> x; bit<8> result; }
struct H { h_t h; }
struct M { bit<8> found; }
struct pair_t { @match(exact) bit<12> port; @match(exact) bit<4> x; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    value_set<bit<8>>(4) kinds;
    value_set<pair_t>(4) pairs;
    state start {
        p.extract(h.h);
        m.found = 0;
        transition select(h.h.kind) {
            0x99: constant;
            kinds: kind;
            default: second;
        }
    }
    state constant { m.found = 1; transition accept; }
    state kind { m.found = 2; transition accept; }
    state second {
        transition select(h.h.port, h.h.x) {
            pairs: pair;
            default: accept;
        }
    }
    state pair { m.found = 3; transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply { s.egress_spec = 1; if (h.h.isValid()) { h.h.result = m.found; } }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
