//! An entry of a table: its action, its direct counter and meter, its idle timeout.

use super::call::Call;
use super::encoded_key::EncodedKey;
use crate::entries::profile::WatchPort;
use crate::entries::{EntryKey, MeterState, MeterUnit, MeterWrite};
use crate::meter::{Count, GREEN, Meter, Metered, count};
use crate::state::meter_state;

/// The action of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// An action with its arguments.
    Call(Call),
    /// Place of a member in the table's action profile.
    Member(u32),
    /// Place of a group.
    Group(u32),
    /// Actions of its own; a packet takes one, as of the members of a group.
    OneShot(Box<OneShot>),
}

/// A one-shot action set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OneShot {
    pub calls: Vec<Call>,
    /// Weight of each call, and the port it depends on.
    pub weights: Vec<(u32, Option<WatchPort>)>,
    /// Indices of the calls, each as often as its weight, without those whose port is down.
    pub spread: Vec<u32>,
}

/// An entry's idle timeout.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Idle {
    /// 0: none.
    pub timeout_ns: u64,
    /// The time when a packet hit the entry last, or when the entry was made.
    pub last_hit_ns: u64,
    /// The beginning of its timeout: its last hit as of the last check, or its last idle notification.
    from_ns: u64,
}

impl Idle {
    /// Without a timeout, of an entry made at `now_ns`.
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            last_hit_ns: now_ns,
            ..Self::default()
        }
    }

    /// The time of the next check whether it is idle.
    pub(super) fn due_ns(&self) -> u64 {
        self.from_ns.saturating_add(self.timeout_ns)
    }

    /// Notes that the entry was reported as idle at `now_ns`: another timeout begins.
    pub(super) fn reported(&mut self, now_ns: u64) {
        self.from_ns = now_ns;
    }

    /// Begins the timeout at the last hit, and not before `born_ns`.
    pub(super) fn restart(&mut self, born_ns: u64) {
        self.from_ns = self.from_ns.max(self.last_hit_ns).max(born_ns);
    }
}

/// An entry's direct counter and meter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Direct {
    pub counter: Count,
    /// The meter's green count.
    green: Count,
    meter: Option<Box<Meter>>,
}

impl Direct {
    /// Whether the meter is configured.
    pub fn is_configured(&self) -> bool {
        self.meter.as_ref().is_some_and(|m| m.config.is_some())
    }

    /// Runs a packet through the meter, and gives its colour.
    #[inline]
    pub fn colour(&mut self, unit: MeterUnit, packet: Metered) -> u64 {
        let meter = self.meter.as_mut();
        let colour = meter.map_or(GREEN, |meter| meter.mark(unit, packet));
        if colour == GREEN {
            count(&mut self.green, packet.bytes);
        }
        colour
    }

    /// The meter's configuration and counts.
    pub fn meter_state(&self) -> MeterState {
        meter_state(self.green, self.meter.as_deref())
    }

    /// Sets the meter.
    pub fn write_meter(&mut self, write: MeterWrite) {
        if write.clear_counts {
            self.green = Count::default();
        }
        self.meter = Meter::written(self.meter.as_deref(), write).map(Box::new);
    }
}

/// The default entry.
#[derive(Debug, Clone, Default)]
pub(crate) struct DefaultTarget {
    /// `None`: a miss does nothing.
    pub call: Option<Call>,
    /// A member or group that is run instead, in a table with an action profile.
    pub indirect: Option<Target>,
    pub direct: Direct,
}

/// An entry. The data that packets need come first: an action with few arguments and a counter take one
/// cache line.
#[derive(Debug, Clone)]
#[repr(C, align(128))]
pub(crate) struct Entry {
    pub target: Target,
    pub direct: Direct,
    pub idle: Idle,
    /// Its number in the order of insertion.
    pub order: u64,
    pub(super) key: Box<EncodedKey>,
}

impl Entry {
    /// Its match key.
    pub fn key(&self) -> EntryKey {
        self.key.key()
    }

    /// A copy without the spread of a one-shot set, which is as long as the sum of its weights. The
    /// caller computes it again when it puts the entry back.
    pub fn without_spread(&self) -> Self {
        let target = match &self.target {
            Target::OneShot(set) => Target::OneShot(Box::new(OneShot {
                calls: set.calls.clone(),
                weights: set.weights.clone(),
                spread: Vec::new(),
            })),
            target => target.clone(),
        };
        Self {
            target,
            direct: self.direct.clone(),
            idle: self.idle,
            order: self.order,
            key: self.key.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_and_counter_are_one_cache_line() {
        assert_eq!(size_of::<Target>() + size_of::<Count>(), 64);
        assert_eq!(size_of::<Option<Entry>>(), 128);
    }
}
