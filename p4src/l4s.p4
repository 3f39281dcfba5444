// A wire that makes the packets of a sender L4S: a packet that enters port 1 leaves port 2, with
// ECT(1) in place of ECT(0), and the other way round without a change. It is for a sender whose
// congestion control is scalable but sends ECT(0), as DCTCP of Linux (RFC 9331, section 4.1). It
// counts as part of the sender: a network never makes such a change (section 5.4.1.1). Plain
// v1model, the same for every target.
#include <core.p4>
#include <v1model.p4>

#include "include/limits.p4"
#include "include/checksum_update.p4"
#include "include/ip_wire.p4"

const bit<9> SENDER_PORT = 1;

control L4sIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    SetTos() set_tos;
    Wire() wire;

    apply {
        if (standard_metadata.ingress_port == SENDER_PORT && hdr.ipv4.isValid()
            && hdr.ipv4.ecn == ECN_ECT_0) {
            set_tos.apply(hdr.ipv4, hdr.ipv4.dscp, ECN_ECT_1);
        }
        wire.apply(standard_metadata);
    }
}

control L4sEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    apply { }
}

V1Switch(WireParser(), WireVerifyChecksum(), L4sIngress(), L4sEgress(), WireComputeChecksum(),
         WireDeparser()) main;
