//! FQ-CoDel (RFC 8290): flows by hash, each with a queue and CoDel, served by deficit round robin, new
//! flows first.
//!
//! CoDel of a flow counts the bytes of all flows, as those that share the link (RFC 8289, section 4.4).

use std::collections::VecDeque;

use super::codel::{Codel, CodelConfig};
use super::packets::{List, Packets};
use super::verdict::{Leaving, Verdict};
use crate::queueing::depths::Depths;
use crate::queueing::item::Item;

/// Most packets that one overflow drops.
const BATCH_PACKETS: usize = 64;

/// The settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FqCodelConfig {
    /// CoDel of each flow.
    pub codel: CodelConfig,
    /// Queues of flows, 1 to [`FLOWS_MAX`](super::FLOWS_MAX).
    pub flows: u32,
    /// Bytes that a flow may send in a round, at least 1.
    pub quantum_bytes: u32,
    /// Packets of all flows together, at least 1. Beyond them, or beyond the depths of the egress queue, the
    /// longest flow loses packets.
    pub limit_packets: u32,
}

/// The list in which a flow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    No,
    New,
    Old,
}

/// The queue of a flow. One cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Flow {
    list: List,
    bytes: u64,
    deficit_bytes: i64,
    codel: Codel,
    listed: Listed,
}

impl Flow {
    fn new() -> Self {
        Self {
            list: List::default(),
            bytes: 0,
            deficit_bytes: 0,
            codel: Codel::new(),
            listed: Listed::No,
        }
    }

    fn pop(&mut self, packets: &mut Packets) -> Option<Item> {
        let item = packets.pop(&mut self.list)?;
        self.bytes -= item.frame_bytes();
        Some(item)
    }

    /// CoDel's `deque`.
    fn deque(
        &mut self,
        packets: &mut Packets,
        config: &CodelConfig,
        now_ns: u64,
        dropped: &mut impl FnMut(Item),
    ) -> Option<Item> {
        loop {
            let Some(mut item) = self.pop(packets) else {
                self.codel.emptied(config, now_ns);
                return None;
            };
            let leaving = Leaving {
                now_ns,
                sojourn_ns: now_ns.saturating_sub(item.arrival_ns()),
                left_bytes: packets.bytes(),
                ecn_capable: item.ecn_capable(),
            };
            match self.codel.leaving(config, &leaving) {
                Verdict::Keep => return Some(item),
                Verdict::Mark => {
                    item.marked = true;
                    return Some(item);
                }
                Verdict::Drop => dropped(item),
            }
        }
    }
}

/// The flows of one egress queue.
#[derive(Debug)]
pub(crate) struct FqCodel {
    config: FqCodelConfig,
    /// None before the first packet: most queues of most ports never have any.
    flows: Vec<Flow>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    packets: Packets,
    limits: Depths,
}

impl FqCodel {
    pub(crate) fn new(config: FqCodelConfig) -> Self {
        Self {
            config,
            flows: Vec::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: Packets::new(),
            limits: Depths {
                packets: config.limit_packets.into(),
                bytes: u64::MAX,
            },
        }
    }

    /// The depths of the egress queue, from the next packet on.
    pub(crate) fn set_depths(&mut self, depths: Depths) {
        self.limits = Depths {
            packets: depths.packets.min(self.config.limit_packets.into()),
            ..depths
        };
    }

    pub(crate) fn packets(&self) -> usize {
        self.packets.len()
    }

    /// The packets that wait, flow by flow.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Item> {
        let flows = self.flows.iter();
        flows.flat_map(|flow| self.packets.of(&flow.list))
    }

    /// A packet that waits, for its arrival and length: the head of the flow that is next in its list.
    pub(crate) fn first(&self) -> Option<&Item> {
        let mut listed = self.new.iter().chain(&self.old);
        listed.find_map(|at| self.packets.first(&self.flows.get(*at as usize)?.list))
    }

    /// Appends a packet to its flow. Those that are too many go to `dropped`.
    pub(crate) fn push(&mut self, item: Item, mut dropped: impl FnMut(Item)) {
        if self.flows.is_empty() {
            self.flows = std::iter::repeat_with(Flow::new)
                .take(self.config.flows as usize)
                .collect();
        }
        let at = item.flow() % self.config.flows.max(1);
        let Some(flow) = self.flows.get_mut(at as usize) else {
            debug_assert!(false, "there is no such flow");
            return dropped(item);
        };
        flow.bytes += item.frame_bytes();
        self.packets.push(&mut flow.list, item);
        if flow.listed == Listed::No {
            flow.listed = Listed::New;
            flow.deficit_bytes = self.config.quantum_bytes.into();
            self.new.push_back(at);
        }
        while self.is_above_limits() {
            self.drop_of_longest(&mut dropped);
        }
    }

    /// One packet is never too many.
    fn is_above_limits(&self) -> bool {
        let (packets, bytes) = (self.packets.len() as u64, self.packets.bytes());
        packets > 1 && (packets > self.limits.packets || bytes > self.limits.bytes)
    }

    /// Half of the packets of the longest flow, in bytes, at most 64: from the head.
    fn drop_of_longest(&mut self, dropped: &mut impl FnMut(Item)) {
        let longest = self.flows.iter_mut().reduce(|longest, flow| {
            if flow.bytes > longest.bytes {
                flow
            } else {
                longest
            }
        });
        let Some(flow) = longest else {
            return;
        };
        let packets = self.packets.of(&flow.list).take(2 * BATCH_PACKETS).count();
        for _ in 0..packets.div_ceil(2) {
            if let Some(item) = flow.pop(&mut self.packets) {
                dropped(item);
            }
        }
    }

    /// Takes the packet that leaves at `now_ns`. Those that CoDel drops go to `dropped`.
    pub(crate) fn pop(&mut self, now_ns: u64, mut dropped: impl FnMut(Item)) -> Option<Item> {
        loop {
            let (at, from) = match (self.new.front(), self.old.front()) {
                (Some(at), _) => (*at, Listed::New),
                (None, Some(at)) => (*at, Listed::Old),
                (None, None) => return None,
            };
            let flow = self.flows.get_mut(at as usize)?;
            let mut stays = true;
            if flow.deficit_bytes > 0 {
                let (packets, codel) = (&mut self.packets, &self.config.codel);
                let item = flow.deque(packets, codel, now_ns, &mut dropped);
                if let Some(item) = item {
                    flow.deficit_bytes -= item.frame_bytes() as i64;
                    return Some(item);
                }
                // A new flow that is empty goes to the old ones first, or it could come back as new at
                // once.
                stays = from == Listed::New;
            } else {
                flow.deficit_bytes += i64::from(self.config.quantum_bytes);
            }
            flow.listed = if stays { Listed::Old } else { Listed::No };
            match from {
                Listed::New => self.new.pop_front(),
                _ => self.old.pop_front(),
            };
            if stays {
                self.old.push_back(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_one_cache_line() {
        assert_eq!(size_of::<Flow>(), 64);
    }
}
