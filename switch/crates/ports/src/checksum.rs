//! Completes transport checksums that the sending kernel left to its "hardware".
//!
//! A veth has no hardware: a frame of a local TCP or UDP socket crosses it with only the
//! pseudo-header summed, and the far kernel trusts a mark on the buffer. A userspace switch sends
//! plain bytes without the mark, so the far kernel would throw the frame away. Internet checksum:
//! RFC 1071; pseudo headers: RFC 9293 section 3.1, RFC 768, RFC 8200 section 8.1.

const ETHERNET_BYTES: usize = 14;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const TYPE_VLAN: u16 = 0x8100;
const TYPE_SERVICE_VLAN: u16 = 0x88a8;
pub(crate) const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
/// Bytes of the header between a tunnel's UDP header and the frame inside.
const TUNNEL_BYTES: usize = 8;
/// The place of the checksum in a TCP, a UDP header.
const TCP_CHECKSUM_AT: usize = 16;
const UDP_CHECKSUM_AT: usize = 6;
/// Tags and IPv6 extension headers walked before giving up.
const MAX_HEADERS: usize = 8;

/// A transport protocol whose checksum this module computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    Tcp,
    Udp,
    Icmpv6,
}

/// The place of a frame's transport header, and the sum of its pseudo-header.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transport {
    /// The place of the IP header.
    pub(crate) network: usize,
    /// The place of the transport header.
    pub(crate) start: usize,
    /// The end of the IP packet. Padding may follow it.
    pub(crate) end: usize,
    pub(crate) checksum_at: usize,
    pub(crate) protocol: Protocol,
    pseudo_sum: u64,
}

impl Transport {
    /// The sum of the pseudo-header of a packet that differs in its length only: `end` is where it ends.
    fn pseudo_sum_of(&self, end: usize) -> u64 {
        self.pseudo_sum - (self.end - self.start) as u64 + (end - self.start) as u64
    }

    /// Whether the transport checksum of `packet`, which has the same addresses and ends with its last
    /// byte, is the one that [`complete`] stores. (0 and 0xffff say the same, and one of them is stored.)
    pub(crate) fn is_complete(&self, packet: &[u8]) -> bool {
        let other_zero = match self.protocol {
            Protocol::Udp => 0,
            Protocol::Tcp | Protocol::Icmpv6 => 0xffff,
        };
        packet.get(self.start..).is_some_and(|segment| {
            read_u16(packet, self.checksum_at) != Some(other_zero)
                && fold(self.pseudo_sum_of(packet.len()) + sum(segment)) == 0xffff
        })
    }

    /// Whether the IP header of `packet`, if it has a checksum, has the one that
    /// [`adapt_network_header`](Transport::adapt_network_header) stores.
    pub(crate) fn has_network_checksum(&self, packet: &[u8]) -> bool {
        packet.get(self.network..self.start).is_some_and(|header| {
            header.first().is_some_and(|byte| byte >> 4 == 6)
                || (read_u16(header, 10) != Some(0xffff) && fold(sum(header)) == 0xffff)
        })
    }

    /// Whether the packet has no transport checksum: a UDP checksum of 0 says so.
    pub(crate) fn is_without(&self, packet: &[u8]) -> bool {
        self.protocol == Protocol::Udp && read_u16(packet, self.checksum_at) == Some(0)
    }

    /// Whether the checksum field holds the sum of the pseudo-header.
    fn is_partial(&self, packet: &[u8]) -> bool {
        read_u16(packet, self.checksum_at) == Some(fold(self.pseudo_sum))
    }

    /// Computes the transport checksum of `packet`, which has the same addresses and ends at `end`, and stores
    /// it. Returns false and leaves the packet unchanged if it is shorter.
    pub(crate) fn store(&self, packet: &mut [u8], end: usize) -> bool {
        if end > packet.len() || self.checksum_at + 2 > end {
            return false;
        }
        write_u16(packet, self.checksum_at, 0);
        let Some(segment) = packet.get(self.start..end) else {
            return false;
        };
        let mut checksum = !fold(self.pseudo_sum_of(end) + sum(segment));
        if checksum == 0 && self.protocol == Protocol::Udp {
            checksum = 0xffff; // RFC 768: zero says "no checksum"
        }
        write_u16(packet, self.checksum_at, checksum);
        true
    }

