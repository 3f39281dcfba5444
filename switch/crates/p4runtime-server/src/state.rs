//! The pipelines that controllers have set, and what is kept beside them for controllers.

use std::collections::HashMap;
use std::sync::Arc;

use tonic::Status;
use v1model::entries::EntryKey;

use crate::controller_queue::Generation;
use crate::proto::p4::v1 as p4;
use crate::translate::Pipeline;

/// What controllers attach to entries and the switch only keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cookie {
    pub(crate) controller_metadata: u64,
    pub(crate) metadata: Vec<u8>,
}

/// What is kept of a multicast group beside its replicas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GroupCookie {
    pub(crate) metadata: Vec<u8>,
    /// Which replicas have their port in the deprecated field, to be read back from it.
    pub(crate) deprecated_ports: Vec<bool>,
}

/// What is kept for controllers beside the data plane's own state.
#[derive(Debug, Default)]
pub(crate) struct Side {
    /// By the data plane's index of the table; only those that are not empty.
    pub(crate) cookies: HashMap<(usize, EntryKey), Cookie>,
    /// Of the tables whose default entry was set.
    pub(crate) default_cookies: HashMap<usize, Cookie>,
    pub(crate) groups: HashMap<u32, GroupCookie>,
    /// Which replicas of a clone session have their port in the deprecated field.
    pub(crate) sessions: HashMap<u32, Vec<bool>>,
}

/// A pipeline that is in place, or saved to be.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) side: Side,
    /// The entries that the program came with and that may be deleted.
    pub(crate) preset: Vec<p4::TableEntry>,
}

/// The pipelines that controllers have set.
#[derive(Debug, Default)]
pub(crate) struct PipelineState {
    /// Forwards packets.
    pub(crate) committed: Option<Active>,
    /// Of `VERIFY_AND_SAVE`, until it is committed or replaced: staged in the data plane, which
    /// takes reads and writes for it.
    pub(crate) saved: Option<Active>,
}

impl PipelineState {
    /// What reads refer to: "any subsequent Read / Write requests must refer to fields in the new
    /// config", which is the saved one.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`: none yet.
    pub(crate) fn usable(&self) -> Result<&Active, Status> {
        let active = self.saved.as_ref().or(self.committed.as_ref());
        active.ok_or_else(no_config)
    }

    /// What writes refer to; as [`Self::usable`].
    pub(crate) fn usable_mut(&mut self) -> Result<&mut Active, Status> {
        let active = self.saved.as_mut().or(self.committed.as_mut());
        active.ok_or_else(no_config)
    }
}

fn no_config() -> Status {
    Status::failed_precondition(
        "no forwarding pipeline config yet; send SetForwardingPipelineConfig first",
    )
}

/// The pipeline that forwards packets, as the tasks that serve streams see it.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    pub(crate) pipeline: Arc<Pipeline>,
    /// The first packet-in and notification that may come from it.
    pub(crate) first: Generation,
}
