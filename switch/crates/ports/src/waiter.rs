//! Waiting for frames, for other threads, for a signal, and for an instant, in one system call.
//!
//! # Many ports
//! The waiter asks the kernel with epoll(7), which returns only the ports that have frames. With a
//! hundred ports, poll(2) would look at each to find one.
//!
//! # Exact deadlines
//! To save wake-ups, the kernel lengthens timeouts: by a thousandth (a 200th for niced processes,
//! nothing for real-time threads), but at least by the thread's timer slack, and at most by 100 ms
//! (`select_estimate_accuracy` in fs/select.c). A wait of 1.518 s, one frame at 8 kbit/s, would end
//! 1.5 ms late. The wait ends when the slack is over, or earlier within it if the processor is awake
//! anyway. So the waiter asks for a shorter timeout: timeout and slack together end at the deadline.
//! The wait may then end early, by up to a thousandth. The caller reads the clock and waits again.
//!
//! With the slack, the shortest timeout takes 2 ns. For a deadline 1 ns from now the waiter sets a
//! timerfd, which has no slack but costs a second system call. (Virtual time needs this often: the
//! frames of a steady stream come one nanosecond before the previous ones are due.)
//!
//! # Cost of waking
//! A [`Waker`] sets an atomic. It writes to the eventfd only if the waiter sleeps.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use bell::Bell;
use rustix::event::{PollFd, PollFlags, epoll};

use crate::clock;
use crate::port::Port;
use crate::sys::{self, Events, TimeoutSlack};
use crate::wake_state::WakeState;

/// The most that the kernel adds.
const MAX_SLACK_NS: u64 = 100_000_000;
/// Longest timeout: a day. Waits for later deadlines end early, which is allowed.
const MAX_TIMEOUT_NS: u64 = 86_400 * clock::NS_PER_S;
/// Most waits in a row that end without a system call. The next asks the kernel all the same, for
/// errors and clock steps.
const MAX_SKIPPED: u32 = 256;

/// Wakes a [`Waiter`] from any thread. Cloning is cheap. Costs a system call only if the waiter
/// sleeps.
#[derive(Clone, Debug)]
pub struct Waker {
    wake_state: Arc<WakeState>,
}

impl Waker {
    /// Makes the present or the next wait end at once with [`Woken::called`]. Writes before this call
    /// are visible to the waiting thread then. Several calls may be seen as one.
    pub fn wake(&self) {
        // The bell makes it visible.
        self.wake_state.called.store(true, Ordering::Relaxed);
        self.wake_state.wake();
    }
}

/// Ends the waits of a [`Waiter`] from another thread that has frames for it. As [`Waker`], but without
/// [`Woken::called`].
#[derive(Clone, Debug)]
pub struct FrameWaker {
    wake_state: Arc<WakeState>,
}

impl FrameWaker {
    /// Makes the present or the next wait end at once. Writes before this call are visible to the waiting
    /// thread then. Several calls may be seen as one.
    pub fn wake(&self) {
        self.wake_state.wake();
    }
}

/// The options of a waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaiterOptions {
    /// The waiter polls the rings and the clock, instead of sleeping, when a deadline is closer than
    /// this. That takes a processor core while it lasts. 0 (default): always sleep, as in virtual
    /// time, where sleeping is exact. On ordinary kernels a sleep ends 20 to 100 us late, so 100000
    /// is a sensible value for exact gaps.
    pub spin_ns: u64,
}

/// The reasons for the end of a wait. Several may hold, or none: a wait may end without a reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// A port has frames ([`Waiter::is_readable`] says which). Not every wait asks for this, so look
    /// at the rings after each.
    pub readable: bool,
    /// A port has an error, see [`Waiter::has_error`]; take it with [`Port::take_error`], or the
    /// next wait ends at once, too.
    pub error: bool,
    /// A [`Waker`] was used.
    pub called: bool,
    /// The deadline has passed, as far as the waiter knows: up to a thousandth of the wait early.
    pub deadline: bool,
    /// This signal asks the process to end (see [`Waiter::end_on_signals`]). Stays set.
    pub signal: Option<i32>,
    /// CLOCK_REALTIME was stepped; the offset has been measured again. For the log.
    pub clock_stepped: bool,
}

/// Identifies a port within a [`Waiter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(usize);

