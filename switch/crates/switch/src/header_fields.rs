//! Fields of a frame for active queue management: the ECN field (RFC 3168), the DSCP, the flow. And the
//! mark that it sets.

use traffic_manager::{Colour, Ecn, HeaderFields, Reads};

/// Offset of the EtherType.
const TYPE_AT: usize = 12;
/// A VLAN tag is so long.
const TAG_BYTES: usize = 4;
/// At most so many tags are skipped.
const TAGS_MAX: usize = 2;
/// Both bits of the ECN field: CE.
const CE: u8 = 3;

/// The IP header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Header {
    /// IPv4, from this offset on.
    V4(usize),
    /// IPv6, from this offset on.
    V6(usize),
}

/// Finds the IP header behind Ethernet and VLAN tags.
fn header(frame: &[u8]) -> Option<Header> {
    let mut type_at = TYPE_AT;
    for _ in 0..=TAGS_MAX {
        let at = type_at + 2;
        match frame.get(type_at..at)? {
            [0x81, 0x00] | [0x88, 0xa8] => type_at += TAG_BYTES,
            [0x08, 0x00] => {
                let is_header = frame.len() >= at + 20 && frame.get(at)? >> 4 == 4;
                return is_header.then_some(Header::V4(at));
            }
            [0x86, 0xdd] => {
                let is_header = frame.len() >= at + 40 && frame.get(at)? >> 4 == 6;
                return is_header.then_some(Header::V6(at));
            }
            _ => return None,
        }
    }
    None
}

/// The fields of a frame that the queues of a port read. A frame without an IP header is not ECN-capable, and
/// green.
pub(crate) fn of(frame: &[u8], reads: Reads) -> HeaderFields {
    let codepoints = match reads {
        Reads::Nothing => return HeaderFields::default(),
        Reads::Codepoints | Reads::Flows => codepoints(frame),
    };
    HeaderFields {
        flow: match reads {
            Reads::Flows => flow(frame),
            _ => 0,
        },
        ..codepoints
    }
}

/// ECN and colour.
fn codepoints(frame: &[u8]) -> HeaderFields {
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    let class = match header(frame) {
        None => return HeaderFields::default(),
        Some(Header::V4(at)) => byte(at + 1),
        Some(Header::V6(at)) => byte(at) << 4 | byte(at + 1) >> 4,
    };
    HeaderFields {
        ecn: Ecn::of_bits(class),
        colour: Colour::of_dscp(class >> 2),
        flow: 0,
    }
}

/// Hash of a frame's flow: of the addresses and the protocol, and the ports of TCP, UDP, DCCP and SCTP;
/// without an IP header, of Ethernet's header. A fragment has no ports, not even the first, so that all of a packet
/// keep their order.
fn flow(frame: &[u8]) -> u32 {
    let part = |from: usize, to: usize| frame.get(from..to).unwrap_or_default();
    let hash = match header(frame) {
        None => hashed(HASH_START, part(0, TYPE_AT + 2)),
        Some(Header::V4(at)) => {
            let protocol = part(at + 9, at + 10);
            let hash = hashed(hashed(HASH_START, part(at + 12, at + 20)), protocol);
            let is_fragment = match part(at + 6, at + 8) {
                [high, low] => u16::from_be_bytes([*high, *low]) & FRAGMENT != 0,
                _ => false,
            };
            let header_bytes = usize::from(frame.get(at).copied().unwrap_or(0) & 15) * 4;
            match protocol {
                [protocol] if !is_fragment && PORTS.contains(protocol) => {
                    hashed(hash, part(at + header_bytes, at + header_bytes + 4))
                }
                _ => hash,
            }
        }
        Some(Header::V6(at)) => {
            let protocol = part(at + 6, at + 7);
            let hash = hashed(hashed(HASH_START, part(at + 8, at + 40)), protocol);
            match protocol {
                [protocol] if PORTS.contains(protocol) => hashed(hash, part(at + 40, at + 44)),
                _ => hash,
            }
        }
    };
    (hash ^ hash >> 32) as u32
}

/// Of the flags and offset of IPv4: more fragments, and the offset.
const FRAGMENT: u16 = 0x3fff;

/// Protocols whose header begins with two ports.
const PORTS: [u8; 4] = [6, 17, 33, 132];

/// FNV-1a, 64 bits.
const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

