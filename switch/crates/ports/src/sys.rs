//! System calls, each wrapped once, with owned descriptors and `io::Result`.

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// State of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceState {
    pub(crate) up: bool,
    pub(crate) running: bool,
}

/// A packet socket that receives nothing until it is bound to a protocol.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers involved.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        )
    };
    owned(fd)
}

pub(crate) fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Marks a type as plain old data that the kernel may read or write as bytes.
///
/// # Safety
/// Every bit pattern must be a value of the type, and it must hold no pointers or padding that
/// matters.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: an integer.
unsafe impl Plain for libc::c_int {}
// SAFETY: four unsigned integers without padding.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: two unsigned integers without padding.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: integers and a byte array without padding.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: integers without padding.
unsafe impl Plain for libc::sock_txtime {}

// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: integers without padding.
unsafe impl Plain for libc::xdp_desc {}
// SAFETY: integers; two pairs of 32 bits, no padding that is read.
unsafe impl Plain for libc::xdp_umem_reg {}
// SAFETY: integers without padding.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: integers without padding.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: an integer.
unsafe impl Plain for libc::xdp_options {}

pub(crate) fn set_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: `value` is plain data and lives across the call; the length is its size.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            length_of::<T>(),
        )
    })
}

pub(crate) fn get_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    mut value: T,
) -> io::Result<T> {
    let mut length = length_of::<T>();
    // SAFETY: `value` is plain data of `length` bytes, writable, and lives across the call.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(value)
}

/// Reads an option whose value may be all zeros.
fn get_zeroed_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<T> {
    // SAFETY: any bits are a value of plain data.
    get_option(fd, level, name, unsafe { mem::zeroed::<T>() })
}

/// An AF_XDP socket without memory and rings.
pub(crate) fn xdp_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers involved.
    owned(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })
}

/// Binds an AF_XDP socket to a queue of an interface.
pub(crate) fn bind_xdp(fd: BorrowedFd<'_>, index: i32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: u32::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    bind(fd, &address)
}

/// Where the rings of an AF_XDP socket lie in their mappings.
pub(crate) fn xdp_ring_offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    get_zeroed_option(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
}

/// Counters of an AF_XDP socket.
pub(crate) fn xdp_statistics(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_statistics> {
    get_zeroed_option(fd, libc::SOL_XDP, libc::XDP_STATISTICS)
}

/// Whether the hardware reads and writes the memory of a bound AF_XDP socket itself.
pub(crate) fn is_xdp_zero_copy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let options: libc::xdp_options = get_zeroed_option(fd, libc::SOL_XDP, libc::XDP_OPTIONS)?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Binds a packet socket to an interface; `protocol` 0 receives nothing.
pub(crate) fn bind_packet(fd: BorrowedFd<'_>, index: i32, protocol: u16) -> io::Result<()> {
    // SAFETY: all-zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    bind(fd, &address)
}

/// bind(2) to an address of the socket's family.
fn bind<T>(fd: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    // SAFETY: `address` is as long as we say and lives across the call, which only reads it.
    check(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            std::ptr::from_ref(address).cast(),
            length_of::<T>(),
        )
    })
}

/// The index of an interface in the network namespace of the calling thread.
pub(crate) fn interface_index(name: &CStr) -> Option<i32> {
    // SAFETY: `name` is a valid C string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    i32::try_from(index).ok().filter(|index| *index > 0)
}

/// Names of all interfaces in the network namespace of the calling thread.
pub(crate) fn interface_names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: no arguments; the result is an array that ends with a null name, or null.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return names;
    }
    let mut entry = list;
    // SAFETY: entries up to and including the one with the null name are valid, and their names are
    // valid C strings until if_freenameindex.
    unsafe {
        while !(*entry).if_name.is_null() {
            names.push(
                CStr::from_ptr((*entry).if_name)
                    .to_string_lossy()
                    .into_owned(),
            );
            entry = entry.add(1);
        }
        libc::if_freenameindex(list);
    }
    names
}

fn interface_request(name: &CStr) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    let name = name.to_bytes();
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = from.cast_signed() as libc::c_char;
    }
    Ok(request)
}

fn interface_ioctl(
    fd: BorrowedFd<'_>,
    operation: libc::c_ulong,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: `request` is a valid ifreq; the SIOC[GS]IF* operations used here read and write no
    // more than that, and SIOCETHTOOL what it points to, of the length that its command says.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), operation as _, std::ptr::from_mut(request)) })
}

