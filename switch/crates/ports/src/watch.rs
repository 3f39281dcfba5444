//! The state of an interface, for a thread that neither receives nor sends its frames.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::link_state::{LinkState, link_state};
use crate::packet;

/// Watches the interface of a [`Port`](crate::Port) that another thread has ([`Port::watch`]).
///
/// [`Port::watch`]: crate::Port::watch
#[derive(Debug)]
pub struct Watch {
    pub(crate) c_name: CString,
    pub(crate) index: i32,
    /// The port's receiving socket, by another descriptor.
    pub(crate) socket: OwnedFd,
}

impl Watch {
    /// State of the interface (one or two system calls).
    #[must_use]
    pub fn link_state(&self) -> LinkState {
        link_state(self.socket.as_fd(), &self.c_name, self.index)
    }

    /// Frames that were lost because the port's ring was full, since the last call or the last one of
    /// [`Port::statistics`](crate::Port::statistics) (one system call).
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn take_ring_full(&self) -> io::Result<u64> {
        packet::take_ring_full(self.socket.as_fd())
    }
}