    /// Leaves the transport checksum of `packet`, which is longer than its `header`, to the kernel: the
    /// field gets the sum of the pseudo-header of a packet that ends at `end`.
    pub(crate) fn leave_incomplete(&self, header: &mut [u8], end: usize) {
        write_u16(header, self.checksum_at, fold(self.pseudo_sum_of(end)));
    }

    /// Makes the IP header of `packet`, which is a copy of the located frame's, right for a packet that
    /// ends at `end`. An IPv4 header gets the identification that is `ahead` of the copied one, too, and
    /// its checksum (RFC 791).
    pub(crate) fn adapt_network_header(&self, packet: &mut [u8], end: usize, ahead: u16) {
        let length = end - self.network;
        let Some(header) = packet.get_mut(self.network..self.start) else {
            return;
        };
        let is_ipv4 = header.first().is_some_and(|byte| byte >> 4 == 4);
        let counted = if is_ipv4 { length } else { length - IPV6_BYTES };
        let at = if is_ipv4 { 2 } else { 4 };
        write_u16(header, at, u16::try_from(counted).unwrap_or(u16::MAX));
        if is_ipv4 {
            let identification = read_u16(header, 4).unwrap_or(0).wrapping_add(ahead);
            write_u16(header, 4, identification);
            write_u16(header, 10, 0);
            write_u16(header, 10, !fold(sum(header)));
        }
    }
}

/// Computes the transport checksum of `frame` (Ethernet, any 802.1Q/802.1ad tags, IPv4 or IPv6,
/// then TCP, UDP or ICMPv6) and stores it. Returns false and leaves the frame unchanged if it is
/// another kind of frame, a fragment, or shorter than its headers say.
pub fn complete(frame: &mut [u8]) -> bool {
    locate(frame).is_some_and(|transport| transport.store(frame, transport.end))
}

/// Completes the checksum of `frame` that is left out, where the kernel says which one that is: `start` is the
/// place of its transport header, `offset` that of the field in it. The same as [`complete`] if it is the
/// outermost one. A tunnel's own checksum needs no change: the kernel made it for what the inner one will be.
pub(crate) fn complete_at(frame: &mut [u8], start: usize, offset: usize) -> bool {
    if let Some(outermost) = locate(frame)
        && outermost.start == start
    {
        return outermost.store(frame, outermost.end);
    }
    // Other fields are no such sums: SCTP's is a CRC.
    let field = start + offset;
    if ![TCP_CHECKSUM_AT, UDP_CHECKSUM_AT].contains(&offset) || field + 2 > frame.len() {
        return false;
    }
    // The field has the sum of the pseudo-header.
    let checksum = match !fold(sum(&frame[start..])) {
        0 => 0xffff, // as the kernel: 0 says that there is none
        checksum => checksum,
    };
    write_u16(frame, field, checksum);
    true
}

/// The same for frames that the kernel does not mark, or not with the place of the checksum that it has left out.
/// It changes a frame only if the field holds the value that the kernel then leaves: the sum of the
/// pseudo-header. If the outermost checksum does not, that of the frame inside a tunnel may.
/// One in 65536 frames with a right checksum has this value, too, and keeps its checksum. The same
/// share of frames with a wrong checksum become right.
pub fn complete_if_partial(frame: &mut [u8]) -> bool {
    let Some(outer) = locate(frame) else {
        return false;
    };
    let partial = if outer.is_partial(frame) {
        Some(outer)
    } else {
        locate_inside(frame, &outer).filter(|inner| inner.is_partial(frame))
    };
    partial.is_some_and(|transport| transport.store(frame, transport.end))
}

/// Whether the transport checksum of `frame` is right; `None` when [`complete`] could not compute
/// one. A UDP checksum of 0 (none) over IPv4 is right.
#[must_use]
pub fn verify(frame: &[u8]) -> Option<bool> {
    let transport = locate(frame)?;
    let field = read_u16(frame, transport.checksum_at)?;
    if field == 0 && transport.protocol == Protocol::Udp {
        return Some(true);
    }
    let segment = frame.get(transport.start..transport.end)?;
    Some(fold(transport.pseudo_sum + sum(segment)) == 0xffff)
}

/// Finds the transport header of a frame (see [`complete`]).
pub(crate) fn locate(frame: &[u8]) -> Option<Transport> {
    locate_from(frame, 0)
}

