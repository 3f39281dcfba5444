//! The XDP program of a port, which passes every frame to the port's socket, with its arrival time.
//!
//! It is fifteen instructions, loaded by bpf(2), and needs no compiler and no object file. A BPF link
//! (Linux 5.9) attaches it to the interface. The kernel detaches it when the descriptor closes, so
//! nothing stays behind even if the process is killed.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The stamp that the program puts in front of a frame: bpf_ktime_get_ns(), which is CLOCK_MONOTONIC.
pub(crate) const STAMP_BYTES: usize = 8;

// Commands and numbers of linux/bpf.h.
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const HELPER_KTIME_GET_NS: i32 = 5;
const HELPER_REDIRECT_MAP: i32 = 51;
const HELPER_XDP_ADJUST_META: i32 = 54;
const PSEUDO_MAP_FD: u8 = 1;
const XDP_PASS: i32 = 2;
/// The program also takes frames that are not in one piece (Linux 5.18).
const HAS_FRAGS: u32 = 1 << 5;
// Fields of struct xdp_md.
const MD_DATA: i16 = 0;
const MD_DATA_META: i16 = 8;
const MD_RX_QUEUE_INDEX: i16 = 16;

/// The place where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The interface's driver, before the kernel makes a buffer of the frame.
    Driver,
    /// Behind the driver, on the kernel's own buffers. Any interface supports it; it is slower.
    Generic,
}

impl Place {
    /// XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE (linux/if_link.h).
    fn flags(self) -> u32 {
        match self {
            Place::Driver => 1 << 2,
            Place::Generic => 1 << 1,
        }
    }
}

/// A program on an interface. Dropping the value detaches the program.
#[derive(Debug)]
pub(crate) struct Program {
    _link: OwnedFd,
    pub(crate) place: Place,
}

impl Program {
    /// Puts the program on the interface `index`; frames of queue 0 go to `socket`. In the driver
    /// if it lets us, else behind it. `has_parts`: frames may have several parts.
    ///
    /// # Errors
    /// The kernel's: EPERM without the rights, EBUSY or EEXIST if there is a program already.
    pub(crate) fn attach(
        map: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
        index: i32,
        has_parts: bool,
    ) -> io::Result<Program> {
        update_map(map, 0, socket)?;
        let flags = if has_parts { HAS_FRAGS } else { 0 };
        let program = load(&instructions(map.as_raw_fd()), flags)?;
        let index = u32::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
        let in_driver = link(program.as_fd(), index, Place::Driver);
        let (link, place) = match in_driver {
            Ok(link) => (link, Place::Driver),
            Err(error) if is_occupied(&error) => return Err(error),
            Err(_) => (
                link(program.as_fd(), index, Place::Generic)?,
                Place::Generic,
            ),
        };
        Ok(Program { _link: link, place })
    }
}

/// Whether the interface has a program that is not ours.
pub(crate) fn is_occupied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// One instruction of the BPF machine (linux/bpf.h, struct bpf_insn).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

fn instruction(
    code: u8,
    (destination, source): (u8, u8),
    offset: i16,
    immediate: i32,
) -> Instruction {
    Instruction {
        code,
        registers: destination | source << 4,
        offset,
        immediate,
    }
}

/// The program. r6 keeps the context over calls, which take r1 to r5 and leave their result in r0.
fn instructions(map: libc::c_int) -> [Instruction; 16] {
    let copy = |to, from| instruction(0xbf, (to, from), 0, 0);
    let set = |to, value| instruction(0xb7, (to, 0), 0, value);
    let call = |helper| instruction(0x85, (0, 0), 0, helper);
    let load_u32 = |to, from, offset| instruction(0x61, (to, from), offset, 0);
    [
        copy(6, 1),
        set(2, -(STAMP_BYTES as i32)),
        call(HELPER_XDP_ADJUST_META), // the next comparison detects a failure
        call(HELPER_KTIME_GET_NS),
        load_u32(1, 6, MD_DATA_META),
        load_u32(2, 6, MD_DATA),
        copy(3, 1),
        instruction(0x07, (3, 0), 0, STAMP_BYTES as i32), // r3 += 8
        instruction(0x2d, (3, 2), 1, 0),                  // if r3 > r2: no room, skip one
        instruction(0x7b, (1, 0), 0, 0),                  // *(u64 *)r1 = r0
        load_u32(2, 6, MD_RX_QUEUE_INDEX),
        instruction(0x18, (1, PSEUDO_MAP_FD), 0, map), // of two instructions' length
        instruction(0, (0, 0), 0, 0),
        set(3, XDP_PASS), // a queue without a socket: the kernel's own
        call(HELPER_REDIRECT_MAP),
        instruction(0x95, (0, 0), 0, 0), // exit
    ]
}

/// The map from a queue to the socket for its frames.
///
/// # Errors
/// EPERM: this process may not load XDP programs.
pub(crate) fn create_map() -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        map_type: u32,
        key_bytes: u32,
        value_bytes: u32,
        max_entries: u32,
    }
    bpf_fd(
        MAP_CREATE,
        &Attributes {
            map_type: MAP_TYPE_XSKMAP,
            key_bytes: 4,
            value_bytes: 4,
            max_entries: 1,
        },
    )
}

fn update_map(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map: libc::c_int,
        _padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let socket = socket.as_raw_fd();
    let done = bpf(
        MAP_UPDATE_ELEM,
        &Attributes {
            map: map.as_raw_fd(),
            _padding: 0,
            key: (&raw const queue).expose_provenance() as u64,
            value: (&raw const socket).expose_provenance() as u64,
            flags: 0,
        },
    );
    done.map(|_| ())
}

fn load(instructions: &[Instruction], flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program_type: u32,
        instruction_count: u32,
        instructions: u64,
        license: u64,
        log: [u32; 4],
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface_index: u32,
        expected_attach_type: u32,
    }
    const LICENSE: &CStr = c"Apache-2.0";
    const NAME: [u8; 16] = *b"pacing_switch\0\0\0";
    bpf_fd(
        PROG_LOAD,
        &Attributes {
            program_type: PROG_TYPE_XDP,
            instruction_count: u32::try_from(instructions.len())
                .map_err(|_| io::ErrorKind::InvalidInput)?,
            instructions: instructions.as_ptr().expose_provenance() as u64,
            license: LICENSE.as_ptr().expose_provenance() as u64,
            log: [0; 4],
            kernel_version: 0,
            flags,
            name: NAME,
            interface_index: 0,
            expected_attach_type: ATTACH_XDP,
        },
    )
}

fn link(program: BorrowedFd<'_>, interface_index: u32, place: Place) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program: libc::c_int,
        interface_index: u32,
        attach_type: u32,
        flags: u32,
    }
    bpf_fd(
        LINK_CREATE,
        &Attributes {
            program: program.as_raw_fd(),
            interface_index,
            attach_type: ATTACH_XDP,
            flags: place.flags(),
        },
    )
}

/// bpf(2) where the result is a descriptor.
fn bpf_fd<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    let fd = libc::c_int::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just returned this descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// bpf(2). The kernel takes attributes it knows more of for zero.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: `attributes` is a C structure of the size given, as the command wants it. The memory at
    // its addresses lives across the call. These commands write nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
