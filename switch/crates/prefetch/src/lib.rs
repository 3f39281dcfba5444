//! Asks the processor for memory that will be read soon, as `prefetch()` in the Linux kernel does.
//!
//! A read from memory that is in no cache takes as long as some hundred instructions. A prefetch
//! starts that read and does not wait for it; prefetches of several places run at the same time.

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Starts to bring the cache lines of `value` into the caches. Nothing of the value is read, so what
/// it points to stays where it is.
///
/// On processors other than x86-64 this does nothing.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let begin = std::ptr::from_ref(value).cast::<i8>();
        for at in (0..size_of_val(value)).step_by(LINE_BYTES) {
            // SAFETY: a prefetch reads and writes nothing that the program could see, and it
            // faults at no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(begin.wrapping_add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, LINE_BYTES);
}

#[cfg(test)]
mod tests {
    use super::prefetch;

    #[test]
    fn takes_values_slices_and_nothing() {
        let words = vec![7_u64; 1_000];
        prefetch(&words[0]);
        prefetch(&words[..]);
        prefetch(&());
        assert_eq!(words, [7; 1_000]);
    }
}
