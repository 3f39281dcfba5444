//! Filters of packets.

use switch::trace::{Instruction, PacketFilter};

/// Bytes of an instruction.
const INSTRUCTION_BYTES: usize = 8;

/// A byte with the number of instructions, the instructions as `struct sock_filter`, then a frame.
pub fn filter(bytes: &[u8]) {
    let Some((&count, rest)) = bytes.split_first() else {
        return;
    };
    let Some((program, frame)) = rest.split_at_checked(usize::from(count) * INSTRUCTION_BYTES)
    else {
        return;
    };
    let instructions: Vec<_> = program
        .as_chunks::<INSTRUCTION_BYTES>()
        .0
        .iter()
        .map(
            |&[c0, c1, jump_true, jump_false, k0, k1, k2, k3]| Instruction {
                code: u16::from_le_bytes([c0, c1]),
                jump_true,
                jump_false,
                k: u32::from_le_bytes([k0, k1, k2, k3]),
            },
        )
        .collect();
    if let Ok(filter) = PacketFilter::new(&instructions) {
        let accepts = filter.accepts(frame);
        assert_eq!(filter.accepts(frame), accepts, "a filter has a memory");
    }
}
