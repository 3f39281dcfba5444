//! The selection of frames to count: `--match udp-dst=5001` and so on.

use std::str::FromStr;

use crate::frame::Mac;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const TYPE_VLAN: u16 = 0x8100;
const TYPE_SERVICE_VLAN: u16 = 0x88a8;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// A condition on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Every frame.
    All,
    /// UDP, over IPv4 or IPv6, to this port.
    UdpDestination(u16),
    /// TCP, over IPv4 or IPv6, to this port.
    TcpDestination(u16),
    /// This Ethernet type (behind VLAN tags).
    EtherType(u16),
    /// This destination address.
    DestinationMac(Mac),
    /// This source address.
    SourceMac(Mac),
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        if text == "all" {
            return Ok(Condition::All);
        }
        let known = "all, udp-dst=PORT, tcp-dst=PORT, ether-type=0xHEX, dst-mac=MAC or src-mac=MAC";
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("'{text}' is not one of {known}"))?;
        let port = || {
            value
                .parse::<u16>()
                .map_err(|_| format!("{name}: '{value}' is not a port number (0 to 65535)"))
        };
        match name {
            "udp-dst" => Ok(Condition::UdpDestination(port()?)),
            "tcp-dst" => Ok(Condition::TcpDestination(port()?)),
            "ether-type" => u16::from_str_radix(value.trim_start_matches("0x"), 16)
                .map(Condition::EtherType)
                .map_err(|_| format!("ether-type: '{value}' is not 0x0000 to 0xffff")),
            "dst-mac" => Ok(Condition::DestinationMac(value.parse()?)),
            "src-mac" => Ok(Condition::SourceMac(value.parse()?)),
            _ => Err(format!("'{name}' is not one of {known}")),
        }
    }
}

impl Condition {
    /// Whether the frame meets the condition. Later fragments meet no condition on ports.
    #[must_use]
    pub fn holds(self, frame: &[u8]) -> bool {
        match self {
            Condition::All => true,
            Condition::UdpDestination(port) => destination_port(frame, PROTOCOL_UDP) == Some(port),
            Condition::TcpDestination(port) => destination_port(frame, PROTOCOL_TCP) == Some(port),
            Condition::EtherType(wanted) => {
                network(frame).is_some_and(|(ether_type, _)| ether_type == wanted)
            }
            Condition::DestinationMac(mac) => frame.get(..6) == Some(&mac.0),
            Condition::SourceMac(mac) => frame.get(6..12) == Some(&mac.0),
        }
    }
}

/// Ethernet type behind VLAN tags, and the bytes after it.
fn network(frame: &[u8]) -> Option<(u16, &[u8])> {
    let mut rest = frame.get(12..)?;
    loop {
        let ether_type = read_u16(rest, 0)?;
        rest = rest.get(2..)?;
        if ether_type != TYPE_VLAN && ether_type != TYPE_SERVICE_VLAN {
            return Some((ether_type, rest));
        }
        rest = rest.get(2..)?;
    }
}

fn destination_port(frame: &[u8], protocol: u8) -> Option<u16> {
    let (ether_type, packet) = network(frame)?;
    let header_bytes = match ether_type {
        TYPE_IPV4 if *packet.get(9)? == protocol && read_u16(packet, 6)? & 0x1fff == 0 => {
            usize::from(packet.first()? & 0x0f) * 4
        }
        TYPE_IPV6 if *packet.get(6)? == protocol => 40,
        _ => return None,
    };
    read_u16(packet, header_bytes + 2)
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([field[0], field[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::UdpFrame;

    #[test]
    fn conditions_are_read_and_checked() {
        let frame = UdpFrame::default().bytes(100).unwrap();
        let holds = |text: &str| text.parse::<Condition>().unwrap().holds(&frame);
        assert!(holds("all") && holds("udp-dst=5001") && holds("ether-type=0x0800"));
        assert!(!holds("udp-dst=5002") && !holds("tcp-dst=5001") && !holds("ether-type=86dd"));
        assert!(holds("dst-mac=02:00:00:00:00:02") && !holds("src-mac=02:00:00:00:00:02"));
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        assert!(Condition::UdpDestination(5001).holds(&tagged));
        for end in 0..frame.len().min(38) {
            assert!(!Condition::UdpDestination(5001).holds(&frame[..end]));
        }
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let error = |text: &str| text.parse::<Condition>().unwrap_err();
        assert!(error("udp-dst=fast").contains("'fast' is not a port number"));
        assert!(error("nonsense").contains("'nonsense' is not one of"));
        assert!(error("colour=red").contains("'colour' is not one of"));
        assert!(error("dst-mac=1:2").contains("'1:2' is not a MAC address"));
    }
}