pub(crate) fn interface_state(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<InterfaceState> {
    let mut request = interface_request(name)?;
    interface_ioctl(fd, libc::SIOCGIFFLAGS as _, &mut request)?;
    // SAFETY: SIOCGIFFLAGS filled in the flags.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    Ok(InterfaceState {
        up: flags & libc::IFF_UP != 0,
        running: flags & libc::IFF_RUNNING != 0,
    })
}

pub(crate) fn interface_mtu(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<usize> {
    let mut request = interface_request(name)?;
    interface_ioctl(fd, libc::SIOCGIFMTU as _, &mut request)?;
    // SAFETY: SIOCGIFMTU filled in the MTU.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// Hardware type (ARPHRD_*) and hardware address.
pub(crate) fn interface_hardware(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<(u16, [u8; 6])> {
    let mut request = interface_request(name)?;
    interface_ioctl(fd, libc::SIOCGIFHWADDR as _, &mut request)?;
    // SAFETY: SIOCGIFHWADDR filled in the hardware address.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut bytes = [0u8; 6];
    for (to, from) in bytes.iter_mut().zip(address.sa_data) {
        *to = from as u8;
    }
    Ok((address.sa_family, bytes))
}

/// How many receive queues an interface uses (ethtool's channels).
///
/// # Errors
/// EOPNOTSUPP: its driver does not say.
pub(crate) fn receive_queues(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<u32> {
    // linux/sockios.h, linux/ethtool.h.
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    /// struct ethtool_channels.
    #[repr(C)]
    #[derive(Default)]
    struct Channels {
        command: u32,
        max: [u32; 4],
        receive: u32,
        transmit: u32,
        other: u32,
        combined: u32,
    }
    let mut channels = Channels {
        command: ETHTOOL_GCHANNELS,
        ..Channels::default()
    };
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    interface_ioctl(fd, SIOCETHTOOL, &mut request)?;
    Ok(channels.receive + channels.combined)
}

/// A socket for questions about queueing disciplines.
pub(crate) fn netlink_route_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers involved.
    owned(unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_ROUTE,
        )
    })
}

/// Waits for a message. Returns its length in bytes.
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a slice that lives across the call.
    let bytes = unsafe { libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), 0) };
    usize::try_from(bytes).map_err(|_| io::Error::last_os_error())
}

/// Sends one datagram without blocking.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a slice that lives across the call.
    let sent = unsafe {
        libc::send(
            fd.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// An eventfd, non-blocking.
pub(crate) fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers involved.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Adds one to an eventfd. Async-signal-safe: one write(2), and errno is left as it was.
pub(crate) fn event_signal(fd: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: __errno_location gives a valid pointer to this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: eight readable bytes; errno is this thread's own. A full counter (EAGAIN) is as good
    // as written: the eventfd is readable either way.
    unsafe {
        let saved = *errno;
        libc::write(fd.as_raw_fd(), (&raw const one).cast(), size_of::<u64>());
        *errno = saved;
    }
}

/// Reads the eight bytes of an eventfd or timerfd, to make it unreadable again.
pub(crate) fn event_clear(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut count = 0u64;
    // SAFETY: eight writable bytes.
    let read = unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
    if read < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(count)
}

/// A descriptor that becomes readable when CLOCK_REALTIME is stepped (timerfd_create(2),
/// TFD_TIMER_CANCEL_ON_SET).
pub(crate) fn clock_step_fd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers involved.
    let fd = owned(unsafe {
        libc::timerfd_create(libc::CLOCK_REALTIME, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK)
    })?;
    let never = libc::itimerspec {
        it_interval: timespec(0),
        it_value: libc::timespec {
            tv_sec: libc::time_t::from(i32::MAX) * 4, // the year 2242
            tv_nsec: 0,
        },
    };
    // SAFETY: `never` is a valid itimerspec; no old value is asked for.
    check(unsafe {
        libc::timerfd_settime(
            fd.as_raw_fd(),
            libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET,
            &raw const never,
            std::ptr::null_mut(),
        )
    })?;
    Ok(fd)
}

/// A timer on CLOCK_MONOTONIC, the clock of the switch. Readable once it has expired.
pub(crate) fn alarm_fd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers involved.
    owned(unsafe {
        libc::timerfd_create(
            libc::CLOCK_MONOTONIC,
            libc::TFD_CLOEXEC | libc::TFD_NONBLOCK,
        )
    })
}

