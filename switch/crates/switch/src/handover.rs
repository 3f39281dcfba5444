//! The hand-over policy: the times when the switch takes frames and hands packets over to the
//! interfaces.
//!
//! A wake-up for each frame that comes and for each that leaves is expensive. The switch handles
//! frames in batches if that changes nothing on the lines, like interfaces that moderate their
//! interrupts. The real-time driver's part is in `real_time/handover.rs` of crate `pacing_switch`.
//!
//! | state | condition | arrivals may wait | packets start early by | frames are handed over early by |
//! |---|---|---|---|---|
//! | immediate | otherwise | 0 | 0 | 0 |
//! | moderated | every port has a propagation delay, and the program may run late | half the shortest delay, at most 250 us | 0 | 0 |
//! | moderated, early | the same, and the sink sends frames when it is time | the same, at most 1 ms | 0 | as long as arrivals may wait |
//! | early start | the sink sends frames when it is time, arrivals may not wait, the program may start packets early, and no port fills gaps with PAUSE frames or has egress queues | 0 | 400 us | 400 us |
//!
//! The program notices the state *early start* in three ways. A packet that arrives for a port
//! leaves after the packets that have started there early. Packets that have started no longer count
//! in their queues, so limits on queues admit that many more. Egress sees timestamps that are ahead of
//! the clock.

/// Longest time that a frame may wait before the switch takes it. The work that collects meanwhile
/// delays departures by some ten microseconds.
const MODERATION_MAX_NS: u64 = 250_000;

/// The same if departures have been handed over before.
const MODERATION_EARLY_MAX_NS: u64 = 1_000_000;

/// The time by which packets start early in the state *early start*.
const START_LEAD_NS: u64 = 400_000;

/// While the driver is awake, packets start when half of the lead is left. Then all that are due
/// within the lead start together: each hand-over costs one system call, for any number of frames.
const AWAKE_PARTS: u64 = 2;

/// The driver wakes for them when an eighth of the lead is left.
const WAKE_PARTS: u64 = 8;

/// The conditions that the policy depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conditions {
    /// Shortest propagation delay of the ports, without the CPU port; 0 where there is none.
    pub(crate) shortest_delay_ns: u64,
    /// The program does the same at any time when it runs.
    pub(crate) program_may_run_late: bool,
    /// The program does the same if packets start early.
    pub(crate) program_may_start_early: bool,
    /// A port fills gaps with PAUSE frames, which depend on arrivals.
    pub(crate) fills_gaps: bool,
    /// A port has egress queues: the next arrival may go first.
    pub(crate) has_queues: bool,
}

/// The times by which actions may or must be early.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leads {
    /// Packets start before their time.
    pub(crate) start_ns: u64,
    /// Frames are handed over before their delivery.
    pub(crate) delivery_ns: u64,
    /// Packets may start after their time, since nothing leaves later for it.
    pub(crate) patience_ns: u64,
}

/// The policy with its state.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Handover {
    /// The sink sends frames when it is time.
    pub(crate) early: bool,
    /// The time for which arrivals may wait.
    pub(crate) moderation_ns: u64,
    /// The time by which packets start early.
    pub(crate) start_lead_ns: u64,
}

impl Handover {
    /// Chooses the state for these conditions.
    pub(crate) fn update(&mut self, conditions: &Conditions) {
        let most_ns = if self.early {
            MODERATION_EARLY_MAX_NS
        } else {
            MODERATION_MAX_NS
        };
        self.moderation_ns = if conditions.program_may_run_late {
            (conditions.shortest_delay_ns / 2).min(most_ns)
        } else {
            0
        };
        let starts_early = self.early
            && self.moderation_ns == 0
            && conditions.program_may_start_early
            && !conditions.fills_gaps
            && !conditions.has_queues;
        self.start_lead_ns = if starts_early { START_LEAD_NS } else { 0 };
    }

    /// The longest time by which frames are handed over early.
    pub(crate) fn lead_ns(&self) -> u64 {
        if self.early {
            self.moderation_ns.max(self.start_lead_ns)
        } else {
            0
        }
    }

    /// The leads at which a driver that is awake may act.
    pub(crate) fn earliest(&self) -> Leads {
        Leads {
            start_ns: self.start_lead_ns / AWAKE_PARTS,
            delivery_ns: self.lead_ns(),
            patience_ns: 0,
        }
    }

    /// The leads at which a driver that sleeps until then must act.
    pub(crate) fn latest(&self) -> Leads {
        Leads {
            start_ns: self.start_lead_ns / WAKE_PARTS,
            delivery_ns: self.lead_ns() / 2,
            patience_ns: self.moderation_ns,
        }
    }
}
