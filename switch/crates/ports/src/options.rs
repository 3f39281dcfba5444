//! The options for opening a port, and the errors.

use std::fmt;
use std::io;

/// Most frames that a receive ring may hold ([`PortOptions::rx_frames`]).
pub const MAX_RX_FRAMES: usize = 1 << 19;

/// The way in which a port exchanges frames with the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortDriver {
    /// Packet sockets (packet(7)): any interface, with the kernel's receive stamps. Needs
    /// CAP_NET_RAW in the interface's network namespace.
    #[default]
    AfPacket,
    /// An AF_XDP socket and an XDP program. Cheaper per frame on interfaces whose driver has
    /// support for it. The machine's own network stack no longer sees the interface's frames.
    /// Needs CAP_NET_ADMIN and CAP_BPF outside of user namespaces, and Linux 5.9.
    AfXdp,
}

impl std::str::FromStr for PortDriver {
    type Err = String;

    /// `af_packet` or `af_xdp`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "af_packet" => Ok(PortDriver::AfPacket),
            "af_xdp" => Ok(PortDriver::AfXdp),
            _ => Err(format!("'{text}' is not af_packet or af_xdp")),
        }
    }
}

/// The way in which an open port gets its frames; it is displayed in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortMode {
    /// By packet sockets.
    AfPacket,
    /// By AF_XDP.
    AfXdp {
        /// The XDP program runs in the interface's driver (native), or behind it (generic), which
        /// every interface can and which is slower.
        in_driver: bool,
        /// The hardware reads and writes the port's memory; else the kernel copies frames.
        zero_copy: bool,
    },
}

impl fmt::Display for PortMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortMode::AfPacket => formatter.write_str("AF_PACKET"),
            PortMode::AfXdp {
                in_driver,
                zero_copy,
            } => write!(
                formatter,
                "AF_XDP, {} program, {}",
                if *in_driver { "native" } else { "generic" },
                if *zero_copy { "zero-copy" } else { "copying" }
            ),
        }
    }
}

/// The options for opening a port. The defaults suit a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// The way in which the port exchanges frames with the kernel.
    pub driver: PortDriver,
    /// Frames the receive ring holds, at least; 2 to 524288. Default 4096: 99 ms of 1518-byte
    /// frames at 500 Mbit/s. A frame that finds it full is lost and counted (`rx_ring_full`).
    pub rx_frames: usize,
    /// Longest frame received and sent, bytes without FCS; `None`: the interface's MTU + 14 (Ethernet) +
    /// 8 (two VLAN tags). If the MTU grows later, so does this, by AF_PACKET with `offloads`; longer
    /// frames are copied once more. (When sending, Linux grants MTU + 14, and 4 more if the first tag is
    /// 802.1Q; it refuses longer frames, counted in `tx_failed`.)
    pub max_frame_bytes: Option<usize>,
    /// Frames collected before they are handed to the kernel unasked; 1 to 1024. Default 64.
    pub tx_batch_frames: usize,
    /// Kernel memory frames being sent may take, bytes. Default 4 MiB. By AF_PACKET, the system's default
    /// (`net.core.wmem_default`) holds where the queueing discipline has a rate (htb, tbf): frames beyond
    /// it wait in the switch ([`crate::Port::is_stuck`]).
    pub tx_buffer_bytes: usize,
    /// Receive frames for any destination address. Default true: a switch must.
    pub promiscuous: bool,
    /// Do not receive frames that this machine sends out of the interface. Default true: a switch must
    /// not hear itself. (By AF_XDP a port never does.)
    pub ignore_outgoing: bool,
    /// Hand sent frames to the driver past the interface's queueing discipline. A little faster
    /// where there is one; captures on the interface (tcpdump) do not see the frames. Default
    /// false. (By AF_XDP a port always does.)
    pub qdisc_bypass: bool,
    /// The kernel sends each frame at the time that comes with it ([`crate::Sending::departure_ns`]), at once if
    /// that is over. The interface's root queueing discipline must see to that, so be fq; it is
    /// looked at when the port is opened. AF_PACKET only. Default false.
    pub kernel_departures: bool,
    /// Take frames of several segments (segmentation offload) apart into packets, and let packets of such
    /// frames leave together again ([`crate::Port::send_as`]). Default true. False: such a frame is too
    /// long, and lost. (By AF_XDP a port gets and sends none; on a veth the kernel turns the offload of
    /// the other end off.)
    pub offloads: bool,
    /// Kernel memory that frames of several segments may take while they wait, bytes. Default 32 MiB:
    /// some 300 frames of 64 KB. A frame that finds it full is lost and counted (`rx_ring_full`). More
    /// than `net.core.rmem_max` needs CAP_NET_ADMIN; without it the port takes that.
    pub rx_train_bytes: usize,
    /// Receive at all. Default true. False leaves out the ring: a port that only sends.
    pub receive: bool,
}

