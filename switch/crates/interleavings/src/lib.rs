//! Threads and memory for tests of the orders in which threads run.
//!
//! With `--cfg loom` (`make loom`) they are loom's, which tries all orders. Otherwise they are those of the
//! standard library: `cargo test` runs them as they come, and Miri (`make miri`) in random orders. Miri also
//! checks each access to memory, and lets a load see an older store where the memory model allows that.

#[cfg(loom)]
pub use loom::{cell::UnsafeCell, sync, thread};
#[cfg(not(loom))]
pub use std::{sync, thread};

/// [`std::cell::UnsafeCell`] with the methods of loom's.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// A cell with a value.
    pub fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `read` with a pointer to the value.
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `write` with a pointer to the value.
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// Starts a thread. It and its maker then go on side by side: without loom, a thread takes long to begin, and its
/// maker would always be far ahead.
pub fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    #[cfg(loom)]
    {
        thread::spawn(work)
    }
    #[cfg(not(loom))]
    {
        let both = sync::Arc::new(sync::Barrier::new(2));
        let begun = sync::Arc::clone(&both);
        let thread = thread::spawn(move || {
            begun.wait();
            work()
        });
        both.wait();
        thread
    }
}

/// Runs `test` in all orders of its threads' steps (loom), or twenty times.
///
/// `preemptions` bounds how often loom interrupts a thread that could go on. `None`: there is no bound, which
/// takes very long with three threads.
pub fn check(preemptions: Option<usize>, test: impl Fn() + Send + Sync + 'static) {
    #[cfg(loom)]
    {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions;
        model.check(test);
    }
    #[cfg(not(loom))]
    {
        let _ = preemptions;
        for _ in 0..20 {
            test();
        }
    }
}
