//! The fields of a table's key: where each is in the packet and in the packed key.

use super::range::Bounds;
use crate::entries::MatchKind;
use crate::slot::Slot;
use crate::wide::limbs;

/// A word of the PHV, and where it goes in the packed key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyWord {
    pub slot: Slot,
    /// As [`KeyPart::validity`].
    pub validity: Option<Slot>,
    pub word: u32,
    pub shift: u32,
    pub mask: u64,
}

impl KeyWord {
    /// The words of a field.
    pub fn of(part: &KeyPart) -> impl Iterator<Item = Self> {
        (0..limbs(part.bits)).map(|limb| Self {
            slot: part.slot + limb,
            validity: part.validity,
            word: part.word as u32 + limb,
            shift: part.shift,
            mask: match &part.mask {
                Some(mask) => mask.get(limb as usize).copied().unwrap_or(0),
                None => u64::MAX,
            },
        })
    }
}

/// One field of a key and its place in the packed key words. Fields up to 64 bits share words;
/// wider ones have words of their own.
#[derive(Debug, Clone)]
pub(crate) struct KeyPart {
    /// Slot of the field.
    pub slot: Slot,
    /// Slot of the validity, 0 or 1, of the field's header: a field of an invalid header is 0 in the key.
    /// `None` for metadata, and for a key that is the validity itself.
    pub validity: Option<Slot>,
    /// Width of the field.
    pub bits: u32,
    /// Its match kind.
    pub kind: MatchKind,
    /// The packed word that it is in, or begins with.
    pub word: usize,
    /// Its lowest bit in that word.
    pub shift: u32,
    /// Static mask of the program, applied to the packet's value.
    pub mask: Option<Box<[u64]>>,
}

impl KeyPart {
    /// Places fields of these widths; returns (word, shift) each, and the words needed.
    pub fn pack(widths: &[u32]) -> (Vec<(usize, u32)>, usize) {
        let mut places = vec![(0, 0); widths.len()];
        let mut words = 0;
        // The shared word being filled and the bits used in it.
        let mut open: Option<(usize, u32)> = None;
        for (place, &bits) in places.iter_mut().zip(widths) {
            if bits == 0 {
                // Its one limb is zero: any word will do.
                words = words.max(1);
                continue;
            }
            if bits > 64 {
                *place = (words, 0);
                words += limbs(bits) as usize;
                continue;
            }
            *place = match open {
                Some((word, used)) if used + bits <= 64 => (word, used),
                _ => {
                    words += 1;
                    (words - 1, 0)
                }
            };
            open = Some((place.0, place.1 + bits));
        }
        (places, words)
    }

    /// ORs the field's limbs into packed words.
    pub fn put(&self, limbs: &[u64], packed: &mut [u64]) {
        for (i, limb) in limbs.iter().enumerate() {
            if let Some(word) = packed.get_mut(self.word + i) {
                *word |= limb << self.shift;
            }
        }
    }
}

/// An entry's match in packed form.
#[derive(Debug, Clone, Default)]
pub(crate) struct Packed {
    /// The value, zero where the mask is.
    pub value: Vec<u64>,
    /// Bits that must match.
    pub mask: Vec<u64>,
    /// Bounds of range fields.
    pub bounds: Vec<Bounds>,
    /// The greatest priority wins; of lpm entries the prefix length.
    pub priority: i64,
}
