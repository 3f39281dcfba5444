//! The content of the gaps between paced packets: idle time, or PAUSE frames.
//!
//! PSPacer (Takano et al.) fills gaps with PAUSE frames of IEEE 802.3x (Annex 31B) whose pause time
//! is 0: the next port drops them, and the wire itself is the clock. Two rules are PSPacer's:
//!
//! * A gap frame fills the time until the next paced packet may leave; a gap longer than the
//!   longest frame is made of several.
//! * No frame is shorter than Ethernet's shortest, 64 bytes with FCS.
//!
//! Three rules are this switch's own:
//!
//! * The several frames of a long gap have equal sizes.
//! * A gap shorter than the shortest frame is filled with one, and the packet behind it leaves late
//!   by the excess. The next gap is shorter by the same time, because departure times are absolute:
//!   lateness does not add up.
//! * Gap frames flow only while a paced packet waits and no packet can start.
//!
//! A wire carries whole bytes. A gap is rounded up to whole bytes, so that no packet is early.

/// Shortest frame of Ethernet, layer 2 without FCS, in bytes (IEEE 802.3: 64 with FCS).
pub const GAP_FRAME_MIN_BYTES: u32 = 60;

/// Longest PAUSE frame that a port may send, layer 2 without FCS, in bytes: the longest jumbo frame
/// that switches carry.
pub const GAP_FRAME_MAX_BYTES: u32 = 9_216;

/// Default length of the longest PAUSE frame: Ethernet's longest, as PSPacer's at an MTU of 1500.
pub const GAP_FRAME_DEFAULT_BYTES: u32 = 1_514;

/// The content of the gaps between the paced packets of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Gaps {
    /// Nothing: they are accounted for.
    #[default]
    Accounted,
    /// PAUSE frames with pause time 0. The port needs a line rate.
    PauseFrames {
        /// The longest, layer 2 without FCS: [`GAP_FRAME_MIN_BYTES`] to
        /// [`GAP_FRAME_MAX_BYTES`]. An unforeseen packet waits for the end of the frame on
        /// the line.
        longest_bytes: u32,
    },
}

/// Length of the next frame (layer 2 without FCS) in a gap of `gap_line_bytes`, where a frame takes
/// `overhead_bytes` of the line beside its length.
pub(crate) fn frame_length_bytes(
    gap_line_bytes: u128,
    longest_bytes: u32,
    overhead_bytes: u32,
) -> u32 {
    let frames = gap_line_bytes.div_ceil(u128::from(longest_bytes + overhead_bytes));
    let share = gap_line_bytes.div_ceil(frames.max(1));
    // At most the longest frame with its overhead.
    u32::try_from(share)
        .unwrap_or(longest_bytes)
        .saturating_sub(overhead_bytes)
        .clamp(GAP_FRAME_MIN_BYTES, longest_bytes)
}

#[cfg(test)]
mod tests {
    use super::frame_length_bytes;

    #[test]
    fn a_gap_is_one_frame_or_several_of_equal_size() {
        let wire = |gap| frame_length_bytes(gap, 1_514, 24);
        assert_eq!(
            [wire(1), wire(84), wire(85), wire(1_538)],
            [60, 60, 61, 1_514]
        );
        assert_eq!(wire(1_539), 770 - 24);
        assert_eq!(wire(3 * 1_538), 1_514);
        assert_eq!(wire(3 * 1_538 + 1), 1_154 - 24);
        assert_eq!(wire(u128::MAX), 1_514);
        assert_eq!(frame_length_bytes(100, 60, 4), 60);
    }
}
