//! Receiving frames one after the other.

use v1model::{IngressInput, InstanceType};

use traffic_manager::DropCause;

use crate::program::{Parsed, Sink};
use crate::switch::Switch;

/// Frames that are received one after the other, as from a ring that holds many.
///
/// Each frame is parsed when it comes, and goes through ingress when the next one has come, or at the
/// end of the batch. So the switch knows the memory that a frame needs while it processes the previous
/// frame, and prefetches both together. Parsing does not depend on state that other packets change, so
/// the results are those of [`Switch::receive`].
///
/// The batch ends when it is dropped. Until then it has exclusive access to the switch: no other code
/// can read the switch, or change its tables, while a frame waits.
pub struct Batch<'a> {
    switch: &'a mut Switch,
    /// The frame received last. It waits for ingress.
    parsed: Option<Parsed>,
}

impl Switch {
    /// A frame arrives and goes through ingress. `now_ns` is the driver's present and at least
    /// `arrival_ns`, the time at which the frame reached the interface.
    pub fn receive(&mut self, port: u16, frame: &[u8], arrival_ns: u64, now_ns: u64) {
        Batch::new(self).receive(port, frame, arrival_ns, now_ns);
    }
}

impl<'a> Batch<'a> {
    /// Starts a batch: frames that are received one after the other, at less cost each.
    pub fn new(switch: &'a mut Switch) -> Self {
        Self {
            switch,
            parsed: None,
        }
    }

    /// A frame arrives. See [`Switch::receive`].
    pub fn receive(&mut self, port: u16, frame: &[u8], arrival_ns: u64, now_ns: u64) {
        self.take(port, frame, arrival_ns, now_ns);
    }

    /// A segment of a train arrives: as [`Self::receive`], and it may leave in a train.
    pub fn receive_segment(&mut self, port: u16, frame: &[u8], arrival_ns: u64, now_ns: u64) {
        if self.take(port, frame, arrival_ns, now_ns)
            && let (Some(parsed), Some(program)) = (&self.parsed, &mut self.switch.running)
            && let Some(packet) = program.packets.get_mut(parsed.id)
        {
            packet.in_train = true;
        }
    }

    /// Takes a frame, and runs the one before it through ingress. Returns whether the frame has not been
    /// dropped and now waits.
    fn take(&mut self, port: u16, frame: &[u8], arrival_ns: u64, now_ns: u64) -> bool {
        if self.switch.count_received(port, frame, now_ns) {
            return false;
        }
        let input = IngressInput {
            port,
            now_ns: arrival_ns,
            instance_type: InstanceType::Normal,
        };
        let Switch { env, running, .. } = &mut *self.switch;
        let Some(program) = running else {
            env.manager.count_drop(port, DropCause::NoProgram);
            return false;
        };
        self.parsed = program.receive(env, frame, input, self.parsed.take());
        self.parsed.is_some()
    }

    /// See [`Switch::poll`].
    pub fn poll(&mut self, now_ns: u64, sink: &mut impl Sink) {
        self.switch.poll(now_ns, sink);
    }

    /// See [`Switch::poll_at_ns`].
    pub fn poll_at_ns(&self) -> Option<u64> {
        self.switch.poll_at_ns()
    }
}

impl Drop for Batch<'_> {
    /// The last frame goes through ingress.
    fn drop(&mut self) {
        if let (Some(parsed), Some(program)) = (self.parsed.take(), &mut self.switch.running) {
            program.run_parsed(&mut self.switch.env, parsed);
        }
    }
}
