//! The scheduling class of a thread (sched(7)).

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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

/// Lets threads that the process starts later become real-time threads, too, after it has given up its
/// privileges. Without the right to do so it changes nothing.
pub fn allow_realtime_threads() {
    let limit = getrlimit(Resource::Rtprio);
    let least = PRIORITY.unsigned_abs().into();
    let at_least = |limit: Option<u64>| limit.map(|limit| limit.max(least));
    let raised = Rlimit {
        current: at_least(limit.current),
        maximum: at_least(limit.maximum),
    };
    let _ = setrlimit(Resource::Rtprio, raised);
}
