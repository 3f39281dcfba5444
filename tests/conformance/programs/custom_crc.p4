// Every hash over fields of odd widths, with a base and a size.
#include "include/frame.p4"

header in_t { bit<3> a; bit<13> b; bit<32> c; bit<9> d; bit<7> e; bit<128> f; }
header out_t { bit<32> r0; bit<32> r1; bit<32> r2; bit<32> r3; bit<32> r4; bit<64> r5; bit<16> r6; bit<16> r7; bit<32> r8; }
struct H { in_t i; in_t j; out_t o; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.i); transition select(h.i.a) { 5: two; default: accept; } }
    state two { p.extract(h.j); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (!h.i.isValid()) { mark_to_drop(s); exit; }
        h.o.setValid();
        hash(h.o.r0, HashAlgorithm.crc16, 32w0, { h.i.a, h.i.b, h.i.c }, 32w0xffff);
        hash(h.o.r1, HashAlgorithm.crc32, 32w7, { h.i.a, h.i.d, h.i.f }, 32w1000);
        hash(h.o.r2, HashAlgorithm.crc16_custom, 32w1, { h.i.b, h.i.a, 7w3 }, 32w5000);
        hash(h.o.r3, HashAlgorithm.crc32_custom, 32w0, { h.i.e, h.i.f }, 64w0x100000000);
        hash(h.o.r4, HashAlgorithm.csum16, 32w10, { h.i.b, h.i.a, h.i.c, h.i.d, h.i.e }, 32w0x8000);
        hash(h.o.r5, HashAlgorithm.identity, 64w0, { h.i.c, h.i.d, h.i.e }, 64w0x1000000000000);
        hash(h.o.r6, HashAlgorithm.xor16, 16w0, { h.i.c, h.i.f }, 32w0x10000);
        hash(h.o.r7, HashAlgorithm.csum16, 16w0, { h.i, 16w0xabcd }, 32w0x10000);
        hash(h.o.r8, HashAlgorithm.crc32, 32w0, { h.i, h.j }, 64w0x100000000);
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