/// Sets the timer to expire once, at `at_ns` (above 0), without slack.
pub(crate) fn set_alarm(fd: BorrowedFd<'_>, at_ns: u64) -> io::Result<()> {
    let at = libc::itimerspec {
        it_interval: timespec(0),
        it_value: timespec(at_ns),
    };
    // SAFETY: `at` is a valid itimerspec; no old value is asked for.
    check(unsafe {
        libc::timerfd_settime(
            fd.as_raw_fd(),
            libc::TFD_TIMER_ABSTIME,
            &raw const at,
            std::ptr::null_mut(),
        )
    })
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// ppoll(2) with a timeout in ns (`None`: none) and the signal mask as it is. Returns how many
/// descriptors are ready, 0 after the timeout; `None`: a signal came.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout_ns: Option<u64>) -> io::Result<Option<usize>> {
    let timeout = timeout_ns.map(timespec);
    let timeout_pointer = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array, its length and the timespec are valid and live across the call; a null
    // signal mask leaves it alone.
    let ready = unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            fds.len() as libc::nfds_t,
            timeout_pointer,
            std::ptr::null(),
        )
    };
    match usize::try_from(ready) {
        Ok(ready) => Ok(Some(ready)),
        Err(_) => {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                for fd in fds {
                    fd.revents = 0; // untouched by an interrupted call
                }
                return Ok(None);
            }
            Err(error)
        }
    }
}

/// A set of descriptors to wait for, epoll(7). The cost of a wait depends on how many are ready, not on
/// how many there are.
pub(crate) fn epoll_fd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers involved.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// Adds a descriptor for reading; `key` comes back with its events. `edge`: each time it becomes
/// readable counts once, not for as long as it is.
pub(crate) fn epoll_add(
    epoll: BorrowedFd<'_>,
    fd: libc::c_int,
    key: usize,
    edge: bool,
) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: (libc::EPOLLIN | if edge { libc::EPOLLET } else { 0 }).cast_unsigned(),
        u64: key as u64,
    };
    // SAFETY: the event is valid and live across the call.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) })
}

/// Removes a descriptor. The kernel removes one that is closed by itself.
pub(crate) fn epoll_remove(epoll: BorrowedFd<'_>, fd: libc::c_int) {
    // SAFETY: a null event is allowed for this operation (since Linux 2.6.9).
    unsafe {
        libc::epoll_ctl(
            epoll.as_raw_fd(),
            libc::EPOLL_CTL_DEL,
            fd,
            std::ptr::null_mut(),
        )
    };
}

/// epoll_pwait2(2) with a timeout in ns (`None`: none) and the signal mask as it is. Returns how many
/// of `events` were filled in, 0 after the timeout; `None`: a signal came. Before Linux 5.11 it is
/// two calls.
pub(crate) fn epoll_wait(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout_ns: Option<u64>,
) -> io::Result<Option<usize>> {
    let timeout = timeout_ns.map(timespec);
    let timeout_pointer = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    let room = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the array, its length and the timespec are valid and live across the call; a null
    // signal mask leaves it alone.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            room,
            timeout_pointer,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    if let Ok(ready) = usize::try_from(ready) {
        return Ok(Some(ready));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINTR) => Ok(None),
        Some(libc::ENOSYS) => epoll_wait_in_two(epoll, events, timeout_ns),
        _ => Err(error),
    }
}

/// The same where the kernel has no epoll_pwait2(2): epoll_wait(2) counts milliseconds only.
fn epoll_wait_in_two(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout_ns: Option<u64>,
) -> io::Result<Option<usize>> {
    let mut whole = [libc::pollfd {
        fd: epoll.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    if poll(&mut whole, timeout_ns)?.is_none() {
        return Ok(None);
    }
    let room = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the array and its length are valid across the call.
    let ready = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), room, 0) };
    usize::try_from(ready)
        .map(Some)
        .map_err(|_| io::Error::last_os_error())
}

/// By how much the kernel may lengthen a timeout of the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeoutSlack {
    /// A real-time thread: not at all.
    None,
    /// By one part in this many, and at least 1 ns (after PR_SET_TIMERSLACK).
    OnePartIn(u64),
}

/// Sets the calling thread's timer slack to its minimum, 1 ns. Returns the slack that timeouts still
/// have.
pub(crate) fn sharpen_timers() -> TimeoutSlack {
    // SAFETY: PR_SET_TIMERSLACK takes one integer. It cannot fail with a positive one.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
    // SAFETY: no pointers; 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    if policy == libc::SCHED_FIFO || policy == libc::SCHED_RR || policy == libc::SCHED_DEADLINE {
        return TimeoutSlack::None;
    }
    // SAFETY: no pointers; 0 is the calling thread.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    TimeoutSlack::OnePartIn(if nice > 0 { 200 } else { 1000 })
}

pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

pub(crate) fn c_name(name: &str) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn length_of<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}
