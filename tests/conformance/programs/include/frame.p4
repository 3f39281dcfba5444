// What every program here has: the parts it does not test.
#include <core.p4>
#include <v1model.p4>

#define NO_CHECKSUMS \
    control V(inout H h, inout M m) { apply { } } \
    control C(inout H h, inout M m) { apply { } }
#define NO_EGRESS control E(inout H h, inout M m, inout standard_metadata_t s) { apply { } }
#define MAIN \
    control D(packet_out p, in H h) { apply { p.emit(h); } } \
    V1Switch(P(), V(), I(), E(), C(), D()) main;