/// Waits. Belongs to one thread at a time: its first [`wait`](Waiter::wait) sets that thread's
/// timer slack to 1 ns.
pub struct Waiter {
    options: WaiterOptions,
    wake_state: Arc<WakeState>,
    /// Readable after a step of CLOCK_REALTIME; absent where the kernel cannot tell.
    clock_step: Option<OwnedFd>,
    /// For a deadline 1 ns from now.
    alarm: OwnedFd,
    /// Eventfd, clock step, alarm, which end [`Waiter::sleep_until`], and the ports.
    epoll: OwnedFd,
    /// Ports ever added.
    ports: usize,
    /// The events that ended the last wait by `epoll`.
    events: Events,
    /// Ports that the last wait found readable.
    readable: Vec<usize>,
    /// The last wait asked the kernel, so `readable` has all of them.
    listed: bool,
    thread: Option<(std::thread::ThreadId, TimeoutSlack)>,
    skipped: u32,
    /// Calls of [`Waiter::sleep_until`].
    sleeps: u32,
}

const IN: epoll::EventFlags = epoll::EventFlags::IN;

const WAKE_SLOT: usize = 0;
const STEP_SLOT: usize = 1;
const ALARM_SLOT: usize = 2;
/// Keys of epoll's events: the slots above, then the ports.
const PORT_KEYS: usize = 3;
/// Most events of one wait. The rest come with the next.
const MAX_EVENTS: usize = 1024;

