//! Hash and checksum algorithms of v1model, as simple_switch computes them.

use crate::error::{LoadResult, refuse};

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
            Self::Crc16 => u64::from(reflected_crc(&CRC16, 0, data)),
            Self::Crc32 => u64::from(!reflected_crc(&CRC32, u32::MAX, data)),
            Self::CrcCcitt => u64::from(data.iter().fold(u16::MAX, |crc, &b| {
                (crc << 8) ^ CRC_CCITT[usize::from((crc >> 8) as u8 ^ b)]
            })),
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

const CRC16: [u32; 256] = reflected(0xa001);
const CRC32: [u32; 256] = reflected(0xedb8_8320);
const CRC_CCITT: [u16; 256] = forward16(0x1021);

/// A reflected CRC of up to 32 bits, by the table of its polynomial.
fn reflected_crc(table: &[u32; 256], start: u32, data: &[u8]) -> u32 {
    data.iter().fold(start, |crc, &b| {
        (crc >> 8) ^ table[usize::from((crc as u8) ^ b)]
    })
}

/// The table of a reflected polynomial of up to 32 bits.
const fn reflected(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (polynomial * (crc & 1));
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

/// The table of a polynomial of 16 bits that is not reflected.
const fn forward16(polynomial: u16) -> [u16; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = (i as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ (polynomial * (crc >> 15));
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
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
