// Every operator p4c writes into BMv2 JSON, at small, word-sized, 65-bit and 128-bit widths,
// signed and unsigned, wrapping and saturating. Operands come from the packet, results go
// back into it.
#include <core.p4>
#include <v1model.p4>

header in8_t { bit<8> op; bit<8> a; bit<8> b; }
header out8_t {
    bit<8> add; bit<8> sub; bit<8> mul; bit<8> and_; bit<8> or_; bit<8> xor_; bit<8> not_; bit<8> neg;
    bit<8> shl; bit<8> shr; bit<8> satadd; bit<8> satsub; bit<8> lt; bit<8> le; bit<8> slice; bit<16> cat;
    bit<8> mux; int<8> iadd; int<8> isub; int<8> ishr; int<8> isatadd; int<8> isatsub; bit<8> ilt;
    int<16> iext; bit<8> land; bit<8> lor;
}
header in64_t { bit<64> a; bit<64> b; bit<8> n; }
header out64_t {
    bit<64> add; bit<64> sub; bit<64> mul; bit<64> shl; bit<64> shr; bit<64> satadd; bit<64> satsub; bit<64> not_;
    bit<8> lt; int<64> ishr; bit<64> hi32; bit<128> wide_mul; bit<64> mid;
}
header in128_t { bit<128> a; bit<128> b; bit<8> n; }
header out128_t {
    bit<128> add; bit<128> sub; bit<128> mul; bit<128> and_; bit<128> or_; bit<128> xor_; bit<128> not_;
    bit<128> shl; bit<128> shr; bit<8> lt; bit<8> eq; bit<64> low; bit<64> high; bit<256> cat;
    bit<128> satadd; bit<128> satsub; bit<64> mid; bit<128> ins; int<128> ishr; bit<8> ilt;
}
struct headers_t { in8_t in8; out8_t out8; in64_t in64; out64_t out64; in128_t in128; out128_t out128; }
struct meta_t { }

parser P(packet_in b, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        b.extract(hdr.in8);
        transition select(hdr.in8.op) {
            1: p64;
            2: p128;
            default: accept;
        }
    }
    state p64 { b.extract(hdr.in64); transition accept; }
    state p128 { b.extract(hdr.in128); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        bit<8> a = hdr.in8.a;
        bit<8> b = hdr.in8.b;
        hdr.out8.setValid();
        hdr.out8.add = a + b;
        hdr.out8.sub = a - b;
        hdr.out8.mul = a * b;
        hdr.out8.and_ = a & b;
        hdr.out8.or_ = a | b;
        hdr.out8.xor_ = a ^ b;
        hdr.out8.not_ = ~a;
        hdr.out8.neg = -a;
        hdr.out8.shl = a << b;
        hdr.out8.shr = a >> b;
        hdr.out8.satadd = a |+| b;
        hdr.out8.satsub = a |-| b;
        hdr.out8.lt = a < b ? 8w1 : 0;
        hdr.out8.le = a <= b ? 8w1 : 0;
        hdr.out8.slice = (bit<8>)a[6:3];
        hdr.out8.cat = a ++ b;
        hdr.out8.mux = a == b ? a : b;
        hdr.out8.iadd = (int<8>)a + (int<8>)b;
        hdr.out8.isub = (int<8>)a - (int<8>)b;
        hdr.out8.ishr = (int<8>)a >> b;
        hdr.out8.isatadd = (int<8>)a |+| (int<8>)b;
        hdr.out8.isatsub = (int<8>)a |-| (int<8>)b;
        hdr.out8.ilt = ((int<8>)a < (int<8>)b) ? 8w1 : 0;
        hdr.out8.iext = (int<16>)(int<8>)a;
        hdr.out8.land = (a != 0 && b != 0) ? 8w1 : 0;
        hdr.out8.lor = (a > 0 || !(b >= 1)) ? 8w1 : 0;
        if (hdr.in64.isValid()) {
            bit<64> x = hdr.in64.a;
            bit<64> y = hdr.in64.b;
            hdr.out64.setValid();
            hdr.out64.add = x + y;
            hdr.out64.sub = x - y;
            hdr.out64.mul = x * y;
            hdr.out64.shl = x << hdr.in64.n;
            hdr.out64.shr = x >> hdr.in64.n;
            hdr.out64.satadd = x |+| y;
            hdr.out64.satsub = x |-| y;
            hdr.out64.not_ = ~x;
            hdr.out64.lt = x < y ? 8w1 : 0;
            hdr.out64.ishr = (int<64>)x >> hdr.in64.n;
            hdr.out64.hi32 = (bit<64>)x[63:32];
            hdr.out64.wide_mul = (bit<128>)x * (bit<128>)y;
            hdr.out64.mid = y;
            hdr.out64.mid[47:16] = x[31:0];
        }
        if (hdr.in128.isValid()) {
            bit<128> x = hdr.in128.a;
            bit<128> y = hdr.in128.b;
            hdr.out128.setValid();
            hdr.out128.add = x + y;
            hdr.out128.sub = x - y;
            hdr.out128.mul = x * y;
            hdr.out128.and_ = x & y;
            hdr.out128.or_ = x | y;
            hdr.out128.xor_ = x ^ y;
            hdr.out128.not_ = ~x;
            hdr.out128.shl = x << hdr.in128.n;
            hdr.out128.shr = x >> hdr.in128.n;
            hdr.out128.lt = x < y ? 8w1 : 0;
            hdr.out128.eq = x == y ? 8w1 : 0;
            hdr.out128.low = x[63:0];
            hdr.out128.high = x[127:64];
            hdr.out128.cat = x ++ y;
            hdr.out128.satadd = x |+| y;
            hdr.out128.satsub = x |-| y;
            hdr.out128.mid = x[95:32];
            hdr.out128.ins = y;
            hdr.out128.ins[99:36] = x[63:0];
            hdr.out128.ishr = (int<128>)x >> hdr.in128.n;
            hdr.out128.ilt = ((int<128>)x < (int<128>)y) ? 8w1 : 0;
        }
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr.out8); b.emit(hdr.out64); b.emit(hdr.out128); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
