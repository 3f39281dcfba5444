// Decides what a meter's colour (RFC 2698) does to the packet: drop it, mark its DSCP, or leave it
// unchanged.
#ifndef METERING_P4
#define METERING_P4

#define COLOUR_GREEN 0
#define COLOUR_YELLOW 1
#define COLOUR_RED 2

control Metering(inout headers_t hdr, inout metadata_t meta) {
    @name(".PacerIngress.class_red_drops")
    counter(CLASS_COUNT, CounterType.packets_and_bytes) class_red_drops;

    ChecksumUpdate() checksum_update;

    apply {
        if (meta.colour == COLOUR_RED && meta.drop_red == 1) {
            class_red_drops.count(meta.class_id);
            meta.drop_cause = DROP_METER_RED;
        } else if (meta.mark == 1 && meta.colour != COLOUR_GREEN) {
            bit<6> dscp = meta.colour == COLOUR_RED ? meta.red_dscp : meta.yellow_dscp;
            if (hdr.ipv4.isValid()) {
                // The rest of the word does not change, so it does not affect the checksum.
                checksum_update.apply(hdr.ipv4.checksum, (bit<16>) (hdr.ipv4.dscp ++ 2w0),
                                      (bit<16>) (dscp ++ 2w0));
                hdr.ipv4.dscp = dscp;
            } else if (hdr.ipv6.isValid()) {
                hdr.ipv6.dscp = dscp;
            }
        }
    }
}

#endif
