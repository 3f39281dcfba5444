//! The loop's part of the hand-over policy (`handover.rs` of crate `switch` has the table of its
//! states).
//!
//! In the moderated states, nothing leaves before a propagation delay is over. So frames may wait in
//! the rings: a frame does not end a wait that is shorter than [`Switch::moderation_ns`]. Frames are
//! then taken in the order of their arrival, and each before any later event. So queues and drops are
//! the same as without the wait.
//!
//! [`Switch::moderation_ns`]: switch::Switch::moderation_ns

use std::io;

use ports::Woken;
use switch::Batch;

use super::{RECEIVE_BATCH, RealTime};

/// Most frames taken in one turn in the moderated states: as many as a ring holds.
const RECEIVE_MODERATED_MAX: usize = 4096;

/// Largest difference of the stamp of a frame that arrives during a turn and the turn's reading of the
/// clock. A stamp that is further ahead comes from a clock that was stepped.
const STAMP_AHEAD_MAX_NS: u64 = 1_000_000;

impl RealTime {
    /// Takes the frames that have arrived by `now_ns`, without their departures. Returns the time up to
    /// which all have been taken: `now_ns`, or less if there are more than one turn may take.
    pub(super) fn receive_moderated(&mut self, now_ns: u64) -> u64 {
        self.frames_left = false;
        let mut until_ns = 0;
        for taken in 1..=RECEIVE_MODERATED_MAX {
            let Some((stamp_ns, at)) = self.links.interfaces.earliest(now_ns) else {
                return now_ns;
            };
            if stamp_ns > now_ns && stamp_ns - now_ns < STAMP_AHEAD_MAX_NS {
                return now_ns;
            }
            let mut batch = Batch::new(&mut self.switch);
            self.links.receive(at, stamp_ns, now_ns, &mut batch);
            drop(batch);
            until_ns = stamp_ns.min(now_ns).max(until_ns);
            if taken % RECEIVE_BATCH == 0 {
                self.switch.poll(until_ns, &mut self.links);
                self.links.flush();
                self.links.hold_lines(&mut self.switch, until_ns);
            }
        }
        self.frames_left = true;
        until_ns
    }

    /// Waits until `deadline_ns`, for a job or for a signal. A frame ends the wait, too, unless it may
    /// wait for the deadline.
    pub(super) fn wait(&mut self, now_ns: u64, deadline_ns: u64) -> io::Result<Woken> {
        let left_ns = deadline_ns.saturating_sub(now_ns);
        let frames_may_wait = left_ns < self.switch.moderation_ns() && !self.frames_left;
        let woken = if left_ns > 0 && frames_may_wait {
            self.monitor.idle_until(deadline_ns);
            self.waiter.sleep_until(now_ns, deadline_ns)?
        } else {
            let (interfaces, monitor) = (&self.links.interfaces, &mut self.monitor);
            self.waiter.wait(now_ns, Some(deadline_ns), |at_ns| {
                // The first call is before the waiter sleeps, so it does not count as a poll.
                if at_ns > now_ns {
                    monitor.poll(at_ns);
                    interfaces.has_frame()
                } else {
                    interfaces.is_any_readable()
                }
            })?
        };
        self.links.interfaces.note_readable(self.waiter.readable());
        Ok(woken)
    }
}
