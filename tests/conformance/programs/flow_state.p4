// State over packets: cells read, changed and written back, of one bit to 100, by hashed index.
#include "include/frame.p4"

header h_t { bit<8> op; bit<8> flow; bit<16> value; bit<16> sum; bit<100> wide; bit<4> rest; }
struct H { h_t h; }
struct M { bit<16> cell; bit<32> index; bit<100> w; bit<1> bit_; bit<8> balance; }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    register<bit<16>>(16) sums;
    register<bit<100>>(3) wides;
    register<bit<1>>(256) seen;
    register<bit<8>>(4) balances;
    counter(16, CounterType.bytes) bytes;
    apply {
        s.egress_spec = 1;
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        hash(m.index, HashAlgorithm.crc16, 32w0, { h.h.flow }, 32w16);
        bytes.count(m.index);
        sums.read(m.cell, m.index);
        m.cell = m.cell + h.h.value;
        sums.write(m.index, m.cell);
        h.h.sum = m.cell;
        seen.read(m.bit_, (bit<32>)h.h.flow);
        if (m.bit_ == 0) { seen.write((bit<32>)h.h.flow, 1); h.h.rest = 1; } else { h.h.rest = 2; }
        if (h.h.op[1:0] == 0) { wides.write((bit<32>)h.h.op[3:2], h.h.wide); }
        if (h.h.op[1:0] == 1) { wides.read(m.w, (bit<32>)h.h.op[3:2]); h.h.wide = m.w; }
        if (h.h.op[1:0] == 2) {
            balances.read(m.balance, (bit<32>)h.h.op[3:2]);
            m.balance = m.balance |-| 9;
            balances.write((bit<32>)h.h.op[3:2], m.balance);
            h.h.value = (bit<16>)m.balance;
        }
    }
}
NO_CHECKSUMS
NO_EGRESS
MAIN
