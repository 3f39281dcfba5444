//! Filters of packets: programs of the classic BSD Packet Filter, as `pcap_compile` writes them
//! (McCanne and Jacobson, "The BSD Packet Filter", USENIX Winter 1993; Linux,
//! `Documentation/networking/filter.rst`).

use thiserror::Error;

/// Most instructions of a filter, as in Linux (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4_096;

/// Words of the scratch memory.
const MEMORY_WORDS: usize = 16;

/// An instruction, as in `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if a comparison holds.
    pub jump_true: u8,
    /// Instructions to skip if it does not.
    pub jump_false: u8,
    /// Constant operand.
    pub k: u32,
}

/// The reason why a filter was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FilterError {
    /// No instructions, or too many.
    #[error("a filter has 1 to {INSTRUCTIONS_MAX} instructions, not {0}")]
    Length(usize),
    /// An operation that does not exist.
    #[error("instruction {0} of the filter has the unknown operation {1:#06x}")]
    Code(usize, u16),
    /// A jump to a place behind the last instruction, or an end without a return.
    #[error("instruction {0} of the filter leads past its end")]
    End(usize),
    /// A word of the scratch memory that does not exist.
    #[error("instruction {0} of the filter uses word {1} of {MEMORY_WORDS}")]
    Memory(usize, u32),
    /// A division by the constant 0.
    #[error("instruction {0} of the filter divides by 0")]
    Division(usize),
}

/// The source of an operand or a loaded value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Constant,
    X,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    Or,
    And,
    ShiftLeft,
    ShiftRight,
    Mod,
    Xor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

/// An operation, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    /// A = bytes of the packet at k, or at X + k.
    Load {
        bytes: usize,
        indexed: bool,
    },
    LoadConstant,
    LoadLength,
    LoadMemory,
    LoadXConstant,
    LoadXLength,
    LoadXMemory,
    /// X = 4 * (byte k & 15): the length of an IPv4 header.
    LoadXHeaderLength,
    Store,
    StoreX,
    Arithmetic(Arithmetic, Source),
    Negate,
    Jump,
    Compare(Comparison, Source),
    ReturnConstant,
    ReturnA,
    CopyAToX,
    CopyXToA,
}

impl Op {
    /// Decodes an operation; its bits are those of `linux/bpf_common.h`.
    fn decode(code: u16) -> Option<Self> {
        let source = if code & 0x08 == 0 {
            Source::Constant
        } else {
            Source::X
        };
        Some(match code {
            0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 => Self::Load {
                bytes: match code & 0x18 {
                    0x00 => 4,
                    0x08 => 2,
                    _ => 1,
                },
                indexed: code & 0x40 != 0,
            },
            0x00 => Self::LoadConstant,
            0x80 => Self::LoadLength,
            0x60 => Self::LoadMemory,
            0x01 => Self::LoadXConstant,
            0x81 => Self::LoadXLength,
            0x61 => Self::LoadXMemory,
            0xb1 => Self::LoadXHeaderLength,
            0x02 => Self::Store,
            0x03 => Self::StoreX,
            0x04 | 0x0c => Self::Arithmetic(Arithmetic::Add, source),
            0x14 | 0x1c => Self::Arithmetic(Arithmetic::Sub, source),
            0x24 | 0x2c => Self::Arithmetic(Arithmetic::Mul, source),
            0x34 | 0x3c => Self::Arithmetic(Arithmetic::Div, source),
            0x44 | 0x4c => Self::Arithmetic(Arithmetic::Or, source),
            0x54 | 0x5c => Self::Arithmetic(Arithmetic::And, source),
            0x64 | 0x6c => Self::Arithmetic(Arithmetic::ShiftLeft, source),
            0x74 | 0x7c => Self::Arithmetic(Arithmetic::ShiftRight, source),
            0x94 | 0x9c => Self::Arithmetic(Arithmetic::Mod, source),
            0xa4 | 0xac => Self::Arithmetic(Arithmetic::Xor, source),
            0x84 => Self::Negate,
            0x05 => Self::Jump,
            0x15 | 0x1d => Self::Compare(Comparison::Equal, source),
            0x25 | 0x2d => Self::Compare(Comparison::Greater, source),
            0x35 | 0x3d => Self::Compare(Comparison::GreaterOrEqual, source),
            0x45 | 0x4d => Self::Compare(Comparison::AnyBit, source),
            0x06 => Self::ReturnConstant,
            0x16 => Self::ReturnA,
            0x07 => Self::CopyAToX,
            0x87 => Self::CopyXToA,
            _ => return None,
        })
    }
}

