// Checksums: verified and updated, under a condition, over the payload.
#include "include/frame.p4"

header h_t { bit<8> flags; bit<8> x; bit<16> sum; bit<16> with_payload; }
header out_t { bit<8> wrong; }
struct H { out_t o; h_t h; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control V(inout H h, inout M m) {
    apply {
        verify_checksum(h.h.isValid() && h.h.flags[0:0] == 1, { h.h.flags, h.h.x }, h.h.sum, HashAlgorithm.csum16);
        verify_checksum_with_payload(h.h.isValid() && h.h.flags[1:1] == 1, { h.h.flags, h.h.x }, h.h.with_payload,
            HashAlgorithm.csum16);
    }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        h.o.setValid();
        h.o.wrong = (bit<8>)s.checksum_error;
    }
}
control C(inout H h, inout M m) {
    apply {
        update_checksum(h.h.isValid() && h.h.flags[2:2] == 1, { h.h.flags, h.h.x }, h.h.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(h.h.isValid() && h.h.flags[3:3] == 1, { h.h.flags, h.h.x }, h.h.with_payload,
            HashAlgorithm.csum16);
    }
}
NO_EGRESS
MAIN
