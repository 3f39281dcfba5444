//! Frames to send.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Ethernet, IPv4 and UDP headers.
pub const HEADERS_BYTES: usize = 14 + 20 + 8;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Mac, String> {
        let wrong = || format!("'{text}' is not a MAC address (02:00:00:00:00:01)");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() <= 2);
            *byte = part
                .and_then(|part| u8::from_str_radix(part, 16).ok())
                .ok_or_else(wrong)?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Mac(bytes))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Addresses of a UDP frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpFrame {
    /// Ethernet source.
    pub src_mac: Mac,
    /// Ethernet destination.
    pub dst_mac: Mac,
    /// IPv4 source.
    pub src_address: Ipv4Addr,
    /// IPv4 destination.
    pub dst_address: Ipv4Addr,
    /// UDP source port.
    pub src_port: u16,
    /// UDP destination port.
    pub dst_port: u16,
}

impl Default for UdpFrame {
    fn default() -> UdpFrame {
        UdpFrame {
            src_mac: Mac([2, 0, 0, 0, 0, 1]),
            dst_mac: Mac([2, 0, 0, 0, 0, 2]),
            src_address: Ipv4Addr::new(10, 0, 0, 1),
            dst_address: Ipv4Addr::new(10, 0, 0, 2),
            src_port: 5000,
            dst_port: 5001,
        }
    }
}

impl UdpFrame {
    /// A frame of `frame_bytes` (layer 2, without FCS; 42 to 65549) with valid checksums and a
    /// payload of zeros.
    ///
    /// # Errors
    /// When the length is out of range.
    pub fn bytes(&self, frame_bytes: usize) -> Result<Vec<u8>, String> {
        let wrong = |_| format!("frames have {HEADERS_BYTES} to 65549 bytes, not {frame_bytes}");
        let datagram_bytes = frame_bytes.checked_sub(34).filter(|bytes| *bytes >= 8);
        let datagram_bytes = u16::try_from(datagram_bytes.unwrap_or(usize::MAX)).map_err(wrong)?;
        let packet_bytes = u16::try_from(frame_bytes - 14).map_err(wrong)?;

        let mut ip = [0u8; 20];
        ip[0] = 0x45; // version 4, five words
        ip[2..4].copy_from_slice(&packet_bytes.to_be_bytes());
        ip[6] = 0x40; // don't fragment
        ip[8] = 64; // time to live
        ip[9] = 17; // UDP
        ip[12..16].copy_from_slice(&self.src_address.octets());
        ip[16..20].copy_from_slice(&self.dst_address.octets());
        let mut sum: u32 = ip
            .chunks_exact(2)
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
            .sum();
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        let checksum = !(sum as u16);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());

        let mut frame = Vec::with_capacity(frame_bytes);
        frame.extend(self.dst_mac.0);
        frame.extend(self.src_mac.0);
        frame.extend([0x08, 0x00]);
        frame.extend(ip);
        frame.extend(self.src_port.to_be_bytes());
        frame.extend(self.dst_port.to_be_bytes());
        frame.extend(datagram_bytes.to_be_bytes());
        frame.resize(frame_bytes, 0);
        ports::checksum::complete(&mut frame);
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_length_and_checksums() {
        for bytes in [42, 60, 64, 1500, 65_549] {
            let frame = UdpFrame::default().bytes(bytes).unwrap();
            assert_eq!(frame.len(), bytes);
            assert_eq!(ports::checksum::verify(&frame), Some(true));
            let sum: u32 = frame[14..34]
                .chunks_exact(2)
                .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
                .sum();
            assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff);
        }
        for bytes in [0, 13, 41, 65_550] {
            assert!(UdpFrame::default().bytes(bytes).is_err(), "{bytes}");
        }
    }

    #[test]
    fn macs_are_read_and_written() {
        let mac: Mac = "02:00:00:00:0a:ff".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:00:00:0a:ff");
        for text in [
            "",
            "2",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "02:00:00:00:00:100",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }
}
