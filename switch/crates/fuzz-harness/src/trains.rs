//! Frames of several segments.

use ports::checksum;
use ports::joining::{Joining, MAX_HEADERS_BYTES, MAX_SEGMENTS};
use ports::train::{Kind, MAX_TRAIN_BYTES, OFFLOAD_HEADER_BYTES, Segmentation, Train};

/// Longest input that is looked at, bytes: what the kernel hands over.
const INPUT_MAX: usize = OFFLOAD_HEADER_BYTES + MAX_TRAIN_BYTES;

/// Bit of the offload header's flags, which Linux does not use: the kernel took a VLAN tag out.
const TAG_TAKEN_OUT: u8 = 0x80;

/// An offload header, then a frame.
pub fn train(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(INPUT_MAX)];
    let Some((header, frame)) = bytes.split_first_chunk::<OFFLOAD_HEADER_BYTES>() else {
        return;
    };
    let Some(segmentation) = Segmentation::parse(header) else {
        return;
    };
    let tag = (header[0] & TAG_TAKEN_OUT != 0).then_some([0x81, 0, 0, 7]);
    let mut train = Train::default();
    train.room()[OFFLOAD_HEADER_BYTES..][..frame.len()].copy_from_slice(frame);
    if !train.begin(frame.len(), segmentation, tag, 0) {
        assert!(!train.has_segment(), "a refused train has segments");
        return;
    }
    assert_ne!(segmentation.kind, Kind::Other);
    let longest = train.longest_bytes();
    let mut payload_bytes = 0;
    let mut segments = 0;
    while let Some(place) = train.next_segment() {
        let segment = train.bytes(place);
        assert!(segment.len() <= longest, "a segment is too long");
        assert_eq!(checksum::verify(segment), Some(true), "segment {segments}");
        payload_bytes += segment.len();
        segments += 1;
    }
    assert!(!train.has_segment() && segments > 0);
    assert!(payload_bytes >= segments * 14, "a segment has no header");
}

/// Longest frame that is sent, bytes.
const FRAME_BYTES: usize = 1_514;

/// Frames that leave one after the other. Before each come its length, in two bytes, and a byte of flags:
/// 1, it has the headers of the frame before it, and the bytes are its payload; 2, these headers are those
/// of the next segment; 4, its transport checksum is right.
pub fn join(bytes: &[u8]) {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    let mut rest = bytes;
    while let Some(([low, high, how], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (given, after) = after.split_at(length.min(FRAME_BYTES));
        rest = after;
        let mut frame = given.to_vec();
        if how & 1 != 0
            && let Some(before) = frames.last()
        {
            frame = like(before, given, how & 2 != 0);
        }
        if how & 4 != 0 {
            checksum::complete(&mut frame);
        }
        frames.push(frame);
    }
    let mut at = 0;
    while let Some(first) = frames.get(at) {
        at += 1;
        let Some(mut joining) = Joining::begin(first, FRAME_BYTES) else {
            continue;
        };
        let begun = at - 1;
        while frames.get(at).is_some_and(|next| joining.join(first, next)) {
            at += 1;
        }
        check_train(&joining, &frames[begun..at]);
    }
}

/// A frame with the headers of `before`, if they are those of TCP over IPv4 without options, and with
/// `payload`. `is_next`: it is the segment after `before`.
fn like(before: &[u8], payload: &[u8], is_next: bool) -> Vec<u8> {
    const HEADERS_BYTES: usize = 54;
    let mut frame = before[..before.len().min(HEADERS_BYTES)].to_vec();
    frame.extend(payload.iter().take(FRAME_BYTES - HEADERS_BYTES));
    let add = |frame: &mut [u8], at: usize, more: usize| {
        if let Some(field) = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *field = u32::from_be_bytes(*field)
                .wrapping_add(more as u32)
                .to_be_bytes();
        }
    };
    if is_next {
        add(&mut frame, 16, 1); // total length and identification
        add(&mut frame, 38, before.len().saturating_sub(HEADERS_BYTES));
    }
    if let Some(total) = frame.len().checked_sub(14)
        && let Some(field) = frame.get_mut(16..18)
    {
        field.copy_from_slice(&(total as u16).to_be_bytes());
    }
    if let Some(header) = frame.get_mut(14..34) {
        header[10..12].fill(0);
        let words = header
            .chunks(2)
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
    frame
}

/// Asserts that a train, taken apart, has the segments that joined it.
fn check_train(joining: &Joining, segments: &[Vec<u8>]) {
    assert_eq!(joining.segments(), segments.len());
    assert!(segments.len() <= MAX_SEGMENTS);
    if segments.len() == 1 {
        return; // it leaves as it is
    }
    let mut headers = [0; MAX_HEADERS_BYTES];
    let end = joining.write_headers(&segments[0], &mut headers);
    let mut whole = headers[..end].to_vec();
    for segment in segments {
        whole.extend(&segment[joining.payload_at()..]);
    }
    assert!(whole.len() < (1 << 16) + OFFLOAD_HEADER_BYTES);
    let (header, frame) = whole.split_first_chunk().expect("an offload header");
    let segmentation = Segmentation::parse(header).expect("several segments");
    let mut train = Train::default();
    train.room()[OFFLOAD_HEADER_BYTES..][..frame.len()].copy_from_slice(frame);
    assert!(train.begin(frame.len(), segmentation, None, 0));
    for segment in segments {
        let place = train.next_segment().expect("as many segments as joined");
        assert_eq!(train.bytes(place), segment);
    }
    assert!(!train.has_segment());
}