impl Default for PortOptions {
    fn default() -> PortOptions {
        PortOptions {
            driver: PortDriver::AfPacket,
            rx_frames: 4096,
            max_frame_bytes: None,
            tx_batch_frames: 64,
            tx_buffer_bytes: 4 << 20,
            promiscuous: true,
            ignore_outgoing: true,
            qdisc_bypass: false,
            kernel_departures: false,
            offloads: true,
            rx_train_bytes: 32 << 20,
            receive: true,
        }
    }
}

/// The error of opening a port.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// There is no interface of this name in the calling thread's network namespace.
    #[error("no interface '{name}'; existing: {}", existing.join(", "))]
    NoSuchInterface {
        /// The name asked for.
        name: String,
        /// The names there are.
        existing: Vec<String>,
    },
    /// Raw sockets are not allowed to this process here.
    #[error(
        "interface '{name}': needs CAP_NET_RAW in its network namespace \
         (run as root, or give the binary cap_net_raw, or use 'unshare -r -n')"
    )]
    NotPermitted {
        /// The interface.
        name: String,
    },
    /// The interface carries no Ethernet frames (a tun device, a PPP link).
    #[error("interface '{name}': carries no Ethernet frames (hardware type {hardware_type})")]
    NotEthernet {
        /// The interface.
        name: String,
        /// Its ARPHRD_* number.
        hardware_type: u16,
    },
    /// An option is out of range.
    #[error("interface '{name}': option {option} is {value}, must be {least} to {most}")]
    OutOfRange {
        /// The interface.
        name: String,
        /// Field of [`PortOptions`].
        option: &'static str,
        /// Its value.
        value: usize,
        /// Least value.
        least: usize,
        /// Greatest value.
        most: usize,
    },
    /// The receive ring would be too large (over 1 GiB).
    #[error("interface '{name}': a ring of {frames} frames of {frame_bytes} bytes is too large")]
    RingTooLarge {
        /// The interface.
        name: String,
        /// Frames asked for.
        frames: usize,
        /// Longest frame.
        frame_bytes: usize,
    },
    /// The kernel has no AF_XDP.
    #[error(
        "interface '{name}': this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS; sandboxes such \
         as gVisor have none): use the port driver af_packet"
    )]
    NoXdp {
        /// The interface.
        name: String,
    },
    /// XDP programs are not allowed to this process.
    #[error(
        "interface '{name}': an AF_XDP port needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, and not \
         only in a user namespace (run as root), or use the port driver af_packet"
    )]
    XdpNotPermitted {
        /// The interface.
        name: String,
    },
    /// The interface has another XDP program, or another AF_XDP socket has its queue.
    #[error(
        "interface '{name}': has an XDP program or an AF_XDP socket already: end the process that \
         it belongs to; a program left behind is removed by: ip link set dev {name} xdp off; \
         ip link set dev {name} xdpgeneric off"
    )]
    XdpOccupied {
        /// The interface.
        name: String,
    },
    /// The interface spreads received frames over several queues, and the port would see one of them.
    #[error(
        "interface '{name}': has {queues} receive queues, an AF_XDP port receives from one: \
         ethtool -L {name} combined 1 (or: rx 1), or use the port driver af_packet"
    )]
    ManyQueues {
        /// The interface.
        name: String,
        /// Its receive queues.
        queues: u32,
    },
    /// Frames may be longer than AF_XDP's places for them, and the kernel does not spread them over several.
    #[error(
        "interface '{name}': frames of up to {frame_bytes} bytes, AF_XDP takes up to {most} before \
         Linux 6.6: lower its MTU, or use the port driver af_packet"
    )]
    TooLongForXdp {
        /// The interface.
        name: String,
        /// Longest frame, without FCS.
        frame_bytes: usize,
        /// Longest that AF_XDP takes.
        most: usize,
    },
    /// The kernel is to send frames at given times, and the interface would not.
    #[error(
        "interface '{name}': its root queueing discipline {discipline} does not send frames at the \
         times they come with, fq does: tc qdisc replace dev {name} root fq limit 40000 \
         flow_limit 40000 timer_slack 0"
    )]
    NotTimed {
        /// The interface.
        name: String,
        /// Its root discipline.
        discipline: String,
    },
    /// Only packet sockets can have the kernel send frames at given times, and not past the
    /// queueing discipline.
    #[error(
        "interface '{name}': the kernel sends frames at given times for AF_PACKET ports only (use \
         the port driver af_packet), and only with their queueing discipline"
    )]
    DeparturesNeedPackets {
        /// The interface.
        name: String,
    },
    /// The kernel refused a step.
    #[error("interface '{name}': cannot {step}: {source}")]
    Refused {
        /// The interface.
        name: String,
        /// The step.
        step: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}
