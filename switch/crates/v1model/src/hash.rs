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
    /// A CRC of 16 bits whose parameters can be set. It starts as CRC-16/ARC.
    Crc16Custom,
    /// A CRC of 32 bits whose parameters can be set. It starts as CRC-32.
    Crc32Custom,
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
            "crc16" => Self::Crc16,
            "crc16_custom" => Self::Crc16Custom,
            "crc32" => Self::Crc32,
            "crc32_custom" => Self::Crc32Custom,
            "crcCCITT" => Self::CrcCcitt,
            "csum16" | "cksum16" => Self::Csum16,
            "xor16" => Self::Xor16,
            "identity" => Self::Identity,
            other => refuse!("hash algorithm '{other}' is not supported"),
        })
    }

    /// Width of a CRC whose parameters can be set, in bits.
    pub fn custom_bits(self) -> Option<u32> {
        match self {
            Self::Crc16Custom => Some(16),
            Self::Crc32Custom => Some(32),
            _ => None,
        }
    }

    /// The hash of `data`, in the low bits.
    pub fn compute(self, data: &[u8]) -> u64 {
        match self {
            Self::Crc16 | Self::Crc16Custom => CRC16.checksum(data).into(),
            Self::Crc32 | Self::Crc32Custom => CRC32.checksum(data).into(),
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

/// Parameters of a CRC, as BMv2 has them: the remainder is kept unreflected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrcParameters {
    /// Without its highest term.
    pub polynomial: u32,
    /// The remainder before the first byte.
    pub initial_remainder: u32,
    /// The value that the remainder is combined with (exclusive or) at the end.
    pub final_xor_value: u32,
    /// Whether each byte begins with its lowest bit.
    pub data_reflected: bool,
    /// Whether the remainder is reflected at the end.
    pub remainder_reflected: bool,
}

/// A CRC with parameters that were set.
#[derive(Debug, Clone)]
pub(crate) struct CustomCrc {
    bits: u32,
    parameters: CrcParameters,
    /// The remainder that each byte leaves.
    table: [u32; 256],
}

impl CustomCrc {
    /// A CRC of 16 or 32 bits.
    pub fn new(bits: u32, parameters: CrcParameters) -> Self {
        let mut table = [0; 256];
        for (byte, entry) in (0..).zip(&mut table) {
            // Kept in the upper bits, so that one code serves both widths.
            let mut remainder: u32 = byte << 24;
            for _ in 0..8 {
                let carry = remainder >> 31;
                remainder <<= 1;
                if carry == 1 {
                    remainder ^= parameters.polynomial << (32 - bits);
                }
            }
            *entry = remainder;
        }
        Self {
            bits,
            parameters,
            table,
        }
    }

    /// The CRC of `data`, in the low bits.
    pub fn compute(&self, data: &[u8]) -> u64 {
        let p = &self.parameters;
        let mut remainder = p.initial_remainder << (32 - self.bits);
        for &byte in data {
            let byte = if p.data_reflected {
                byte.reverse_bits()
            } else {
                byte
            };
            let index = byte ^ (remainder >> 24) as u8;
            remainder = self.table[usize::from(index)] ^ (remainder << 8);
        }
        let remainder = if p.remainder_reflected {
            remainder.reverse_bits()
        } else {
            remainder >> (32 - self.bits)
        };
        let mask = u32::MAX >> (32 - self.bits);
        u64::from((remainder ^ p.final_xor_value) & mask)
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

    #[test]
    fn check_values_of_crcs_by_parameters() {
        let check = b"123456789";
        for (bits, polynomial, initial, xor, reflected, value) in [
            (16, 0x8005, 0, 0, true, 0xbb3d),
            (16, 0x1021, 0, 0, false, 0x31c3),
            (16, 0x1021, 0xffff, 0xffff, true, 0x906e),
            (32, 0x04c1_1db7, u32::MAX, u32::MAX, true, 0xcbf4_3926),
            (32, 0x04c1_1db7, u32::MAX, u32::MAX, false, 0xfc89_1918),
            (32, 0x1edc_6f41, u32::MAX, u32::MAX, true, 0xe306_9283),
        ] {
            let parameters = CrcParameters {
                polynomial,
                initial_remainder: initial,
                final_xor_value: xor,
                data_reflected: reflected,
                remainder_reflected: reflected,
            };
            assert_eq!(CustomCrc::new(bits, parameters).compute(check), value);
        }
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