/// Finds the transport header of the frame inside a tunnel whose own one is `outer`; `None` if there is none that
/// this module knows, or if it does not fill the tunnel's packet. Known is an Ethernet frame behind UDP and
/// a header of 8 bytes (VXLAN, RFC 7348; Geneve without options, RFC 8926).
pub(crate) fn locate_inside(frame: &[u8], outer: &Transport) -> Option<Transport> {
    if outer.protocol != Protocol::Udp {
        return None;
    }
    let inner = locate_from(frame, outer.start + UDP_BYTES + TUNNEL_BYTES)?;
    (inner.end == outer.end).then_some(inner)
}

/// Finds the transport header of the Ethernet frame that begins at `at`.
fn locate_from(frame: &[u8], at: usize) -> Option<Transport> {
    let mut at = at + ETHERNET_BYTES;
    let mut ether_type = read_u16(frame, at - 2)?;
    for _ in 0..MAX_HEADERS {
        if ether_type != TYPE_VLAN && ether_type != TYPE_SERVICE_VLAN {
            break;
        }
        ether_type = read_u16(frame, at + 2)?;
        at += 4;
    }
    let transport = match ether_type {
        TYPE_IPV4 => locate_in_ipv4(frame, at)?,
        TYPE_IPV6 => locate_in_ipv6(frame, at)?,
        _ => return None,
    };
    // The checksum field itself must be inside the summed range.
    (transport.checksum_at + 2 <= transport.end && transport.end <= frame.len())
        .then_some(transport)
}

fn locate_in_ipv4(frame: &[u8], at: usize) -> Option<Transport> {
    let header = frame.get(at..at + 20)?;
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    let total_bytes = usize::from(read_u16(header, 2)?);
    let fragment = read_u16(header, 6)? & 0x3fff; // offset and "more fragments"
    if header[0] >> 4 != 4 || header_bytes < 20 || total_bytes < header_bytes || fragment != 0 {
        return None;
    }
    let addresses = header.get(12..20)?;
    transport(
        at,
        at + header_bytes,
        at + total_bytes,
        header[9],
        sum(addresses),
    )
}

fn locate_in_ipv6(frame: &[u8], at: usize) -> Option<Transport> {
    let header = frame.get(at..at + IPV6_BYTES)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let end = at + IPV6_BYTES + usize::from(read_u16(header, 4)?);
    let addresses = header.get(8..40)?;
    let mut next_header = header[6];
    let mut start = at + IPV6_BYTES;
    for _ in 0..MAX_HEADERS {
        match next_header {
            // Hop-by-hop options, destination options: length in units of 8 bytes, less the first.
            0 | 60 => {
                let extension = frame.get(start..start + 2)?;
                next_header = extension[0];
                start += (usize::from(extension[1]) + 1) * 8;
            }
            _ => return transport(at, start, end, next_header, sum(addresses)),
        }
    }
    None
}

fn transport(
    network: usize,
    start: usize,
    end: usize,
    number: u8,
    addresses_sum: u64,
) -> Option<Transport> {
    let (protocol, checksum_offset) = match number {
        6 => (Protocol::Tcp, TCP_CHECKSUM_AT),
        17 => (Protocol::Udp, UDP_CHECKSUM_AT),
        58 => (Protocol::Icmpv6, 2),
        _ => return None,
    };
    let segment_bytes = end.checked_sub(start)?;
    Some(Transport {
        network,
        start,
        end,
        checksum_at: start + checksum_offset,
        protocol,
        pseudo_sum: addresses_sum + u64::from(number) + u64::try_from(segment_bytes).ok()?,
    })
}

pub(crate) fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

pub(crate) fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([field[0], field[1]]))
}

/// Sum of big-endian 16-bit words, up to folding.
fn sum(bytes: &[u8]) -> u64 {
    u64::from(u16::from_be(fold(sum_of_words(bytes))))
}

/// Sum of 32-bit words in the machine's order. It is that of big-endian 16-bit words, except that its bytes
/// are swapped on little-endian machines (RFC 1071, section 2), and takes vector instructions. 64 bits cannot
/// overflow below 2^32 words.
fn sum_of_words(bytes: &[u8]) -> u64 {
    /// From this length on, the wider instructions are worth the question.
    #[cfg(target_arch = "x86_64")]
    const LONG_BYTES: usize = 128;
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= LONG_BYTES && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { sum_with_avx2(bytes) };
    }
    sum_in_lanes(bytes)
}

/// [`sum_in_lanes`], compiled for processors with AVX2: it takes half the time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_with_avx2(bytes: &[u8]) -> u64 {
    sum_in_lanes(bytes)
}