impl Waiter {
    /// A waiter without ports.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(options: WaiterOptions) -> io::Result<Waiter> {
        let wake_state = Arc::new(WakeState {
            bell: Bell::new(),
            called: AtomicBool::new(false),
            signal: AtomicI32::new(0),
            event: sys::event_fd()?,
        });
        let clock_step = sys::clock_step_fd().ok();
        let alarm = sys::alarm_fd()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &wake_state.event, key_of(WAKE_SLOT), IN)?;
        if let Some(clock_step) = &clock_step {
            epoll::add(&epoll, clock_step, key_of(STEP_SLOT), IN)?;
        }
        // It stays readable until it is set again.
        let once = IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &alarm, key_of(ALARM_SLOT), once)?;
        Ok(Waiter {
            options,
            wake_state,
            clock_step,
            alarm,
            epoll,
            ports: 0,
            events: Events(Vec::with_capacity(PORT_KEYS)),
            readable: Vec::new(),
            listed: false,
            thread: None,
            skipped: 0,
            sleeps: 0,
        })
    }

    /// Also wait for frames of `port`. The port must be [`remove`](Waiter::remove)d before it is
    /// closed, or waits end at once with an error.
    ///
    /// # Errors
    /// The kernel has no memory for another one.
    pub fn add(&mut self, port: &Port) -> io::Result<Token> {
        let token = Token(self.ports);
        epoll::add(&self.epoll, port, key_of(PORT_KEYS + token.0), IN)?;
        self.ports += 1;
        self.events
            .0
            .reserve(MAX_EVENTS.min(PORT_KEYS + self.ports));
        Ok(token)
    }

    /// No longer wait for this port. Its token stays unused; others keep theirs.
    pub fn remove(&mut self, port: &Port) {
        let _ = epoll::delete(&self.epoll, port);
    }

    /// The ports that had frames when the last wait ended, by their place in the order of
    /// [`add`](Waiter::add) from 0; `None`: the kernel was not asked, and any port may have some.
    #[must_use]
    pub fn readable(&self) -> Option<&[usize]> {
        self.listed.then_some(self.readable.as_slice())
    }

    /// A handle for other threads.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker {
            wake_state: Arc::clone(&self.wake_state),
        }
    }

    /// A handle for threads that hand frames over.
    #[must_use]
    pub fn frame_waker(&self) -> FrameWaker {
        FrameWaker {
            wake_state: Arc::clone(&self.wake_state),
        }
    }

    /// From now on SIGTERM and SIGINT end a wait, with [`Woken::signal`], instead of the process. A
    /// second signal changes nothing.
    ///
    /// # Errors
    /// When the kernel refuses the handlers.
    pub fn end_on_signals(&self) -> io::Result<()> {
        for signal in [libc::SIGTERM, libc::SIGINT] {
            crate::signals::wake_on(signal, Arc::clone(&self.wake_state))?;
        }
        Ok(())
    }

    /// Waits until a port has frames, a waker is used, a signal comes, or `deadline_ns` (of
    /// [`clock::now_ns`]'s clock; `None`: no deadline) is reached. `now_ns` is the caller's latest
    /// reading of that clock; the wait ends late by its age, unless the waiter spins. `has_frame` says
    /// whether any ring holds a frame (`|_| ports.iter().any(Port::has_frame)`). It is called at the
    /// beginning and, while spinning, with each reading of the clock.
    ///
    /// Makes one system call, or two if 1 ns is left. Makes none if a waker was used since the last
    /// wait, a ring holds a frame, or the deadline has passed or is within `spin_ns` (but every 256th
    /// such wait asks the kernel, without blocking).
    ///
    /// # Errors
    /// When the kernel refuses to poll (no memory).
    pub fn wait(
        &mut self,
        now_ns: u64,
        deadline_ns: Option<u64>,
        has_frame: impl FnMut(u64) -> bool,
    ) -> io::Result<Woken> {
        self.wait_for(true, now_ns, deadline_ns, has_frame)
    }

    /// The same, but frames and errors of ports do not end the wait (except every 256th).
    ///
    /// # Errors
    /// As [`wait`](Waiter::wait).
    pub fn sleep_until(&mut self, now_ns: u64, deadline_ns: u64) -> io::Result<Woken> {
        self.sleeps = self.sleeps.wrapping_add(1);
        let ports = self.sleeps.is_multiple_of(MAX_SKIPPED);
        self.wait_for(ports, now_ns, Some(deadline_ns), |_| false)
    }

    /// [`wait`](Waiter::wait), for frames and errors of ports or not.
    fn wait_for(
        &mut self,
        ports: bool,
        now_ns: u64,
        deadline_ns: Option<u64>,
        mut has_frame: impl FnMut(u64) -> bool,
    ) -> io::Result<Woken> {
        self.events.0.clear();
        self.listed = false;
        let slack = self.slack();
        let left_ns = deadline_ns.map(|deadline_ns| deadline_ns.saturating_sub(now_ns));
        let near = left_ns.is_some_and(|left_ns| left_ns <= self.options.spin_ns);
        let mut woken = Woken::default();
        if self.skipped < MAX_SKIPPED && has_frame(now_ns) {
            self.skipped += 1;
            woken.readable = true;
            woken.called = self.wake_state.take_call();
        } else if near && self.skipped < MAX_SKIPPED {
            self.skipped += 1;
            self.spin(now_ns, deadline_ns.unwrap_or(0), has_frame, &mut woken);
            woken.called = self.wake_state.take_call();
        } else {
            self.skipped = 0;
            let sleep_ns = left_ns.map(|left_ns| left_ns.saturating_sub(self.options.spin_ns));
            let slept_to_spin = self.sleep(ports, now_ns, sleep_ns, slack, &mut woken)?;
            if slept_to_spin && deadline_ns.is_some() {
                self.after_sleep(deadline_ns.unwrap_or(0), has_frame, &mut woken);
            }
        }
        let signal = self.wake_state.signal.load(Ordering::Acquire);
        woken.signal = (signal != 0).then_some(signal);
        Ok(woken)
    }

    /// Whether the last wait ended with frames for this port.
    #[must_use]
    pub fn is_readable(&self, token: Token) -> bool {
        self.events_of(token).contains(IN)
    }

    /// Whether the last wait ended with an error of this port.
    #[must_use]
    pub fn has_error(&self, token: Token) -> bool {
        !self.events_of(token).difference(IN).is_empty()
    }

    fn events_of(&self, token: Token) -> epoll::EventFlags {
        let key = (PORT_KEYS + token.0) as u64;
        let found = self.events.0.iter().find(|event| event.data.u64() == key);
        found.map_or(epoll::EventFlags::empty(), |event| event.flags)
    }

    /// One call of the kernel. True when the end of `sleep_ns`, counted from `now_ns`, ended it.
    fn sleep(
        &mut self,
        ports: bool,
        now_ns: u64,
        sleep_ns: Option<u64>,
        slack: TimeoutSlack,
        woken: &mut Woken,
    ) -> io::Result<bool> {
        if !self.wake_state.bell.fall_asleep() {
            woken.called = self.wake_state.called.swap(false, Ordering::Relaxed);
            return Ok(false);
        }
        let alarmed = sleep_ns == Some(1) && slack != TimeoutSlack::None;
        let timeout_ns = if alarmed {
            // Setting the alarm also clears an earlier expiry.
            sys::set_alarm(&self.alarm, now_ns + 1)?;
            None
        } else {
            sleep_ns.map(|sleep_ns| timeout_for(sleep_ns, slack))
        };
        let mut slots = [false; PORT_KEYS];
        let ended = if ports {
            sys::epoll_wait(&self.epoll, &mut self.events, timeout_ns)
        } else {
            self.poll_slots(alarmed, timeout_ns, &mut slots)
        };
        let rung = self.wake_state.bell.wake_up();
        woken.called = self.wake_state.called.swap(false, Ordering::Relaxed);
        let Some(ready) = ended? else {
            return Ok(false);
        };
        if ports {
            slots = self.list_ports(woken);
        }
        if ready == 0 {
            return Ok(!rung);
        }
        if slots[WAKE_SLOT] {
            sys::event_clear(&self.wake_state.event);
        }
        if slots[STEP_SLOT] {
            self.clear_clock_step();
            woken.clock_stepped = true;
        }
        Ok(alarmed && slots[ALARM_SLOT] && !rung)
    }

    /// Polls the descriptors that end [`Waiter::sleep_until`], the alarm only if it is set. Returns the
    /// readable slots.
    fn poll_slots(
        &self,
        alarmed: bool,
        timeout_ns: Option<u64>,
        slots: &mut [bool; PORT_KEYS],
    ) -> io::Result<Option<usize>> {
        let event = &self.wake_state.event;
        let step = match &self.clock_step {
            Some(fd) => PollFd::new(fd, PollFlags::IN),
            None => PollFd::new(event, PollFlags::empty()),
        };
        let alarm = PollFd::new(&self.alarm, PollFlags::IN);
        let mut fds = [PollFd::new(event, PollFlags::IN), step, alarm];
        let polled = if alarmed {
            &mut fds[..]
        } else {
            &mut fds[..ALARM_SLOT]
        };
        let ready = sys::poll(polled, timeout_ns)?;
        *slots = fds.map(|fd| !fd.revents().is_empty());
        Ok(ready)
    }

    /// Sorts the events of epoll into readable slots and readable ports.
    fn list_ports(&mut self, woken: &mut Woken) -> [bool; PORT_KEYS] {
        let mut slots = [false; PORT_KEYS];
        self.listed = true;
        self.readable.clear();
        for event in &self.events.0 {
            let (key, flags) = (event.data.u64() as usize, event.flags);
            if let Some(slot) = slots.get_mut(key) {
                *slot = true;
                continue;
            }
            woken.readable |= flags.contains(IN);
            woken.error |= !flags.difference(IN).is_empty();
            if flags.contains(IN) {
                self.readable.push(key - PORT_KEYS);
            }
        }
        slots
    }

    /// The timeout has ended: this is the deadline, or the time to start spinning.
    fn after_sleep(&self, deadline_ns: u64, has_frame: impl FnMut(u64) -> bool, woken: &mut Woken) {
        if self.options.spin_ns == 0 {
            woken.deadline = true;
        } else {
            self.spin(clock::now_ns(), deadline_ns, has_frame, woken);
        }
    }

    /// Stays awake until the deadline, a frame or a call.
    fn spin(
        &self,
        mut now_ns: u64,
        deadline_ns: u64,
        mut has_frame: impl FnMut(u64) -> bool,
        woken: &mut Woken,
    ) {
        loop {
            if deadline_ns <= now_ns {
                woken.deadline = true;
                return;
            }
            if has_frame(now_ns) {
                woken.readable = true;
                return;
            }
            if self.wake_state.bell.is_rung() {
                return; // `wait_for` handles the call
            }
            std::hint::spin_loop();
            now_ns = clock::now_ns();
        }
    }

    fn clear_clock_step(&mut self) {
        if let Some(fd) = &self.clock_step {
            sys::event_clear(fd); // it stays armed for the next step
        }
        clock::remeasure_realtime_offset();
    }

    /// The slack that the kernel adds to timeouts of this thread; found out at its first wait.
    fn slack(&mut self) -> TimeoutSlack {
        let here = std::thread::current().id();
        match self.thread {
            Some((thread, slack)) if thread == here => slack,
            _ => {
                let slack = sys::sharpen_timers();
                self.thread = Some((here, slack));
                slack
            }
        }
    }
}

