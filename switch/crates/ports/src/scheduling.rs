//! The scheduling class of a thread (sched(7)).

use std::io;

/// The lowest priority above all threads without a real-time class. Threads of the kernel that handle
/// interrupts have 50.
const PRIORITY: libc::c_int = 1;

/// Gives the calling thread the real-time class SCHED_FIFO: it runs as soon as it wakes, until it sleeps.
/// Threads that it starts later have the ordinary class.
///
/// # Errors
/// The process has neither CAP_SYS_NICE nor a limit of real-time priorities (`ulimit -r`) above 0.
pub fn become_realtime() -> io::Result<()> {
    // SAFETY: all-zero is a valid sched_param.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = PRIORITY;
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameters` lives across the call, which only reads it. 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