/// A filter that has been checked: it ends for every packet, since jumps lead forwards only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketFilter(Vec<(Op, Instruction)>);

impl PacketFilter {
    /// Checks a filter.
    ///
    /// # Errors
    /// It names the instruction that is wrong.
    pub fn new(instructions: &[Instruction]) -> Result<Self, FilterError> {
        let length = instructions.len();
        if !(1..=INSTRUCTIONS_MAX).contains(&length) {
            return Err(FilterError::Length(length));
        }
        let mut decoded = Vec::with_capacity(length);
        for (at, instruction) in instructions.iter().enumerate() {
            let k = instruction.k;
            let op = Op::decode(instruction.code).ok_or(FilterError::Code(at, instruction.code))?;
            let furthest = match op {
                Op::ReturnConstant | Op::ReturnA => None,
                Op::Jump => Some(k as usize),
                Op::Compare(..) => Some(instruction.jump_true.max(instruction.jump_false).into()),
                _ => Some(0),
            };
            if furthest.is_some_and(|skipped| skipped >= length - at - 1) {
                return Err(FilterError::End(at));
            }
            let uses_memory = matches!(
                op,
                Op::LoadMemory | Op::LoadXMemory | Op::Store | Op::StoreX
            );
            if uses_memory && k as usize >= MEMORY_WORDS {
                return Err(FilterError::Memory(at, k));
            }
            let divides = matches!(
                op,
                Op::Arithmetic(Arithmetic::Div | Arithmetic::Mod, Source::Constant)
            );
            if divides && k == 0 {
                return Err(FilterError::Division(at));
            }
            decoded.push((op, *instruction));
        }
        Ok(Self(decoded))
    }

    /// Whether the filter accepts a frame. It does not accept one that is too short for what it reads,
    /// nor one for which it divides by 0.
    pub fn accepts(&self, frame: &[u8]) -> bool {
        self.run(frame).is_some_and(|bytes| bytes != 0)
    }

