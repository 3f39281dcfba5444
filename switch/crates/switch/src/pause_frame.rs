//! PAUSE frames, which fill the gaps of a port. Every port consumes those that come in.
//!
//! IEEE 802.3, Annex 31B: to 01-80-C2-00-00-01, EtherType 0x8808 (MAC Control), opcode 1, pause
//! time. A pause time of 0 asks the neighbour for nothing. As in PSPacer, the frame may be longer
//! than the standard's 64 bytes: receivers look at the fields and drop the rest.

use traffic_manager::GAP_FRAME_MAX_BYTES;

/// Destination; bridges forward nothing that is sent to it.
const DESTINATION: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x01];
/// EtherType of MAC Control, and the opcode of PAUSE.
const MAC_CONTROL_PAUSE: [u8; 4] = [0x88, 0x08, 0x00, 0x01];
/// Offset of the source address.
const SOURCE_AT: usize = 6;
/// Offset of the EtherType.
const TYPE_AT: usize = 12;

/// Whether a port consumes the frame, with any pause time. No port stops sending for it.
pub(crate) fn is_pause(frame: &[u8]) -> bool {
    frame.get(TYPE_AT..TYPE_AT + MAC_CONTROL_PAUSE.len()) == Some(&MAC_CONTROL_PAUSE)
        && frame.starts_with(&DESTINATION)
}

/// A template for PAUSE frames of every length and port.
#[derive(Debug)]
pub(crate) struct PauseFrame(Box<[u8]>);

impl PauseFrame {
    pub(crate) fn new() -> Self {
        let mut bytes = vec![0; GAP_FRAME_MAX_BYTES as usize].into_boxed_slice();
        for (at, part) in [(0, &DESTINATION[..]), (TYPE_AT, &MAC_CONTROL_PAUSE)] {
            if let Some(place) = bytes.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
        }
        Self(bytes)
    }

    /// The frame from `source`, pause time 0, of `length_bytes` without FCS.
    pub(crate) fn bytes(&mut self, source: [u8; 6], length_bytes: u32) -> &[u8] {
        if let Some(place) = self.0.get_mut(SOURCE_AT..TYPE_AT) {
            place.copy_from_slice(&source);
        }
        let end = self.0.len().min(length_bytes as usize);
        self.0.get(..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_frame_is_known_whatever_its_length_and_pause_time() {
        let mut template = PauseFrame::new();
        for length_bytes in [60, 1_514, GAP_FRAME_MAX_BYTES] {
            let frame = template.bytes([2, 0, 0, 0, 0, 7], length_bytes);
            assert_eq!(frame.len(), length_bytes as usize);
            assert_eq!(
                frame.get(..18),
                Some(
                    &[
                        0x01, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 7, 0x88, 0x08, 0, 1, 0, 0
                    ][..]
                )
            );
            assert!(is_pause(frame));
            let mut longer = frame.to_vec();
            longer[16] = 0xff;
            assert!(is_pause(&longer));
        }
        let frame = template.bytes([0; 6], 60).to_vec();
        for (at, value) in [(0, 0xff), (5, 0x02), (13, 0x00), (15, 0x02)] {
            let mut other = frame.clone();
            other[at] = value;
            assert!(!is_pause(&other), "byte {at}");
        }
        assert!(!is_pause(&frame[..15]));
    }
}
