//! Stand-ins: what would become of a packet, without a change to the traffic manager.

use super::TrafficManager;
use crate::config::Limits;
use crate::port::Port;

impl<P> TrafficManager<P> {
    /// A traffic manager that treats a packet as this one would now: with the same ports, whose FIFOs
    /// are as full and take as long to empty. It has room for at most `packets`. Packets that wait for
    /// departure times are not in it, and its classes have empty queues.
    #[must_use]
    pub fn stand_in(&self, packets: usize) -> Self {
        let mut other = Self::new(Limits {
            max_held_packets: packets.min(self.slab.free()),
            ..self.limits
        });
        other.latest_ns = self.latest_ns;
        other.spaces_catch_up = self.spaces_catch_up;
        other.statistics.buffer = self.statistics.buffer;
        other.ports = self.ports.iter().map(Port::stand_in).collect();
        other.reindex();
        other
    }
}
