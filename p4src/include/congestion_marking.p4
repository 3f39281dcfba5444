// Decides whether a packet is marked "congestion experienced" (ECN, RFC 3168): it is if its class's
// queue is above the threshold and its end hosts support ECN.
#ifndef CONGESTION_MARKING_P4
#define CONGESTION_MARKING_P4

#define ECN_NOT_ECT 0
#define ECN_CE 3

control CongestionMarking(inout headers_t hdr, inout metadata_t meta) {
    // Packets that were marked here; those that arrived marked are not counted.
    @name(".PacerIngress.class_ce_marks")
    counter(CLASS_COUNT, CounterType.packets_and_bytes) class_ce_marks;

    ChecksumUpdate() checksum_update;

    apply {
        if (hdr.ipv4.isValid()) {
            if (hdr.ipv4.ecn != ECN_NOT_ECT && hdr.ipv4.ecn != ECN_CE) {
                checksum_update.apply(hdr.ipv4.checksum, (bit<16>) hdr.ipv4.ecn,
                                      (bit<16>) ECN_CE);
                hdr.ipv4.ecn = ECN_CE;
                class_ce_marks.count(meta.class_id);
            }
        } else if (hdr.ipv6.isValid()) {
            if (hdr.ipv6.ecn != ECN_NOT_ECT && hdr.ipv6.ecn != ECN_CE) {
                hdr.ipv6.ecn = ECN_CE;
                class_ce_marks.count(meta.class_id);
            }
        }
    }
}

#endif
