//! Turns range keys into prefixes, or into bounds to check where that is not possible.

use crate::wide::mask64;

/// Inclusive bounds of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The key word that the field is in, or begins with.
    pub word: usize,
    pub limits: Limits,
}

/// The least and the greatest value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Limits {
    /// Limits of a field that is the bits `shift..shift + width` of its word.
    Narrow {
        shift: u32,
        mask: u64,
        low: u64,
        high: u64,
    },
    /// Limits of a field of whole words.
    Wide { low: Box<[u64]>, high: Box<[u64]> },
}

impl Bounds {
    /// Bounds of a field of `bits` bits that begins at bit `shift` of a word. `low` and `high` are as
    /// wide.
    pub fn new(word: usize, shift: u32, bits: u32, low: &[u64], high: &[u64]) -> Self {
        let limits = match (low, high) {
            (&[low], &[high]) => Limits::Narrow {
                shift,
                mask: mask64(bits),
                low,
                high,
            },
            _ => Limits::Wide {
                low: low.into(),
                high: high.into(),
            },
        };
        Self { word, limits }
    }

    /// Whether the field of a packed key is within the bounds.
    #[inline]
    pub fn contain(&self, key: &[u64]) -> bool {
        match &self.limits {
            Limits::Narrow {
                shift,
                mask,
                low,
                high,
            } => (low..=high).contains(&&((key[self.word] >> shift) & mask)),
            Limits::Wide { low, high } => {
                let k = &key[self.word..self.word + low.len()];
                k.iter().rev().ge(low.iter().rev()) && k.iter().rev().le(high.iter().rev())
            }
        }
    }

    /// The fewest prefixes, as value and mask, that cover the range exactly: at most twice as
    /// many as the field has bits. `None` for a field wider than a word.
    fn prefixes(&self) -> Option<Vec<(u64, u64)>> {
        let Limits::Narrow {
            mask: field,
            low,
            high,
            ..
        } = self.limits
        else {
            return None;
        };
        let mut prefixes = Vec::new();
        let mut from = low;
        loop {
            // The largest aligned block that begins here and does not go beyond the range.
            let mut block = mask64(from.trailing_zeros()) & field;
            while from + block > high {
                block >>= 1;
            }
            prefixes.push((from, field & !block));
            if from + block == high {
                return Some(prefixes);
            }
            from += block + 1;
        }
    }
}

/// Value and mask in packed words.
pub(crate) type Row = (Vec<u64>, Vec<u64>);

/// Turns an entry with ranges into rows of value and mask that together match the same packets, and
/// the bounds that must be checked besides. A single value, an aligned range and a range of all values
/// are one row. Of the other ranges, the first is spread over several rows (two would multiply).
pub(crate) fn rows(value: &[u64], mask: &[u64], bounds: &[Bounds]) -> (Vec<Row>, Vec<Bounds>) {
    let mut rows = vec![(value.to_vec(), mask.to_vec())];
    let mut checked = Vec::new();
    for bound in bounds {
        let shift = match bound.limits {
            Limits::Narrow { shift, .. } => shift,
            Limits::Wide { .. } => 0,
        };
        match bound.prefixes() {
            Some(prefixes) if prefixes.len() == 1 || rows.len() == 1 => {
                let spread = rows.iter().flat_map(|(value, mask)| {
                    prefixes.iter().map(|(v, m)| {
                        let (mut value, mut mask) = (value.clone(), mask.clone());
                        value[bound.word] |= v << shift;
                        mask[bound.word] |= m << shift;
                        (value, mask)
                    })
                });
                rows = spread.collect();
            }
            _ => checked.push(bound.clone()),
        }
    }
    (rows, checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(low: u64, high: u64, bits: u32) -> Bounds {
        Bounds::new(0, 8, bits, &[low], &[high])
    }

    #[test]
    fn prefixes_cover_exactly_the_range() {
        for low in 0..32 {
            for high in low..32 {
                let (rows, checked) = rows(&[3], &[0xff], &[bounds(low, high, 5)]);
                assert!(checked.is_empty() && rows.len() <= 8);
                for key in 0..32 {
                    let matching = rows
                        .iter()
                        .filter(|(v, m)| (key << 8 | 3) & m[0] == v[0])
                        .count();
                    assert_eq!(matching, usize::from((low..=high).contains(&key)));
                }
            }
        }
    }

    #[test]
    fn extreme_ranges_end() {
        let wide = Bounds::new(0, 0, 64, &[0], &[u64::MAX]);
        assert_eq!(wide.prefixes(), Some(vec![(0, 0)]));
        let most = Bounds::new(0, 0, 64, &[1], &[u64::MAX - 1]);
        assert_eq!(most.prefixes().map(|p| p.len()), Some(126));
    }

    #[test]
    fn only_one_field_is_spread() {
        let second = Bounds::new(0, 32, 4, &[1], &[14]);
        let exact = Bounds::new(0, 40, 4, &[7], &[7]);
        let all = [bounds(1, 30, 5), second.clone(), exact];
        let (rows, checked) = rows(&[0], &[0], &all);
        assert_eq!((rows.len(), checked), (8, vec![second]));
        assert!(rows.iter().all(|(v, _)| v[0] >> 40 == 7));
    }
}
