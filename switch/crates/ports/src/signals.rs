//! SIGTERM and SIGINT as a reason to wake up.

use std::io;
use std::sync::Arc;

use crate::wake_state::WakeState;

/// Wakes the waiter when `signal` comes, for the life of the process.
pub(crate) fn wake_on(signal: i32, wake_state: Arc<WakeState>) -> io::Result<()> {
    // SAFETY: the action is async-signal-safe: atomics and write(2), errno kept. It cannot panic,
    // allocate or take a lock; the Arc is never dropped, for the action is never unregistered.
    unsafe {
        signal_hook::low_level::register(signal, move || wake_state.wake_for_signal(signal))
    }?;
    Ok(())
}
