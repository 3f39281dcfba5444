//! Operations on state that outlives a packet: registers, counters, meters, random numbers; and on
//! the clock and the traffic manager's queues.

use super::machine::Machine;
use super::outcome::Outcome;
use super::phv::to_index;
use crate::api::Externs;
use crate::context::Context;
use crate::meter::{Metered, count};
use crate::ops::Op;
use crate::slot::Slot;
use crate::trace::QueueReading;

impl<E: Externs> Machine<'_, E> {
    /// Executes an operation of this group, or hands it to the next group.
    #[inline(always)]
    pub fn step_state(&mut self, ctx: &mut Context, op: &Op, pc: &mut u32) -> Outcome {
        let w = &mut ctx.phv;
        match *op {
            Op::RegisterRead {
                d,
                array,
                index,
                skip,
            } => match self
                .state
                .register(array as usize, to_index(w[index as usize]))
            {
                // v1model leaves the result unspecified out of range; BMv2 leaves it as it was.
                None => *pc += u32::from(skip),
                Some(&[cell]) => w[d as usize] = cell,
                Some(cell) => w[d as usize..d as usize + cell.len()].copy_from_slice(cell),
            },
            Op::RegisterWrite { array, index, a } => {
                let index = to_index(w[index as usize]);
                if let Some(cell) = self.state.register_mut(array as usize, index) {
                    let a = a as usize;
                    cell.copy_from_slice(&w[a..a + cell.len()]);
                }
            }
            Op::Count { array, index } => {
                let index = to_index(w[index as usize]);
                if let Some(cell) = self.state.counter_mut(array as usize, index) {
                    count(cell, ctx.ingress_length);
                }
            }
            Op::Meter {
                d,
                mask,
                array,
                index,
                skip,
            } => {
                let index = to_index(w[index as usize]);
                match self.colour(array, index, ctx.ingress_length) {
                    Some(colour) => w[d as usize] = colour & u64::from(mask),
                    None => *pc += u32::from(skip),
                }
            }
            Op::Hash {
                d,
                base,
                size,
                calculation,
            } => self.hash(ctx, d, (base, size), calculation),
            Op::Random { d, low, high, skip } => {
                let (low, high) = (w[low as usize], w[high as usize]);
                if low <= high {
                    w[d as usize] = self.state.random_between(low, high);
                } else {
                    *pc += u32::from(skip);
                }
            }
            Op::Now { d } => w[d as usize] = self.now_ns,
            Op::Backlog { d, class } => w[d as usize] = self.backlog(w[class as usize]),
            Op::ReadQueue { d, port, queue } => {
                let reading = self.read_queue(w[port as usize], w[queue as usize]);
                let words = reading.map_or([0; 3], |reading| {
                    [
                        reading.bytes.into(),
                        reading.packets.into(),
                        reading.sojourn_ns,
                    ]
                });
                w[d as usize..d as usize + 3].copy_from_slice(&words);
            }
            _ => return self.step_packet(ctx, op, pc),
        }
        Outcome::Done
    }

    /// The packets that wait in an egress queue; `None`: no such port or queue.
    pub(super) fn read_queue(&self, port: u64, queue: u64) -> Option<QueueReading> {
        let (port, queue) = (u16::try_from(port).ok()?, u8::try_from(queue).ok()?);
        let waiting = self.externs.waiting(port, queue)?;
        let sojourn_ns = |arrival_ns| self.now_ns.saturating_sub(arrival_ns);
        Some(QueueReading {
            bytes: u32::try_from(waiting.bytes).unwrap_or(u32::MAX),
            packets: u32::try_from(waiting.packets).unwrap_or(u32::MAX),
            sojourn_ns: waiting.head_arrival_ns.map_or(0, sojourn_ns),
        })
    }

    /// The bytes that a class holds.
    pub fn backlog(&self, class: u64) -> u64 {
        let class = u32::try_from(class).unwrap_or(u32::MAX);
        self.externs.backlog_bytes(class)
    }

    /// Runs the packet through a cell of a meter array; `None` if the cell is out of range.
    fn colour(&mut self, array: u16, index: usize, bytes: u64) -> Option<u64> {
        let meters = &mut self.state.meters[array as usize];
        let packet = Metered {
            bytes,
            now_ns: self.now_ns,
        };
        (index < meters.len()).then(|| meters.run(index, packet))
    }

    /// `d = base + hash % size`.
    fn hash(&self, ctx: &mut Context, d: Slot, (base, size): (Slot, Slot), calculation: u16) {
        let calculation = &self.program.calculations[calculation as usize];
        let hash = ctx.compute(calculation, &self.program.kinds);
        // v1model: a size of 0 gives the base.
        let size = ctx.phv[size as usize].max(1);
        ctx.phv[d as usize] = ctx.phv[base as usize].wrapping_add(hash % size);
    }
}
