//! Operations on the whole packet: drop, hold, choice of a queue, truncate, clone, digest, resubmit,
//! recirculate, log, exit and assert.

use super::machine::Machine;
use super::outcome::Outcome;
use super::phv::set_field;
use crate::api::Externs;
use crate::clone_request::CloneRequest;
use crate::context::Context;
use crate::ops::Op;
use crate::slot::Slot;
use crate::wide::mask64;
use traffic_manager::hold::Hold;

/// simple_switch uses 15 bits of a clone session's number.
const CLONE_SESSION_MASK: u64 = 0x7fff;

/// A field list as a request of the program. simple_switch takes list 0 as "no request".
fn requested(list: u64) -> Option<u16> {
    Some(list as u16).filter(|&id| id != 0)
}

/// Requests that the packet is held; the five arguments begin at a slot.
pub(crate) fn hold(ctx: &mut Context, args: Slot) {
    let (w, args) = (&ctx.phv, args as usize);
    ctx.requests.hold = Some(Hold {
        class: w[args] as u32,
        counts_to: u32::try_from(w[args + 4]).ok(),
        departure_ns: w[args + 1],
        cost_q24: w[args + 2],
        allowance_ns: w[args + 3],
    });
}

impl<E: Externs> Machine<'_, E> {
    /// Executes an operation of this group, or hands it to the next group.
    #[inline(always)]
    pub(super) fn step_packet(&mut self, ctx: &mut Context, op: &Op, pc: &mut u32) -> Outcome {
        let program = self.program;
        let w = &mut ctx.phv;
        match *op {
            Op::Hold { args } => hold(ctx, args),
            // No port has a queue `u8::MAX`.
            Op::ChooseQueue { queue } => {
                let queue = u8::try_from(w[queue as usize]).unwrap_or(u8::MAX);
                ctx.requests.queue = Some(queue);
            }
            Op::MarkToDrop => {
                let i = &program.intrinsics;
                set_field(w, i.egress_spec, u64::from(self.drop_port));
                if let Some(f) = i.mcast_grp {
                    set_field(w, f, 0);
                }
            }
            Op::MarkCopyToDrop {
                egress_spec,
                mcast_grp,
            } => {
                let bits = program.intrinsics.egress_spec.bits;
                w[egress_spec as usize] = u64::from(self.drop_port) & mask64(bits);
                w[mcast_grp as usize] = 0;
            }
            Op::Truncate { a } => ctx.truncate = ctx.truncate.min(w[a as usize]),
            Op::Clone { session, list } => {
                ctx.requests.clone = Some(CloneRequest {
                    session: (w[session as usize] & CLONE_SESSION_MASK) as u16,
                    field_list: w[list as usize] as u16,
                });
            }
            Op::Digest { list } => ctx.requests.digest = requested(w[list as usize]),
            Op::Resubmit { list } => ctx.requests.resubmit = requested(w[list as usize]),
            Op::Recirculate { list } => ctx.requests.recirculate = requested(w[list as usize]),
            Op::Log { message } if self.externs.logs() => {
                let text = &mut self.state.message;
                program.messages[message as usize].write(w, text);
                self.externs.log(text);
            }
            Op::Log { .. } => {}
            Op::Exit => return Outcome::Exit,
            Op::Assert { a } if w[a as usize] == 0 => return Outcome::Asserted,
            Op::Assert { .. } => {}
            _ => return self.step_arithmetic(ctx, op, pc),
        }
        Outcome::Done
    }
}
