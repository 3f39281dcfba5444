//! The interface of the packet engine and its caller: options, the input with a packet, and the
//! verdict on it.

use crate::clone_request::CloneRequest;
use crate::trace::Step;
use traffic_manager::Waiting;
use traffic_manager::hold::Hold;

/// The engine that runs a program. The results are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// Machine code, made when the program is loaded; the interpreter, if that is not possible, and for
    /// packets whose steps are wanted.
    #[default]
    Auto,
    /// Machine code, except for packets whose steps are wanted. A program of which none can be made is
    /// refused.
    Machine,
    /// The interpreter.
    Interpreter,
}

/// The engine of a loaded program ([`crate::Pipeline::engine`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineInUse<'a> {
    /// Machine code of so many bytes.
    Machine {
        /// Bytes of code.
        code_bytes: usize,
    },
    /// The interpreter, and why there is no machine code although it is wanted.
    Interpreter {
        /// The reason why the translation failed.
        because: Option<&'a str>,
    },
}

/// Settings and limits of one loaded program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    /// The `egress_spec` that means "drop" (simple_switch: 511).
    pub drop_port: u16,
    /// The port of the controller, if there is one. The engine treats it as any other port; it is
    /// here so that a caller has one set of options.
    pub cpu_port: Option<u16>,
    /// Longest frame in bytes, without FCS, that a [`crate::Context`] can hold. Longer input is
    /// cut by [`crate::Context::set_frame`], which says so.
    pub max_frame_bytes: usize,
    /// Parser states one packet may pass through before `ParserTimeout`.
    pub max_parser_states: u32,
    /// Size limit of the program text in bytes.
    pub max_program_bytes: usize,
    /// Limit, in bytes, on the memory of all registers, counters and meter indices together.
    pub max_state_bytes: usize,
    /// Whether tables keep BMv2's handles of their entries ([`crate::Pipeline::entry_handle`]).
    pub entry_handles: bool,
    /// The engine that runs the program.
    pub engine: Engine,
    /// Seed of the `random` extern; runs with the same seed and packets are identical.
    pub random_seed: u64,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            drop_port: 511,
            cpu_port: None,
            max_frame_bytes: 9_216,
            max_parser_states: 1_024,
            max_program_bytes: 64 << 20,
            max_state_bytes: 2 << 30,
            entry_handles: false,
            engine: Engine::default(),
            random_seed: 0x5eed_0f9a_ce00_0001,
        }
    }
}

/// The functions of the switch that a program calls while it processes a packet.
pub trait Externs {
    /// Whether steps are wanted. The engine is compiled without them for an `Externs` that does not
    /// want them.
    const STEPS: bool = false;

    /// Bytes (layer 2 + FCS) that `class` holds in the traffic manager, on all ports, whose
    /// transmission has not started.
    fn backlog_bytes(&self, class: u32) -> u64;

    /// The packets that wait in an egress queue of a port; `None`: no such port or queue.
    fn waiting(&self, port: u16, queue: u8) -> Option<Waiting> {
        let _ = (port, queue);
        None
    }

    /// Prefetches the memory of `class`, which [`Self::backlog_bytes`] or a hold needs soon.
    fn prefetch_class(&self, class: u32) {
        let _ = class;
    }

    /// Whether messages of `log_msg` are read. If not, the engine does not format them.
    fn logs(&self) -> bool {
        false
    }

    /// Logs a message of `log_msg`.
    fn log(&self, message: &str) {
        let _ = message;
    }

    /// Takes a step of the packet. Steps come in the order in which the engine does them.
    fn step(&self, step: Step<'_>) {
        let _ = step;
    }
}

/// `Externs` of a switch without a traffic manager: every class is empty, and there are no ports.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTrafficManager;

impl Externs for NoTrafficManager {
    fn backlog_bytes(&self, _class: u32) -> u64 {
        0
    }
}

/// The origin of a packet: `standard_metadata.instance_type`, with simple_switch's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum InstanceType {
    /// Arrived on a port.
    #[default]
    Normal = 0,
    /// Cloned at the end of ingress.
    IngressClone = 1,
    /// Cloned at the end of egress.
    EgressClone = 2,
    /// Coalesced (never produced).
    Coalesced = 3,
    /// Recirculated from the end of egress.
    Recirculated = 4,
    /// Copy made for a multicast group.
    Replication = 5,
    /// Resubmitted from the end of ingress.
    Resubmit = 6,
}

/// The caller's data of a packet that enters ingress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IngressInput {
    /// The port at which it arrived.
    pub port: u16,
    /// Time of arrival in ns. The program sees it in ns through the `TrafficManager` extern
    /// and in whole microseconds (48 bits) as `ingress_global_timestamp`.
    pub now_ns: u64,
    /// Why the packet is here.
    pub instance_type: InstanceType,
}

/// The caller's data of a packet that enters egress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EgressInput {
    /// The port from which it will leave.
    pub port: u16,
    /// Time in ns.
    pub now_ns: u64,
    /// Replication id of the multicast copy; 0 for unicast.
    pub rid: u16,
    /// The time when the packet was queued, in ns.
    pub enqueued_ns: u64,
    /// The number of packets that waited in its queue, or for the port, when it was queued.
    pub enq_qdepth: u32,
    /// The number of packets that waited there when it left.
    pub deq_qdepth: u32,
    /// The queue that it left.
    pub qid: u8,
    /// Why the packet is here.
    pub instance_type: InstanceType,
}

/// The decision at the end of ingress.
///
/// Order of precedence, as in simple_switch: the clone (independent of the rest), then
/// `resubmit`, then `mcast_group` if it is not 0, then `drop`, then unicast to `egress_port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IngressVerdict {
    /// The packet does not go to the traffic manager: `egress_spec` is the drop port, and there is
    /// neither multicast nor resubmission; or an `assert` or `assume` failed.
    pub drop: bool,
    /// `egress_spec`.
    pub egress_port: u16,
    /// `mcast_grp`, 0 for none.
    pub mcast_group: u16,
    /// The program's last call of `TrafficManager.hold`, if there was one.
    pub hold: Option<Hold>,
    /// The program requested a resubmission with this field list: call
    /// [`crate::Pipeline::resubmit`], then `ingress` again.
    pub resubmit: Option<u16>,
    /// The clone to egress that the program requested.
    pub clone: Option<CloneRequest>,
    /// The digest that the program requested: call [`crate::Pipeline::digest`].
    pub digest: Option<usize>,
    /// The parser ended with an error. The ingress control ran all the same, as in BMv2.
    pub parser_error: bool,
    /// A checksum was wrong.
    pub checksum_error: bool,
    /// An `assert` or `assume` failed. BMv2 aborts the process; here the packet is dropped.
    pub assertion_failed: bool,
    /// The engine met a case that cannot happen; the packet is dropped.
    pub internal_error: bool,
}

/// The decision at the end of egress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EgressVerdict {
    /// The packet is dropped; the context has no output.
    pub drop: bool,
    /// The program requested a recirculation with this field list: call
    /// [`crate::Pipeline::recirculate`], then `ingress`, instead of sending.
    pub recirculate: Option<u16>,
    /// The clone to egress that the program requested.
    pub clone: Option<CloneRequest>,
    /// The output was cut by `truncate`.
    pub truncated: bool,
    /// An `assert` or `assume` failed; the packet is dropped.
    pub assertion_failed: bool,
    /// The engine met a case that cannot happen; the packet is dropped.
    pub internal_error: bool,
}
