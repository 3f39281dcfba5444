// Fields and parameters of no bits, and messages without values.
#include "include/frame.p4"

header h_t { bit<0> a; bit<8> kind; bit<64> wide; bit<0> b; bit<8> last; bit<0> c; }
struct H { h_t h; }
struct M { bit<0> nothing; bit<16> sum; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    action to(bit<0> none, bit<9> port, bit<0> n) { s.egress_spec = port; m.nothing = none + n; }
    action drop() { mark_to_drop(s); }
    table forward {
        key = { h.h.wide: exact; h.h.b: exact; h.h.kind: exact; }
        actions = { to; drop; }
        default_action = drop();
        const entries = {
            (0x0102030405060708, 0, 1) : to(0, 2, 0);
            (0x0102030405060708, 0, 2) : to(0, 3, 0);
        }
    }
    apply {
        log_msg("a packet came");
        m.nothing = h.h.a;
        h.h.b = m.nothing + 0;
        h.h.last = h.h.last ++ h.h.a;
        if (h.h.c == h.h.b) { h.h.last = h.h.last + 1; }
        hash(m.sum, HashAlgorithm.csum16, 16w0, { h.h.a, h.h.kind, h.h.b, h.h.last }, 32w65536);
        forward.apply();
        if (m.sum == 0xfef2) { h.h.kind = 0xff; log_msg("sum {}", { m.sum }); }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
