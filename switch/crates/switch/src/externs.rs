//! The traffic manager and the log, as externs of the program.

use traffic_manager::TrafficManager;
use v1model::Externs;

use crate::pool::PacketId;

/// The traffic manager as the program's extern sees it.
#[derive(Clone, Copy)]
pub(crate) struct TrafficManagerView<'a>(pub(crate) &'a TrafficManager<PacketId>);

impl Externs for TrafficManagerView<'_> {
    fn backlog_bytes(&self, class: u32) -> u64 {
        self.0.class_backlog_bytes(class)
    }

    fn prefetch_class(&self, class: u32) {
        self.0.prefetch_class(class);
    }

    fn logs(&self) -> bool {
        tracing::enabled!(target: "p4", tracing::Level::INFO)
    }

    fn log(&self, message: &str) {
        tracing::info!(target: "p4", "{message}");
    }
}
