// Header unions: one member valid at a time; a stack of unions.
#include "include/frame.p4"

header kind_t { bit<8> kind; }
header a_t { bit<8> x; }
header b_t { bit<16> y; }
header_union u_t { a_t a; b_t b; }
header count_t { bit<8> valid; }
struct H { kind_t kind; count_t result; u_t u; u_t[3] options; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.kind);
        transition select(h.kind.kind) {
            1: a;
            2: b;
            3: option;
            default: accept;
        }
    }
    state a { p.extract(h.u.a); transition accept; }
    state b { p.extract(h.u.b); transition accept; }
    state option {
        transition select(p.lookahead<bit<8>>()) {
            0xaa: option_a;
            0xbb: option_b;
            default: accept;
        }
    }
    state option_a { p.extract(h.options.next.a); transition option; }
    state option_b { p.extract(h.options.next.b); transition option; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        h.result.setValid();
        if (h.u.a.isValid()) {
            h.result.valid = 1;
            h.u.b.setValid();
            h.u.b.y = 0x1234;
        } else if (h.u.b.isValid()) {
            h.result.valid = 2;
            h.u.b.setInvalid();
        }
        if (h.options[1].a.isValid()) { h.result.valid = 0x10; }
        if (h.options[1].b.isValid()) { h.result.valid = 0x20; h.options[1].b.y = 0xbbff; }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
