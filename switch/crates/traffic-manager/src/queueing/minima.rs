//! Minimum rates of the children of a node, as HTB's `rate` beside `ceil`.
//!
//! Each child with a minimum has a clock G, which a packet that the child sends by its minimum moves by the
//! packet's time at that rate (Zhang, "VirtualClock: A New Traffic Control Algorithm for Packet Switching
//! Networks", SIGCOMM 1990). A child that may send and whose G has come goes before the node's discipline,
//! the smallest G first. A packet that it sends by the discipline does not move G: so a child gets its
//! minimum, and its share of what the minima leave.

use super::bits::{bit, bits};
use crate::hold::time_per_byte_q24;
use crate::time::Q24;

/// Bytes that a child may make up after others have kept it waiting.
const CREDIT_BYTES: u64 = 65_536;

/// A child's clock.
#[derive(Debug, Clone, Copy, Default)]
struct Clock {
    /// G.
    at: Q24,
    /// 0: no minimum.
    per_byte_q24: u64,
}

/// The children with minima.
#[derive(Debug)]
pub(super) struct Minima {
    clocks: Vec<Clock>,
    /// Bit by child: it has a minimum, and it may send.
    ready: u64,
}

impl Minima {
    /// `rates_bps`: the children's; 0: none. `None`: no child has one.
    pub(super) fn new(rates_bps: impl Iterator<Item = u64>) -> Option<Box<Self>> {
        let clock = |rate_bps| Clock {
            at: Q24::default(),
            per_byte_q24: time_per_byte_q24(rate_bps).unwrap_or(0),
        };
        let clocks: Vec<_> = rates_bps.map(clock).collect();
        let any = clocks.iter().any(|clock| clock.per_byte_q24 > 0);
        any.then(|| Box::new(Self { clocks, ready: 0 }))
    }

    /// A child may send from `eligible` on.
    pub(super) fn enter(&mut self, child: u8, eligible: Q24) {
        if let Some(clock) = self.clocks.get_mut(usize::from(child))
            && clock.per_byte_q24 > 0
        {
            clock.at = clock.at.max(eligible);
            self.ready |= bit(child);
        }
    }

    /// A child may no longer send.
    pub(super) fn leave(&mut self, child: u8) {
        self.ready &= !bit(child);
    }

    /// The child that sends at `now` by its minimum.
    pub(super) fn due(&self, now: Q24) -> Option<u8> {
        let due = bits(self.ready).filter_map(|at| Some((self.clocks.get(at)?.at, at)));
        let (at, child) = due.min()?;
        // At most 63.
        (at <= now).then_some(child as u8)
    }

    /// A child sends at `start` by its minimum.
    pub(super) fn charge(&mut self, child: u8, start: Q24, bytes: u64) {
        if let Some(clock) = self.clocks.get_mut(usize::from(child)) {
            let time = |bytes: u64| u128::from(bytes) * u128::from(clock.per_byte_q24);
            let credit = Q24::from_raw(time(CREDIT_BYTES));
            clock.at = clock.at.max(start.since(credit)).plus(time(bytes));
        }
    }
}
