//! Sets of the children of a node: bit `k` is child `k`.

pub(super) fn bit(child: u8) -> u64 {
    1 << (child % 64)
}

/// The positions of the bits, in ascending order.
pub(super) fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = set.trailing_zeros();
        (at < u64::BITS).then(|| {
            set &= set - 1;
            at as usize
        })
    })
}
