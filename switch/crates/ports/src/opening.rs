//! Opening a port of either driver. Errors name the interface and the step.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt;

use crate::options::PortError;
use crate::sys;

/// An interface whose port is being opened.
pub(crate) struct Opening<'a> {
    pub(crate) name: &'a str,
    pub(crate) index: i32,
}

impl Opening<'_> {
    /// The result of a step, such as "read the MTU".
    pub(crate) fn step<T>(
        &self,
        step: &'static str,
        result: Result<T, impl Into<io::Error>>,
    ) -> Result<T, PortError> {
        result.map_err(|source| {
            let source = source.into();
            let name = self.name.to_owned();
            match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => PortError::NotPermitted { name },
                _ => PortError::Refused { name, step, source },
            }
        })
    }

    /// Sets how many bytes of frames may be on their way from the socket `fd`.
    pub(crate) fn set_send_buffer(
        &self,
        fd: BorrowedFd<'_>,
        bytes: usize,
    ) -> Result<(), PortError> {
        // The first option needs CAP_NET_ADMIN. Without it the system's limit holds.
        let set = sockopt::set_socket_send_buffer_size_force(fd, bytes)
            .or_else(|_| sockopt::set_socket_send_buffer_size(fd, bytes));
        self.step("set the send buffer", set)
    }

    /// Sets how many bytes of frames may wait in the queue of the socket `fd`.
    pub(crate) fn set_receive_buffer(
        &self,
        fd: BorrowedFd<'_>,
        bytes: usize,
    ) -> Result<(), PortError> {
        // As for the send buffer.
        let set = sockopt::set_socket_recv_buffer_size_force(fd, bytes)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, bytes));
        self.step("set the receive buffer", set)
    }

    /// Makes the interface promiscuous while the packet socket `fd` is open.
    pub(crate) fn receive_all_addresses(&self, fd: BorrowedFd<'_>) -> Result<(), PortError> {
        let membership = libc::packet_mreq {
            mr_ifindex: self.index,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.step(
            "receive frames for all addresses",
            sys::set_option(
                fd,
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                membership,
            ),
        )
    }
}
