//! System calls, each wrapped once, with owned descriptors and `io::Result`.

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

/// State of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceState {
    pub(crate) up: bool,
    pub(crate) running: bool,
}

/// A packet socket that receives nothing until it is bound to a protocol.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    raw_socket(AddressFamily::PACKET, SocketFlags::NONBLOCK)
}

fn raw_socket(family: AddressFamily, flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(
        family,
        SocketType::RAW,
        flags,
        None,
    )?)
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
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: integers without padding.
unsafe impl Plain for libc::xdp_desc {}

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

/// An AF_XDP socket without memory and rings.
pub(crate) fn xdp_socket() -> io::Result<OwnedFd> {
    raw_socket(AddressFamily::XDP, SocketFlags::empty())
}

/// Binds a packet socket to an interface; `protocol` 0 receives nothing.
pub(crate) fn bind_packet(fd: BorrowedFd<'_>, index: i32, protocol: u16) -> io::Result<()> {
    // SAFETY: all-zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    // SAFETY: `address` is as long as we say and lives across the call, which only reads it.
    check(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            length_of::<libc::sockaddr_ll>(),
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
    // more than that. SIOCETHTOOL accesses the memory it points to, of the length given by its command.
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

/// The number of receive queues that an interface uses (ethtool's channels).
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

/// A socket for questions about queueing disciplines (NETLINK_ROUTE, which is protocol 0).
pub(crate) fn netlink_route_socket() -> io::Result<OwnedFd> {
    raw_socket(AddressFamily::NETLINK, SocketFlags::empty())
}

/// Waits for a message. Returns its length in bytes.
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let (bytes, _) = rustix::net::recv(fd, into, RecvFlags::empty())?;
    Ok(bytes)
}

/// Takes a datagram without blocking. Returns its length in bytes, which may be more than `into` has.
pub(crate) fn receive_whole(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let (_, bytes) = rustix::net::recv(fd, into, flags)?;
    Ok(bytes)
}

/// Sends one datagram without blocking.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> rustix::io::Result<usize> {
    rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

/// An eventfd, non-blocking.
pub(crate) fn event_fd() -> io::Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    Ok(rustix::event::eventfd(0, flags)?)
}

/// Adds one to an eventfd. Async-signal-safe: one write(2) that does not touch errno.
pub(crate) fn event_signal(fd: BorrowedFd<'_>) {
    // A full counter (EAGAIN) is no error, since the eventfd is readable then, too.
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Reads the eight bytes of an eventfd or timerfd, to make it unreadable again.
pub(crate) fn event_clear(fd: &OwnedFd) {
    // ECANCELED: the clock of a timerfd was stepped. The descriptor is unreadable again then, too.
    let _ = rustix::io::read(fd, &mut [0u8; 8]);
}

/// A descriptor that becomes readable when CLOCK_REALTIME is stepped (timerfd_create(2),
/// TFD_TIMER_CANCEL_ON_SET).
pub(crate) fn clock_step_fd() -> io::Result<OwnedFd> {
    let fd = timer_fd(TimerfdClockId::Realtime)?;
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    let never = Timespec {
        tv_sec: i64::from(i32::MAX) * 4, // the year 2242
        tv_nsec: 0,
    };
    set_timer(&fd, flags, never)?;
    Ok(fd)
}

/// A timer on CLOCK_MONOTONIC, the clock of the switch. Readable once it has expired.
pub(crate) fn alarm_fd() -> io::Result<OwnedFd> {
    timer_fd(TimerfdClockId::Monotonic)
}

/// Sets the timer to expire once, at `at_ns` (above 0), without slack.
pub(crate) fn set_alarm(fd: &OwnedFd, at_ns: u64) -> io::Result<()> {
    set_timer(fd, TimerfdTimerFlags::ABSTIME, timespec(at_ns))
}

fn timer_fd(clock: TimerfdClockId) -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    Ok(rustix::time::timerfd_create(clock, flags)?)
}

fn set_timer(fd: &OwnedFd, flags: TimerfdTimerFlags, at: Timespec) -> io::Result<()> {
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: at,
    };
    rustix::time::timerfd_settime(fd, flags, &once)?;
    Ok(())
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    }
}

/// ppoll(2) with a timeout in ns (`None`: none) and an unchanged signal mask. Returns the number of
/// ready descriptors, 0 after the timeout; `None`: a signal came.
pub(crate) fn poll(fds: &mut [PollFd<'_>], timeout_ns: Option<u64>) -> io::Result<Option<usize>> {
    let timeout = timeout_ns.map(timespec);
    unless_interrupted(rustix::event::poll(fds, timeout.as_ref()))
}

/// Events of an epoll set, known by numbers.
pub(crate) struct Events(pub(crate) Vec<epoll::Event>);

// SAFETY: an event is not `Send` because its data may be a pointer; here it is a number.
unsafe impl Send for Events {}

/// epoll_pwait2(2) with a timeout in ns (`None`: none) and an unchanged signal mask. Replaces `events`,
/// up to its capacity, and returns their number, 0 after the timeout; `None`: a signal came. Before
/// Linux 5.11 it is two calls.
pub(crate) fn epoll_wait(
    epoll: &OwnedFd,
    Events(events): &mut Events,
    timeout_ns: Option<u64>,
) -> io::Result<Option<usize>> {
    let timeout = timeout_ns.map(timespec);
    events.clear();
    match epoll::wait(epoll, spare_capacity(events), timeout.as_ref()) {
        Err(Errno::NOSYS) => epoll_wait_in_two(epoll, events, timeout_ns),
        waited => unless_interrupted(waited),
    }
}

/// The same where the kernel has no epoll_pwait2(2): epoll_wait(2) counts milliseconds only.
fn epoll_wait_in_two(
    epoll: &OwnedFd,
    events: &mut Vec<epoll::Event>,
    timeout_ns: Option<u64>,
) -> io::Result<Option<usize>> {
    if poll(&mut [PollFd::new(epoll, PollFlags::IN)], timeout_ns)?.is_none() {
        return Ok(None);
    }
    let room = libc::c_int::try_from(events.capacity()).unwrap_or(libc::c_int::MAX);
    let filled_in = events.as_mut_ptr().cast();
    // SAFETY: `events` has room for that many of the kernel's `struct epoll_event`, which
    // `epoll::Event` is.
    let ready = unsafe { libc::epoll_wait(epoll.as_raw_fd(), filled_in, room, 0) };
    let ready = usize::try_from(ready).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled these in.
    unsafe { events.set_len(ready) };
    Ok(Some(ready))
}

/// `None`: a signal came.
fn unless_interrupted(ready: Result<usize, Errno>) -> io::Result<Option<usize>> {
    match ready {
        Ok(ready) => Ok(Some(ready)),
        Err(Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The time by which the kernel may lengthen a timeout of the calling thread.
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
    // It cannot fail with a positive one.
    let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
    // SAFETY: no pointers; 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    if policy == libc::SCHED_FIFO || policy == libc::SCHED_RR || policy == libc::SCHED_DEADLINE {
        return TimeoutSlack::None;
    }
    let nice = rustix::process::getpriority_process(None).unwrap_or(0);
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
