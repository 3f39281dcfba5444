//! The interfaces of all ports: in the loop's thread, or with threads that receive and send.

use std::io;
use std::ops::Range;

use ports::{LinkState, Port, PortStatistics, Sending, Waiter};

use super::port_set::PortSet;
use super::stages::Stages;

/// An opened interface.
pub struct Interface {
    /// The port that receives. It also sends, unless there is another one for that.
    pub port: Port,
    /// The port that sends if threads receive and send ([`Stages`]).
    pub sends: Option<Port>,
}

/// The interfaces of all ports, each known by its place in the order in which they were added.
pub(super) enum Interfaces {
    /// The loop receives and sends.
    Own(PortSet),
    /// Ports for threads that have not begun.
    Waiting(Vec<(Port, Port)>),
    /// Threads receive and send.
    Threads(Box<Stages>),
}

/// Calls a method of the ports or of the threads, which have begun.
macro_rules! of {
    ($interfaces:expr, $ports:ident => $own:expr, $stages:ident => $threads:expr) => {
        match $interfaces {
            Interfaces::Own($ports) => $own,
            Interfaces::Threads($stages) => $threads,
            Interfaces::Waiting(_) => unreachable!("the threads begin before the loop"),
        }
    };
}

impl Interfaces {
    pub(super) fn add(&mut self, interface: Interface, waiter: &mut Waiter) -> io::Result<()> {
        let Interface { port, sends } = interface;
        match (self, sends) {
            (Self::Own(ports), None) => ports.add(port, waiter),
            (Self::Waiting(ports), Some(sends)) => {
                ports.push((port, sends));
                Ok(())
            }
            _ => unreachable!("all interfaces are opened for threads, or none"),
        }
    }

    /// Starts the threads, if there are to be any.
    pub(super) fn start(&mut self, waiter: &Waiter, realtime: bool) -> io::Result<()> {
        if let Self::Waiting(ports) = self {
            let ports = std::mem::take(ports);
            let stages = Stages::start(ports, waiter.frame_waker(), realtime)?;
            *self = Self::Threads(Box::new(stages));
        }
        Ok(())
    }

    pub(super) fn note_readable(&mut self, readable: Option<&[usize]>) {
        of!(self, ports => ports.note_readable(readable), _stages => {});
    }

    pub(super) fn is_any_readable(&self) -> bool {
        of!(self, ports => ports.is_any_readable(), stages => stages.has_frame())
    }

    pub(super) fn has_frame(&self) -> bool {
        of!(self, ports => ports.has_frame(), stages => stages.has_frame())
    }

    pub(super) fn earliest(&mut self, now_ns: u64) -> Option<(u64, usize)> {
        of!(self, ports => ports.earliest(now_ns), stages => stages.earliest())
    }

    /// Takes the frame of the last call of [`earliest`](Self::earliest), of the port at a place. `take`
    /// gets its bytes, and whether it is a segment of a train.
    pub(super) fn receive(&mut self, at: usize, now_ns: u64, take: impl FnOnce(&[u8], bool)) {
        of!(self,
            ports => if let Some(frame) = ports.receive(at, now_ns) {
                take(frame.bytes(), frame.in_train);
            },
            stages => stages.receive(take));
    }

    pub(super) fn send(&mut self, at: usize, frame: &[u8], sending: Sending) {
        of!(self,
            ports => ports.send(at, frame, sending),
            stages => stages.send(at, frame, sending));
    }

    pub(super) fn send_buffer(
        &mut self,
        at: usize,
        buffer: &mut Vec<u8>,
        frame: Range<usize>,
        sending: Sending,
    ) {
        of!(self,
            ports => ports.send_buffer(at, buffer, frame, sending),
            stages => stages.send_buffer(at, buffer, frame, sending));
    }

    pub(super) fn flush(&mut self) {
        of!(self, ports => ports.flush(), stages => stages.flush());
    }

    /// Offers the kernel again the frames that it did not take; see [`PortSet::flush_stuck`].
    pub(super) fn flush_stuck(&mut self, now_ns: u64, is_up: impl Fn(usize) -> bool) -> u64 {
        // A thread that sends does so by itself.
        of!(self, ports => ports.flush_stuck(now_ns, is_up), _stages => u64::MAX)
    }

    /// Number of interfaces whose frames the kernel did not take.
    pub(super) fn stuck(&self) -> usize {
        of!(self, ports => ports.stuck(), stages => stages.stuck())
    }

    /// Whether the kernel did not take all frames of the interface at a place.
    pub(super) fn is_stuck(&self, at: usize) -> bool {
        of!(self, ports => ports.is_stuck(at), stages => stages.is_stuck(at))
    }

    pub(super) fn statistics(&mut self, at: usize) -> PortStatistics {
        of!(self, ports => ports.statistics(at), stages => stages.statistics(at))
    }

    /// State of the interface at a place, with the error that its socket reports.
    pub(super) fn check(&self, at: usize, waiter: &Waiter) -> (LinkState, Option<io::Error>) {
        of!(self,
            ports => {
                let Some((port, token)) = ports.get(at) else {
                    return (LinkState::Gone, None);
                };
                // Take the error even if the state is the same, or the next wait ends at once.
                let has_error = waiter.has_error(token);
                let error = has_error.then(|| port.take_error()).flatten();
                (port.link_state(), error)
            },
            stages => (stages.link_state(at), None))
    }

    /// No longer waits for frames of the interface at a place, which is gone.
    pub(super) fn forget(&self, at: usize, waiter: &mut Waiter) {
        if let Self::Own(ports) = self
            && let Some((port, _)) = ports.get(at)
        {
            waiter.remove(port);
        }
    }

    /// Whether the threads, if there are any, run.
    pub(super) fn are_running(&self) -> bool {
        of!(self, _ports => true, stages => stages.is_running())
    }

    /// Has all frames sent, and ends the threads.
    ///
    /// # Errors
    /// A thread ended earlier.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        of!(self, ports => { ports.flush(); Ok(()) }, stages => stages.stop())
    }
}
