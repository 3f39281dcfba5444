// The hash algorithms over "123456789", with base and size.
#include "include/frame.p4"

header in_t { bit<72> data; }
header out_t { bit<16> crc16; bit<32> crc32; bit<16> csum16; bit<16> xor16; bit<64> identity; bit<16> limited; bit<16> none; }
struct H { in_t i; out_t o; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.i); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        if (!h.i.isValid()) { mark_to_drop(s); exit; }
        s.egress_spec = 1;
        h.o.setValid();
        hash(h.o.crc16, HashAlgorithm.crc16, 16w0, { h.i.data }, 32w0x10000);
        hash(h.o.crc32, HashAlgorithm.crc32, 32w0, { h.i.data }, 64w0x100000000);
        hash(h.o.csum16, HashAlgorithm.csum16, 16w0, { h.i.data }, 32w0x10000);
        hash(h.o.xor16, HashAlgorithm.xor16, 16w0, { h.i.data }, 32w0x10000);
        hash(h.o.identity, HashAlgorithm.identity, 64w0, { h.i.data }, 64w0xffffffffffffffff);
        hash(h.o.limited, HashAlgorithm.crc16, 16w100, { h.i.data }, 32w1000);
        hash(h.o.none, HashAlgorithm.crc16, 16w100, { h.i.data }, 32w0);
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
