//! The traffic manager and the log, as externs of the program.

use traffic_manager::{TrafficManager, Waiting};
use v1model::Externs;

use crate::pool::PacketId;

/// The traffic manager as the program's extern sees it.
#[derive(Clone, Copy)]
pub(crate) struct TrafficManagerView<'a> {
    pub(crate) manager: &'a TrafficManager<PacketId>,
    /// In a dry run: the traffic manager for which `manager` stands in.
    pub(crate) real: Option<&'a TrafficManager<PacketId>>,
}

impl TrafficManagerView<'_> {
    /// Bytes that wait in a class, also during a dry run. Packets that are not traced, and so in no dry
    /// run, do not pay for it.
    pub(crate) fn all_backlog_bytes(&self, class: u32) -> u64 {
        let real = self.real.map_or(0, |real| real.class_backlog_bytes(class));
        real + self.backlog_bytes(class)
    }
}

impl Externs for TrafficManagerView<'_> {
    fn backlog_bytes(&self, class: u32) -> u64 {
        self.manager.class_backlog_bytes(class)
    }

    /// In a dry run, what waits in the real queues: the stand-in has no packets.
    fn waiting(&self, port: u16, queue: u8) -> Option<Waiting> {
        self.real.unwrap_or(self.manager).waiting(port, queue)
    }

    fn prefetch_class(&self, class: u32) {
        self.manager.prefetch_class(class);
    }

    fn logs(&self) -> bool {
        self.real.is_none() && tracing::enabled!(target: "p4", tracing::Level::INFO)
    }

    fn log(&self, message: &str) {
        tracing::info!(target: "p4", "{message}");
    }
}
