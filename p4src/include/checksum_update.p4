// Updates the Internet checksum of a header when one 16-bit word changes (RFC 1624, equation 3):
// HC' = ~(~HC + ~m + m'). A wrong checksum stays wrong, so the end host detects it.
#ifndef CHECKSUM_UPDATE_P4
#define CHECKSUM_UPDATE_P4

control ChecksumUpdate(inout bit<16> checksum, in bit<16> before, in bit<16> after) {
    apply {
        bit<32> sum = (bit<32>) (~checksum) + (bit<32>) (~before) + (bit<32>) after;
        sum = (sum & 0xFFFF) + (sum >> 16);
        sum = (sum & 0xFFFF) + (sum >> 16);
        checksum = ~sum[15:0];
    }
}

#endif
