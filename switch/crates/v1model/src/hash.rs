//! Hash and checksum algorithms of v1model, as simple_switch computes them.

use crate::error::{LoadResult, refuse};
use crc::{CRC_16_ARC, CRC_16_IBM_3740, CRC_32_ISO_HDLC, Crc};

static CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_ARC);
static CRC32: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
static CRC_CCITT: Crc<u16> = Crc::<u16>::new(&CRC_16_IBM_3740);

/// An algorithm of a calculation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// CRC-16/ARC.
    Crc16,
    /// CRC-32 (IEEE 802.3).
    Crc32,
    /// CRC-16/IBM-3740 ("CCITT-FALSE").
    CrcCcitt,
    /// The internet checksum (RFC 1071).
    Csum16,
    /// XOR of 16-bit words, the last padded with zeros on the right.
    Xor16,
    /// The first eight bytes as a number.
    Identity,
}

impl Algorithm {
    /// The algorithm by its name in BMv2 JSON.
    pub fn from_name(name: &str) -> LoadResult<Self> {
        Ok(match name {
            // The custom variants start with these parameters and cannot be changed here.
            "crc16" | "crc16_custom" => Self::Crc16,
            "crc32" | "crc32_custom" => Self::Crc32,
            "crcCCITT" => Self::CrcCcitt,
            "csum16" | "cksum16" => Self::Csum16,
            "xor16" => Self::Xor16,
            "identity" => Self::Identity,
            other => refuse!("hash algorithm '{other}' is not supported"),
        })
    }

    /// The hash of `data`, in the low bits.
    pub fn compute(self, data: &[u8]) -> u64 {
        match self {
            Self::Crc16 => CRC16.checksum(data).into(),
            Self::Crc32 => CRC32.checksum(data).into(),
            Self::CrcCcitt => CRC_CCITT.checksum(data).into(),
            Self::Csum16 => u64::from(csum16(data)),
            Self::Xor16 => data.chunks(2).fold(0, |x, pair| {
                let low = pair.get(1).copied().unwrap_or(0);
                x ^ (u64::from(pair[0]) << 8) ^ u64::from(low)
            }),
            Self::Identity => data.iter().take(8).fold(0, |v, &b| (v << 8) | u64::from(b)),
        }
    }
}

/// The internet checksum of `data` (RFC 1071), an odd last byte padded on the right.
pub(crate) fn csum16(data: &[u8]) -> u16 {
    let mut sum = 0u64;
    let mut words = data.chunks_exact(4);
    for w in &mut words {
        sum += u64::from(u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
    }
    let mut rest = words.remainder().chunks_exact(2);
    for w in &mut rest {
        sum += u64::from(u16::from_be_bytes([w[0], w[1]]));
    }
    if let [last] = rest.remainder() {
        sum += u64::from(*last) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values of the CRC catalogue (reveng) for "123456789".
    #[test]
    fn check_values() {
        let check = b"123456789";
        assert_eq!(Algorithm::Crc16.compute(check), 0xbb3d);
        assert_eq!(Algorithm::Crc32.compute(check), 0xcbf4_3926);
        assert_eq!(Algorithm::CrcCcitt.compute(check), 0x29b1);
    }

    /// RFC 1071 section 3's example, and an odd length.
    #[test]
    fn internet_checksum() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(csum16(&data), !0xddf2);
        assert_eq!(csum16(&[0x12, 0x34, 0x56]), !(0x1234 + 0x5600));
        assert_eq!(csum16(&[]), 0xffff);
    }

    #[test]
    fn small_hashes() {
        assert_eq!(Algorithm::Xor16.compute(&[0x12, 0x34, 0x56]), 0x4434);
        assert_eq!(Algorithm::Identity.compute(&[1, 2, 3]), 0x010203);
        assert_eq!(Algorithm::Identity.compute(&[0xff; 20]), u64::MAX);
    }
}
