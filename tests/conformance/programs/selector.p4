// Action profiles, shared by two tables, and a selector.
#include "include/frame.p4"

header h_t { bit<8> k; bit<8> hashed; }
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action to(bit<9> port) { s.egress_spec = port; }
    action drop() { mark_to_drop(s); }
    @name("choice") action_selector(HashAlgorithm.identity, 16, 8) choice;
    @name("fixed") action_profile(16) fixed;
    table spread {
        key = { h.h.k: exact; h.h.hashed: selector; }
        actions = { to; drop; }
        implementation = choice;
    }
    table one {
        key = { h.h.k: exact; }
        actions = { to; drop; }
        implementation = fixed;
    }
    apply { if (!h.h.isValid()) { drop(); } else if (!spread.apply().hit) { one.apply(); } }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
