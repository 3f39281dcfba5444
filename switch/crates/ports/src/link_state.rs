//! The state of an interface.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use crate::sys;

/// State of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Up, with carrier.
    Up,
    /// Up without carrier: the cable is out or, for a veth, the peer is down.
    NoCarrier,
    /// Down. The port works as soon as the interface is brought up.
    Down,
    /// The interface was deleted. The port will not work again.
    Gone,
}

/// The state of an interface. `socket`: any.
pub(crate) fn link_state(socket: BorrowedFd<'_>, c_name: &CStr, index: i32) -> LinkState {
    if sys::interface_index(c_name) != Some(index) {
        return LinkState::Gone;
    }
    match sys::interface_state(socket, c_name) {
        Ok(state) if !state.up => LinkState::Down,
        Ok(state) if !state.running => LinkState::NoCarrier,
        Ok(_) => LinkState::Up,
        Err(_) => LinkState::Gone,
    }
}
