//! The controllers whose changes were accepted, in order. The account shows whether two controllers
//! wrote at a time, which no controller alone can tell.

use std::collections::VecDeque;
use std::net::IpAddr;

/// Most spans that are kept. An older one makes room.
const SPANS_MAX: usize = 256;

/// Changes that were accepted one after another from one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// Counts from 0. The numbers of forgotten spans are missing.
    pub(crate) number: u64,
    pub(crate) role: String,
    pub(crate) election_id: u128,
    /// The address of the controller's machine.
    pub(crate) address: IpAddr,
    /// Accepted requests.
    pub(crate) changes: u64,
}

/// The latest spans.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    spans: VecDeque<Span>,
    next: u64,
}

impl Writers {
    /// Adds a change that begins.
    pub(crate) fn note(&mut self, role: &str, election_id: u128, address: IpAddr) {
        if let Some(last) = self.spans.back_mut()
            && (last.role.as_str(), last.election_id, last.address) == (role, election_id, address)
        {
            last.changes += 1;
            return;
        }
        if self.spans.len() >= SPANS_MAX {
            self.spans.pop_front();
        }
        self.spans.push_back(Span {
            number: self.next,
            role: role.to_owned(),
            election_id,
            address,
            changes: 1,
        });
        self.next += 1;
    }

    /// The spans, oldest first.
    pub(crate) fn spans(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn from(host: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, host).into()
    }

    #[test]
    fn changes_of_two_controllers_are_told_apart_in_order() {
        let mut writers = Writers::default();
        for (role, election_id, host) in [
            ("", 5, 1),
            ("", 5, 1),
            ("", 5, 2),
            ("", 5, 1),
            ("", 6, 1),
            ("stats", 6, 1),
        ] {
            writers.note(role, election_id, from(host));
        }
        let told = writers.spans().map(|span| {
            let host = span.address;
            (span.role.as_str(), span.election_id, host, span.changes)
        });
        let expected = [
            ("", 5, from(1), 2),
            ("", 5, from(2), 1),
            ("", 5, from(1), 1),
            ("", 6, from(1), 1),
            ("stats", 6, from(1), 1),
        ];
        assert!(told.eq(expected), "{writers:?}");
    }

    #[test]
    fn a_forgotten_span_shows_in_the_numbers() {
        let mut writers = Writers::default();
        let most = SPANS_MAX as u64;
        for election_id in 0..u128::from(most) + 2 {
            writers.note("", election_id, from(1));
        }
        let numbers = writers.spans().map(|span| span.number);
        assert!(numbers.eq(2..most + 2));
    }
}
