// Gives a packet's arrival time in nanoseconds on stock BMv2, whose timestamps are microseconds.
#ifndef TIME_OF_BMV2_P4
#define TIME_OF_BMV2_P4

control IngressTime(in standard_metadata_t standard_metadata, out bit<64> now_ns) {
    apply {
        now_ns = (bit<64>) standard_metadata.ingress_global_timestamp * 1000;
    }
}

#endif
