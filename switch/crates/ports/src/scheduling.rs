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

/// Has the calling thread give way to the process's first thread: its niceness is higher by 5, and it does
/// not take the processor from another thread when it wakes (SCHED_BATCH). Threads that it starts later
/// inherit this.
///
/// # Errors
/// The kernel refuses.
pub fn give_way() -> io::Result<()> {
    // Not relative to the calling thread's own, which it may have inherited from one that gives way.
    let of_first = getpriority_process(Some(getpid()))?;
    // The kernel takes 19, the highest, for what is above.
    setpriority_process(None, of_first + NICER)?;
    set_class(libc::SCHED_BATCH, 0)
}

/// Gives the calling thread the real-time class SCHED_FIFO: it runs as soon as it wakes, until it sleeps.
/// Threads that it starts later have the ordinary class.
///
/// # Errors
/// The process has neither CAP_SYS_NICE nor a limit of real-time priorities (`ulimit -r`) above 0.
pub fn become_realtime() -> io::Result<()> {
    set_class(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, PRIORITY)
}

/// Sets the scheduling class of the calling thread.
fn set_class(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: all-zero is a valid sched_param.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
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
    fn threads_that_give_way_are_nicer_by_5_and_of_class_batch() {
        // SAFETY: the call has no pointers. 0 is the calling thread.
        let class = || unsafe { libc::sched_getscheduler(0) };
        let own = move || (getpriority_process(None).expect("its own"), class());
        let before = own();
        let first = thread::spawn(move || {
            give_way().expect("more niceness is allowed");
            let second = thread::spawn(move || {
                let inherited = own();
                give_way().expect("the same niceness is allowed");
                [inherited, own()]
            });
            (own(), second.join().expect("no panic"))
        });
        let expected = ((before.0 + NICER).min(19), libc::SCHED_BATCH);
        let told = first.join().expect("no panic");
        assert_eq!(told, (expected, [expected; 2]));
        assert_eq!(own(), before);
    }
}
