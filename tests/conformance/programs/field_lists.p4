// Several field lists, of headers and metadata, kept over clones of ingress.
#include "include/frame.p4"

header h_t { bit<8> op; bit<8> a; bit<16> b; bit<8> kind; bit<8> port; }
struct H { h_t h; }
struct M {
    @field_list(1) bit<8> a;
    @field_list(1, 2) bit<16> b;
    @field_list(2) bit<3> c;
    bit<8> d;
}
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        if (!h.h.isValid()) { mark_to_drop(s); exit; }
        s.egress_spec = (bit<9>)h.h.op[6:4];
        m.a = h.h.a + 1;
        m.b = h.h.b + 2;
        m.c = h.h.op[7:5];
        m.d = 0x55;
        if (h.h.op[3:0] == 1) { clone_preserving_field_list(CloneType.I2E, 1, 1); }
        if (h.h.op[3:0] == 2) { clone_preserving_field_list(CloneType.I2E, 2, 2); }
        if (h.h.op[3:0] == 3) { clone_preserving_field_list(CloneType.I2E, 3, 1); clone_preserving_field_list(CloneType.I2E, 2, 2); }
        if (h.h.op[3:0] == 4) { clone(CloneType.I2E, 1); mark_to_drop(s); }
        if (h.h.op[3:0] == 5) { clone_preserving_field_list(CloneType.I2E, (bit<32>)h.h.a[3:0], 2); s.mcast_grp = (bit<16>)h.h.b[1:0]; }
        h.h.a = 0xaa;
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        h.h.kind = (bit<8>)s.instance_type;
        h.h.port = (bit<8>)s.egress_port;
        h.h.b = m.b ^ ((bit<16>)m.c << 8) ^ (bit<16>)m.a ^ ((bit<16>)m.d << 4);
    }
}
NO_CHECKSUMS
MAIN
