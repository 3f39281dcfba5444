// A variable-length field: extracted, copied with its header, written back; the parser's errors.
#include "include/frame.p4"

header len_t { bit<8> bits; }
header var_t { bit<4> a; varbit<32> v; bit<4> b; }
header err_t { bit<8> code; }
struct H { err_t err; len_t len; var_t first; var_t copy; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start {
        p.extract(h.len);
        p.extract(h.first, (bit<32>)h.len.bits);
        transition accept;
    }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        h.err.setValid();
        if (s.parser_error == error.NoError) { h.err.code = 0; }
        else if (s.parser_error == error.PacketTooShort) { h.err.code = 1; }
        else if (s.parser_error == error.HeaderTooShort) { h.err.code = 2; }
        else if (s.parser_error == error.ParserInvalidArgument) { h.err.code = 3; }
        if (h.first.isValid()) {
            h.copy = h.first;
            h.copy.a = h.first.b;
            h.copy.b = h.first.a;
        }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
