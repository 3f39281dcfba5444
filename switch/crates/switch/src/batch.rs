//! Receiving frames one after the other.

use v1model::{IngressInput, InstanceType};

use traffic_manager::DropCause;

use crate::program::Sink;
use crate::switch::{Batch, Switch};

impl Batch<'_> {
    /// A frame arrives. See [`Switch::receive`].
    pub fn receive(&mut self, port: u16, frame: &[u8], arrival_ns: u64, now_ns: u64) {
        if self.switch.count_received(port, frame, now_ns) {
            return;
        }
        let input = IngressInput {
            port,
            now_ns: arrival_ns,
            instance_type: InstanceType::Normal,
        };
        let Switch { env, running, .. } = &mut *self.switch;
        match running {
            Some(program) => {
                self.parsed = program.receive(env, frame, input, self.parsed.take());
            }
            None => env.manager.count_drop(port, DropCause::NoProgram),
        }
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