#[inline(always)]
fn sum_in_lanes(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(4);
    let mut total = 0u64;
    for word in &mut words {
        total += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut last = [0u8; 4];
    for (to, from) in last.iter_mut().zip(words.remainder()) {
        *to = *from;
    }
    total + u64::from(u32::from_ne_bytes(last))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ethernet + IPv4 + UDP 10.0.0.1:1234 -> 10.0.0.2:5001 with this payload, checksum zero.
    fn udp_frame(payload: &[u8], tags: usize) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for _ in 0..tags {
            frame.extend([0x81, 0x00, 0x00, 0x05]);
        }
        frame.extend([0x08, 0x00, 0x45, 0]);
        let total = u16::try_from(28 + payload.len()).unwrap();
        frame.extend(total.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x04, 0xd2, 0x13, 0x89]);
        frame.extend((total - 20).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn a_sum_worked_by_hand() {
        // Pseudo: 0a00+0001+0a00+0002+0011+000a; UDP: 04d2+1389+000a+0000; data: 6869 -> a521 ->
        // 5ade?
        let mut frame = udp_frame(b"hi", 0);
        assert!(complete(&mut frame));
        let by_hand: u32 =
            0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 0x0011 + 0x000a + 0x04d2 + 0x1389 + 0x000a + 0x6869;
        let by_hand = !u16::try_from(by_hand).unwrap();
        assert_eq!(frame[40..42], by_hand.to_be_bytes());
    }

    #[test]
    fn ethernet_padding_is_not_summed() {
        let mut bare = udp_frame(b"abc", 0);
        let mut padded = bare.clone();
        padded.extend([0xff; 13]);
        assert!(complete(&mut bare) && complete(&mut padded));
        assert_eq!(bare[40..42], padded[40..42]);
    }

    #[test]
    fn fragments_and_lies_are_left_alone() {
        let mut fragment = udp_frame(b"abc", 0);
        fragment[20] = 0x20; // more fragments
        assert!(!complete(&mut fragment));
        let mut lying = udp_frame(b"abc", 0);
        lying[16] = 0xff; // total length beyond the frame
        let before = lying.clone();
        assert!(!complete(&mut lying));
        assert_eq!(before, lying);
    }

    #[test]
    fn ipv6_with_extension_headers() {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8 + 20, 60, 64]);
        frame.extend([0x20; 32]);
        frame.extend([6, 0, 1, 4, 0, 0, 0, 0]); // destination options, then TCP
        frame.extend([7; 20]);
        assert!(complete(&mut frame));
        assert_eq!(verify(&frame), Some(true));
        frame[70] ^= 1;
        assert_eq!(verify(&frame), Some(false));
    }

    proptest! {
        #[test]
        fn sums_are_those_of_16_bit_words(bytes in proptest::collection::vec(any::<u8>(), 0..3_000)) {
            let words = bytes.chunks(2).map(|word| {
                u64::from(word[0]) << 8 | word.get(1).map_or(0, |low| u64::from(*low))
            });
            prop_assert_eq!(fold(sum(&bytes)), fold(words.sum()));
        }
    }

    proptest! {
        #[test]
        fn what_is_partial_is_seen(payload: Vec<u8>, tags in 0usize..3) {
            let mut whole = udp_frame(&payload, tags);
            complete(&mut whole);
            let mut partial = whole.clone();
            let transport = locate(&partial).unwrap();
            let sum = fold(transport.pseudo_sum).to_be_bytes();
            partial[transport.checksum_at..transport.checksum_at + 2].copy_from_slice(&sum);
            prop_assert!(complete_if_partial(&mut partial));
            prop_assert_eq!(&partial, &whole);
            // Right already: stays, whether taken for partial or not.
            complete_if_partial(&mut partial);
            prop_assert_eq!(&partial, &whole);
        }

        #[test]
        fn what_was_completed_verifies(payload: Vec<u8>, tags in 0usize..3) {
            let mut frame = udp_frame(&payload, tags);
            prop_assert!(complete(&mut frame));
            prop_assert_eq!(verify(&frame), Some(true));
        }

        #[test]
        fn random_bytes_never_panic(mut frame: Vec<u8>) {
            let whole = frame.len();
            complete(&mut frame);
            prop_assert_eq!(frame.len(), whole);
        }

        #[test]
        fn damaged_frames_never_panic(
            payload: Vec<u8>, at in 12usize..60, value: u8, cut in 0usize..80,
        ) {
            let mut frame = udp_frame(&payload, 1);
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
            frame.truncate(cut);
            complete(&mut frame);
            let _ = verify(&frame);
        }
    }
}
