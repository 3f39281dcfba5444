//! The data of one call of machine code, and the functions that it calls back.

use crate::context::Context;
use crate::ops::Code;
use std::ffi::c_void;

/// The data of a call of machine code. The code reads and writes it by the fields' offsets.
#[repr(C)]
pub(crate) struct Env {
    /// The packet's words.
    pub phv: *mut u64,
    /// The packet.
    pub ctx: *mut Context,
    /// The frame's first byte, and its length.
    pub frame: *mut u8,
    pub length: usize,
    /// Where the parser found headers, by position in the deparser's order.
    pub places: *mut usize,
    /// Room for a packed key.
    pub key: *mut u64,
    /// The switch's input to the part: for the parser an [`IngressInput`](crate::IngressInput), or null if
    /// headers and metadata are prepared already; for egress an [`EgressInput`](crate::EgressInput).
    pub given: *const c_void,
    /// The first cell of registers and counters.
    pub cells: *mut u64,
    /// The packet's time, in ns.
    pub now_ns: u64,
    /// The parser error that a callback ended with.
    pub error: u64,
    /// The callbacks.
    pub callbacks: *const Callbacks,
    /// What the callbacks work with; only they know its type.
    pub machine: *mut c_void,
}

/// A function that machine code calls, with a number whose meaning depends on the function.
pub(crate) type Callback = unsafe extern "C" fn(env: *mut Env, a: u64) -> u64;

/// The functions that machine code calls. Each does what the interpreter does.
#[repr(C)]
pub(crate) struct Callbacks {
    /// Executes an operation, by its address; returns a [`Status`].
    pub step: Callback,
    /// Runs the code from the address in the lower half to that in the upper half; returns a
    /// [`Status`].
    pub run: Callback,
    /// Looks the packed key up in a table, by its index, and returns what to do ([`Applied`]).
    pub apply: Callback,
    /// Requests that the packet is held; the arguments begin at a slot.
    pub hold: Callback,
    /// The bytes that a class holds.
    pub backlog: Callback,
    /// Whether the key of a use of a value set is in the set.
    pub value_set: Callback,
    /// The value of a calculation, by its index.
    pub compute: Callback,
    /// Writes the header at a position of the deparser's order where it lies in the frame.
    pub write_header: Callback,
    /// Writes all headers of the packet before its payload.
    pub write_headers: Callback,
}

/// How an operation or a run of code ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Status {
    /// The next operation follows.
    Done = 0,
    /// The operation skips others.
    Skipped = 1,
    Exit = 2,
    Asserted = 3,
    /// A parser error: [`Env::error`].
    Error = 4,
    Fault = 5,
}

/// The answer of [`Callbacks::apply`]: twice the table's number of the action, plus 1 after a hit. The
/// number of actions stands for no action, and one more for a fault.
pub(crate) struct Applied;

impl Applied {
    /// The answer as a number.
    #[inline]
    pub fn encode(choice: usize, hit: bool) -> u64 {
        2 * choice as u64 + u64::from(hit)
    }
}

/// The addresses of code as the number of [`Callbacks::run`].
pub(super) fn run_argument(code: Code) -> u64 {
    u64::from(code.end) << 32 | u64::from(code.start)
}