fn hashed(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Sets CE in an ECN-capable frame, and corrects the checksum of IPv4. False: the frame is not
/// ECN-capable.
pub(crate) fn mark(frame: &mut [u8]) -> bool {
    if !codepoints(frame).ecn.is_capable() {
        return false;
    }
    match header(frame) {
        None => false,
        Some(Header::V6(at)) => {
            if let Some(byte) = frame.get_mut(at + 1) {
                *byte |= CE << 4;
            }
            true
        }
        Some(Header::V4(at)) => {
            let Some(header) = frame.get_mut(at..at + 20) else {
                return false;
            };
            let before = u16::from_be_bytes([header[0], header[1]]);
            header[1] |= CE;
            let after = u16::from_be_bytes([header[0], header[1]]);
            let sum = u16::from_be_bytes([header[10], header[11]]);
            let sum = updated(sum, before, after);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            true
        }
    }
}

/// The checksum after a word of the header has changed: HC' = ~(~HC + ~m + m') (RFC 1624).
fn updated(sum: u16, before: u16, after: u16) -> u16 {
    let total = u32::from(!sum) + u32::from(!before) + u32::from(after);
    let folded = (total & 0xffff) + (total >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    // Below 2^16 after two folds.
    !(folded as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 frame with this TOS byte and a correct checksum, behind some VLAN tags.
    fn v4(tos: u8, tags: usize) -> Vec<u8> {
        let mut frame = vec![0; TYPE_AT];
        for _ in 0..tags {
            frame.extend([0x81, 0x00, 0, 1]);
        }
        frame.extend([0x08, 0x00]);
        let mut header = [0; 20];
        header[0] = 0x45;
        header[1] = tos;
        header[8..20].copy_from_slice(&[64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = !ones_sum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(header);
        frame
    }

    fn ones_sum(header: &[u8]) -> u16 {
        let words = header
            .chunks(2)
            .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
        let total: u32 = words.sum();
        ((total & 0xffff) + (total >> 16)) as u16
    }

    #[test]
    fn every_tos_is_marked_with_a_correct_checksum() {
        for tos in 0..=255_u8 {
            for tags in 0..=2 {
                let mut frame = v4(tos, tags);
                let capable = tos & 3 != 0;
                assert_eq!(codepoints(&frame).ecn, Ecn::of_bits(tos));
                assert_eq!(mark(&mut frame), capable);
                let expected = if capable { tos | 3 } else { tos };
                assert_eq!(frame, v4(expected, tags), "tos {tos}");
            }
        }
    }

    #[test]
    fn ipv6_has_the_field_in_the_middle_of_two_bytes() {
        let mut frame = vec![0; TYPE_AT];
        frame.extend([0x86, 0xdd, 0x62, 0xaf]);
        frame.resize(TYPE_AT + 2 + 40, 0);
        // Traffic class 0x2a: AF11 and ECT(0).
        assert_eq!(codepoints(&frame).ecn, Ecn::Capable0);
        assert!(mark(&mut frame));
        assert_eq!(frame[14..16], [0x62, 0xbf]);
        assert_eq!(codepoints(&frame).ecn, Ecn::Congested);
    }

    #[test]
    fn colours_are_the_drop_precedences_of_assured_forwarding() {
        for (dscp, colour) in [
            (10, Colour::Green),
            (12, Colour::Yellow),
            (14, Colour::Red),
            (38, Colour::Red),
            (46, Colour::Green),
            (0, Colour::Green),
            (6, Colour::Green),
        ] {
            assert_eq!(codepoints(&v4(dscp << 2, 0)).colour, colour, "{dscp}");
        }
    }

    #[test]
    fn a_flow_is_addresses_protocol_and_ports() {
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = v4(0, 0);
            frame.extend([0x12, 0x34, 0, 80, 1, 2, 3, 4]);
            change(&mut frame);
            of(&frame, Reads::Flows).flow
        };
        let same = with(&|_| {});
        assert_eq!(with(&|frame| frame[15] = 3), same, "ECN");
        assert_eq!(with(&|frame| frame[38] = 9), same, "behind the ports");
        for at in [26, 33, 23, 34, 37] {
            assert_ne!(with(&|frame| frame[at] ^= 1), same, "byte {at}");
        }
        // The first fragment has ports, the later ones do not.
        let fragment = |flags: u8, offset, port| {
            with(&|frame| {
                frame[20] = flags << 5;
                frame[21] = offset;
                frame[35] = port;
            })
        };
        let (dont_fragment, more) = (2, 1);
        assert_eq!(fragment(more, 0, 1), fragment(more, 1, 2));
        assert_eq!(fragment(more, 0, 1), fragment(0, 2, 3));
        assert_ne!(fragment(dont_fragment, 0, 1), fragment(dont_fragment, 0, 2));
        assert_eq!(of(&v4(0, 0), Reads::Codepoints).flow, 0);
    }

    #[test]
    fn what_is_no_ip_is_left_alone() {
        let mut short = v4(2, 0);
        short.truncate(30);
        let mut wrong = v4(2, 0);
        wrong[14] = 0x65;
        for mut frame in [vec![], vec![0; 60], short, wrong, v4(2, 3)] {
            let before = frame.clone();
            assert_eq!(codepoints(&frame), HeaderFields::default());
            assert!(!mark(&mut frame));
            assert_eq!(frame, before);
        }
    }
}
