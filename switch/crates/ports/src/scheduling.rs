//! The scheduling class and the niceness of a thread (sched(7)).

use std::io;

use rustix::process::{
    Resource, Rlimit, getpid, getpriority_process, getrlimit, setpriority_process, setrlimit,
};

/// The lowest priority above all threads without a real-time class. Threads of the kernel that handle
/// interrupts have 50.
const PRIORITY: libc::c_int = 1;

/// By how much threads that give way are nicer than the process's first thread: where both want a
/// processor, they get a third of what it gets. With much less, changes time out on a busy machine.
const NICER: i32 = 5;

/// Has the calling thread give way to the process's first thread: its niceness is higher by 5. Threads
/// that it starts later inherit this.
///
/// # Errors
/// The kernel refuses.
pub fn give_way() -> io::Result<()> {
    // Not relative to the calling thread's own, which it may have inherited from one that gives way.
    let of_first = getpriority_process(Some(getpid()))?;
    // The kernel takes 19, the highest, for what is above.
    Ok(setpriority_process(None, of_first + NICER)?)
}

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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_gives_way_is_nicer_by_5_and_so_are_those_that_it_starts() {
        let niceness = || getpriority_process(None).expect("its own");
        let before = niceness();
        let first = thread::spawn(move || {
            give_way().expect("more niceness is allowed");
            let second = thread::spawn(move || {
                let inherited = niceness();
                give_way().expect("the same niceness is allowed");
                [inherited, niceness()]
            });
            (niceness(), second.join().expect("no panic"))
        });
        let expected = (before + NICER).min(19);
        let told = first.join().expect("no panic");
        assert_eq!(told, (expected, [expected; 2]));
        assert_eq!(niceness(), before);
    }
}
