//! The scheduling class, the niceness and the processors of a thread (sched(7)).

use std::io;

use rustix::io::Errno;
use rustix::process::{
    Resource, Rlimit, getpid, getpriority_process, getrlimit, setpriority_process, setrlimit,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

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

/// Keeps the calling thread, and those that it starts later, off a processor that
/// [`keep_to_processor`] can give to a thread. Returns how many others they may use, at least one. The kernel
/// may have excluded the processor from those that a process gets by itself (`isolcpus`).
///
/// # Errors
/// The process may not use this processor, or no other one.
pub fn leave_processor(processor: usize) -> io::Result<u32> {
    let mut others = sched_getaffinity(None)?;
    // The kernel alone knows whether it exists and is allowed.
    keep_to_processor(processor)?;
    others.unset(processor);
    if others.count() == 0 {
        return Err(io::Error::other("this process may use no other one"));
    }
    sched_setaffinity(None, &others)?;
    Ok(others.count())
}

/// Keeps the calling thread, and those that it starts later, to a processor.
///
/// # Errors
/// There is no such processor, or the process may not use it.
pub fn keep_to_processor(processor: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    if processor < CpuSet::MAX_CPU {
        only.set(processor);
    }
    sched_setaffinity(None, &only).map_err(|error| match error {
        Errno::INVAL => io::Error::other("no such processor, or this process may not use it"),
        other => other.into(),
    })
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

    #[test]
    fn a_thread_leaves_a_processor_and_another_keeps_to_it() {
        let processors = |set: CpuSet| -> Vec<usize> {
            (0..CpuSet::MAX_CPU).filter(|&at| set.is_set(at)).collect()
        };
        let before = processors(sched_getaffinity(None).expect("its own"));
        let last = before[before.len() - 1];
        let of_threads = thread::spawn(move || {
            let left = leave_processor(last)
                .map(|others| (others, sched_getaffinity(None).expect("its own")));
            keep_to_processor(last).expect("the process may use it");
            (left, sched_getaffinity(None).expect("its own"))
        });
        let (left, kept) = of_threads.join().expect("no panic");
        assert_eq!(processors(kept), [last]);
        match left {
            Ok((others, left)) => {
                assert_eq!(processors(left), before[..before.len() - 1]);
                assert_eq!(others as usize, before.len() - 1);
            }
            Err(error) => assert!(before.len() == 1, "{error}"),
        }
        for wrong in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
            leave_processor(wrong).expect_err("no such processor");
            keep_to_processor(wrong).expect_err("no such processor");
        }
    }
}
