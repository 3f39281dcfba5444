//! Frames of several segments.

use ports::checksum;
use ports::train::{Kind, MAX_TRAIN_BYTES, OFFLOAD_HEADER_BYTES, Segmentation, Train};

/// Longest input that is looked at, bytes: what the kernel hands over.
const INPUT_MAX: usize = OFFLOAD_HEADER_BYTES + MAX_TRAIN_BYTES;

/// An offload header, then a frame. The first byte of the header, which the port does not read, says
/// whether the kernel took a VLAN tag out.
pub fn train(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(INPUT_MAX)];
    let Some((header, frame)) = bytes.split_first_chunk::<OFFLOAD_HEADER_BYTES>() else {
        return;
    };
    let Some(segmentation) = Segmentation::parse(header) else {
        return;
    };
    let tag = (header[0] & 1 == 1).then_some([0x81, 0, 0, 7]);
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