    fn run(&self, frame: &[u8]) -> Option<u32> {
        let (mut a, mut x) = (0_u32, 0_u32);
        let mut memory = [0_u32; MEMORY_WORDS];
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let mut at = 0;
        loop {
            let &(op, instruction) = self.0.get(at)?;
            at += 1;
            let k = instruction.k;
            let word = k as usize;
            match op {
                Op::Load { bytes, indexed } => {
                    let from = if indexed { k.checked_add(x)? } else { k } as usize;
                    let loaded = frame.get(from..from.checked_add(bytes)?)?;
                    a = loaded.iter().fold(0, |a, byte| a << 8 | u32::from(*byte));
                }
                Op::LoadConstant => a = k,
                Op::LoadLength => a = length,
                Op::LoadMemory => a = *memory.get(word)?,
                Op::LoadXConstant => x = k,
                Op::LoadXLength => x = length,
                Op::LoadXMemory => x = *memory.get(word)?,
                Op::LoadXHeaderLength => x = 4 * u32::from(*frame.get(word)? & 15),
                Op::Store => *memory.get_mut(word)? = a,
                Op::StoreX => *memory.get_mut(word)? = x,
                Op::Arithmetic(arithmetic, source) => {
                    let b = if source == Source::X { x } else { k };
                    a = match arithmetic {
                        Arithmetic::Add => a.wrapping_add(b),
                        Arithmetic::Sub => a.wrapping_sub(b),
                        Arithmetic::Mul => a.wrapping_mul(b),
                        Arithmetic::Div => a.checked_div(b)?,
                        Arithmetic::Mod => a.checked_rem(b)?,
                        Arithmetic::Or => a | b,
                        Arithmetic::And => a & b,
                        Arithmetic::Xor => a ^ b,
                        Arithmetic::ShiftLeft => a.checked_shl(b).unwrap_or(0),
                        Arithmetic::ShiftRight => a.checked_shr(b).unwrap_or(0),
                    };
                }
                Op::Negate => a = a.wrapping_neg(),
                Op::Jump => at += word,
                Op::Compare(comparison, source) => {
                    let b = if source == Source::X { x } else { k };
                    let holds = match comparison {
                        Comparison::Equal => a == b,
                        Comparison::Greater => a > b,
                        Comparison::GreaterOrEqual => a >= b,
                        Comparison::AnyBit => a & b != 0,
                    };
                    at += usize::from(if holds {
                        instruction.jump_true
                    } else {
                        instruction.jump_false
                    });
                }
                Op::ReturnConstant => return Some(k),
                Op::ReturnA => return Some(a),
                Op::CopyAToX => x = a,
                Op::CopyXToA => a = x,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(program: &[(u16, u8, u8, u32)]) -> Result<PacketFilter, FilterError> {
        let program = program.iter();
        let instructions: Vec<_> = program
            .map(|&(code, jump_true, jump_false, k)| Instruction {
                code,
                jump_true,
                jump_false,
                k,
            })
            .collect();
        PacketFilter::new(&instructions)
    }

    /// `tcp dst port 80` as libpcap compiles it for Ethernet.
    const TCP_DST_PORT_80: [(u16, u8, u8, u32); 16] = [
        (0x28, 0, 0, 12),
        (0x15, 0, 4, 0x86dd),
        (0x30, 0, 0, 20),
        (0x15, 0, 11, 6),
        (0x28, 0, 0, 56),
        (0x15, 8, 9, 80),
        (0x15, 0, 8, 0x800),
        (0x30, 0, 0, 23),
        (0x15, 0, 6, 6),
        (0x28, 0, 0, 20),
        (0x45, 4, 0, 0x1fff),
        (0xb1, 0, 0, 14),
        (0x48, 0, 0, 16),
        (0x15, 0, 1, 80),
        (0x06, 0, 0, 65_535),
        (0x06, 0, 0, 0),
    ];

    fn tcp_to(port: u16) -> Vec<u8> {
        let mut frame = vec![0; 54];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[23] = 6;
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    }

    #[test]
    fn a_compiled_filter_accepts_what_it_names() {
        let filter = filter(&TCP_DST_PORT_80).expect("valid");
        assert!(filter.accepts(&tcp_to(80)));
        assert!(!filter.accepts(&tcp_to(81)));
        let mut udp = tcp_to(80);
        udp[23] = 17;
        assert!(!filter.accepts(&udp));
        let mut fragment = tcp_to(80);
        fragment[21] = 1;
        assert!(!filter.accepts(&fragment));
        for bytes in 0..38 {
            assert!(!filter.accepts(&tcp_to(80)[..bytes]), "{bytes} bytes");
        }
    }

    #[test]
    fn arithmetic_is_that_of_32_bits() {
        // A = length; X = A; A = ((A + 3) * X - 1) ^ 5, by way of the memory; then A % 7.
        let program = [
            (0x80, 0, 0, 0),
            (0x07, 0, 0, 0),
            (0x04, 0, 0, 3),
            (0x2c, 0, 0, 0),
            (0x14, 0, 0, 1),
            (0x02, 0, 0, 15),
            (0x00, 0, 0, 0),
            (0x60, 0, 0, 15),
            (0xa4, 0, 0, 5),
            (0x94, 0, 0, 7),
            (0x16, 0, 0, 0),
        ];
        let filter = filter(&program).expect("valid");
        for length in 1..100_u32 {
            let expected = (((length + 3) * length - 1) ^ 5) % 7;
            let frame = vec![0; length as usize];
            assert_eq!(filter.run(&frame), Some(expected), "{length} bytes");
        }
    }

    #[test]
    fn wrong_filters_are_refused_by_instruction() {
        assert_eq!(filter(&[]), Err(FilterError::Length(0)));
        assert_eq!(filter(&[(0x20, 0, 0, 0)]), Err(FilterError::End(0)));
        assert_eq!(
            filter(&[(0x15, 0, 1, 0), (0x06, 0, 0, 1)]),
            Err(FilterError::End(0))
        );
        assert_eq!(
            filter(&[(0x05, 0, 0, u32::MAX), (0x06, 0, 0, 1)]),
            Err(FilterError::End(0))
        );
        assert_eq!(
            filter(&[(0x60, 0, 0, 16), (0x06, 0, 0, 1)]),
            Err(FilterError::Memory(0, 16))
        );
        assert_eq!(
            filter(&[(0x34, 0, 0, 0), (0x06, 0, 0, 1)]),
            Err(FilterError::Division(0))
        );
        assert_eq!(filter(&[(0xff, 0, 0, 0)]), Err(FilterError::Code(0, 0xff)));
    }

    #[test]
    fn a_division_by_zero_accepts_nothing() {
        let filter = filter(&[(0x3c, 0, 0, 0), (0x06, 0, 0, 1)]).expect("valid");
        assert!(!filter.accepts(&[0; 60]));
    }
}