fn key_of(slot: usize) -> epoll::EventData {
    epoll::EventData::new_u64(slot as u64)
}

/// The timeout that ends, with the kernel's slack, after `left_ns`. For one value in a thousand there
/// is none: then it ends 2 ns early, and a second wait ends on time. At least 1 ns if any is left,
/// because a timeout of 0 does not wait.
fn timeout_for(left_ns: u64, slack: TimeoutSlack) -> u64 {
    let left_ns = left_ns.min(MAX_TIMEOUT_NS);
    let TimeoutSlack::OnePartIn(parts) = slack else {
        return left_ns;
    };
    // The greatest t with t + slack(t) <= left lies within 2 of these.
    let shortened = left_ns * parts / (parts + 1);
    let mut timeout_ns = shortened.max(left_ns.saturating_sub(MAX_SLACK_NS)) + 2;
    while timeout_ns > 1 && timeout_ns + slack_of(timeout_ns, parts) > left_ns {
        timeout_ns -= 1;
    }
    if timeout_ns > 1 && timeout_ns + slack_of(timeout_ns, parts) < left_ns {
        timeout_ns -= 1;
    }
    timeout_ns.min(left_ns)
}

/// The time that the kernel adds to a timeout if the timer slack is 1 ns.
fn slack_of(timeout_ns: u64, parts: u64) -> u64 {
    // As in the kernel: seconds and nanoseconds divided apart.
    let whole = timeout_ns / clock::NS_PER_S * (clock::NS_PER_S / parts);
    let rest = timeout_ns % clock::NS_PER_S / parts;
    (whole + rest).clamp(1, MAX_SLACK_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timeouts_end_at_the_deadline() {
        let slack = TimeoutSlack::OnePartIn(1000);
        assert_eq!(timeout_for(0, slack), 0);
        assert_eq!(timeout_for(1, slack), 1);
        assert_eq!(timeout_for(2, slack), 1);
        assert_eq!(timeout_for(24_288, slack), 24_264); // + 24
        let eight_kbit_ns = timeout_for(1_518_000_000, slack);
        assert_eq!(eight_kbit_ns + slack_of(eight_kbit_ns, 1000), 1_518_000_000);
        let not_to_be_had_ns = timeout_for(1_000_000_000, slack);
        assert_eq!(
            not_to_be_had_ns + slack_of(not_to_be_had_ns, 1000),
            999_999_998
        );
        assert_eq!(timeout_for(777, TimeoutSlack::None), 777);
    }

    proptest! {
        #[test]
        fn on_time_or_worth_another_wait(
            left_ns in prop_oneof![0u64..5_000, 0u64..2_000_000_000, 0u64..200_000_000_000],
            parts in prop_oneof![Just(1000u64), Just(200)],
        ) {
            let timeout_ns = timeout_for(left_ns, TimeoutSlack::OnePartIn(parts));
            if left_ns > 1 {
                let end_ns = timeout_ns + slack_of(timeout_ns, parts);
                prop_assert!(end_ns == left_ns || end_ns + 2 == left_ns, "{}", end_ns);
            }
        }
    }

    #[test]
    fn a_call_while_awake_ends_the_next_wait() {
        let mut waiter = Waiter::new(WaiterOptions::default()).unwrap();
        waiter.waker().wake();
        let woken = waiter.wait(clock::now_ns(), None, |_| false).unwrap();
        assert!(woken.called && !woken.deadline);
        let now_ns = clock::now_ns();
        let woken = waiter.wait(now_ns, Some(now_ns), |_| false).unwrap();
        assert!(woken.deadline && !woken.called);
    }

    #[test]
    fn a_call_while_asleep_ends_the_wait() {
        let mut waiter = Waiter::new(WaiterOptions::default()).unwrap();
        for _ in 0..1000 {
            let waker = waiter.waker();
            let caller = std::thread::spawn(move || waker.wake());
            // There is no deadline, so a lost call would hang here. A late eventfd may end a wait twice.
            while !waiter
                .wait(clock::now_ns(), None, |_| false)
                .unwrap()
                .called
            {}
            caller.join().unwrap();
        }
    }

    #[test]
    fn deadlines_are_reached_asleep_and_awake() {
        for spin_ns in [0, 50_000, u64::MAX] {
            let mut waiter = Waiter::new(WaiterOptions { spin_ns }).unwrap();
            let deadline_ns = clock::now_ns() + 3_000_000;
            let mut waits = 0;
            loop {
                let now_ns = clock::now_ns();
                if now_ns >= deadline_ns {
                    break;
                }
                waiter.wait(now_ns, Some(deadline_ns), |_| false).unwrap();
                waits += 1;
            }
            assert!((1..1000).contains(&waits), "{waits}");
        }
    }

    #[test]
    fn a_deadline_too_close_for_a_timeout_is_reached() {
        let mut waiter = Waiter::new(WaiterOptions::default()).unwrap();
        let now_ns = clock::now_ns();
        let woken = waiter.wait(now_ns, Some(now_ns + 1), |_| false).unwrap();
        assert!(woken.deadline && !woken.called);
        // The alarm that went off ends no later wait.
        let deadline_ns = clock::now_ns() + 2_000_000;
        while !waiter
            .wait(clock::now_ns(), Some(deadline_ns), |_| false)
            .unwrap()
            .deadline
        {}
        assert!(clock::now_ns() + 2_100 > deadline_ns);
    }

    #[test]
    fn a_foreign_signal_is_no_deadline() {
        let flag = Arc::new(std::sync::atomic::AtomicBool::new(false));
        signal_hook::flag::register(libc::SIGUSR2, Arc::clone(&flag)).unwrap();
        // SAFETY: no arguments.
        let waiting_thread = unsafe { libc::pthread_self() };
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let done_too = Arc::clone(&done);
        let annoyer = std::thread::spawn(move || {
            while !done_too.load(Ordering::Acquire) {
                // SAFETY: the thread lives: it joins this one below.
                unsafe { libc::pthread_kill(waiting_thread, libc::SIGUSR2) };
                std::thread::yield_now();
            }
        });
        let mut waiter = Waiter::new(WaiterOptions::default()).unwrap();
        let start_ns = clock::now_ns();
        let deadline_ns = start_ns + 20_000_000;
        loop {
            let now_ns = clock::now_ns();
            let woken = waiter.wait(now_ns, Some(deadline_ns), |_| false).unwrap();
            assert!(!woken.called && woken.signal.is_none());
            if woken.deadline {
                assert!(
                    clock::now_ns() + 20_100 > deadline_ns,
                    "a thousandth early at most"
                );
                break;
            }
        }
        assert!(flag.load(Ordering::Relaxed), "no signal came");
        done.store(true, Ordering::Release);
        annoyer.join().unwrap();
    }

    #[test]
    fn a_frame_in_a_ring_ends_a_wait_at_once_but_not_sleep_until() {
        let mut waiter = Waiter::new(WaiterOptions::default()).unwrap();
        let now_ns = clock::now_ns();
        let woken = waiter.wait(now_ns, None, |_| true).unwrap();
        assert!(woken.readable && !woken.called && woken.signal.is_none());
        waiter.waker().wake();
        let woken = waiter.wait(now_ns, None, |_| true).unwrap();
        assert!(woken.readable && woken.called, "the call is not lost");
        let deadline_ns = clock::now_ns() + 2_000_000;
        let woken = waiter.sleep_until(clock::now_ns(), deadline_ns).unwrap();
        assert!(woken.deadline && !woken.readable);
        assert!(clock::now_ns() + 2_100 > deadline_ns);
        waiter.waker().wake();
        let woken = waiter.sleep_until(clock::now_ns(), u64::MAX).unwrap();
        assert!(woken.called);
    }

    #[test]
    fn the_kernel_is_asked_now_and_then_however_many_frames_there_are() {
        let mut waiter = Waiter::new(WaiterOptions::default()).unwrap();
        let now_ns = clock::now_ns();
        let waits = 2 * MAX_SKIPPED;
        let at_once = (0..waits)
            .filter(|_| {
                waiter
                    .wait(now_ns, Some(now_ns), |_| true)
                    .unwrap()
                    .readable
            })
            .count();
        assert!(at_once < waits as usize);
    }

    #[test]
    fn a_frame_ends_spinning() {
        let mut waiter = Waiter::new(WaiterOptions { spin_ns: u64::MAX }).unwrap();
        let mut asked = 0;
        let woken = waiter
            .wait(0, Some(u64::MAX), |_| {
                asked += 1;
                asked > 3
            })
            .unwrap();
        assert!(woken.readable && !woken.deadline);
    }
}
