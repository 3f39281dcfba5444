//! The owner of a TCP socket of this network namespace, from the kernel (sock_diag(7)).

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// Types of netlink messages (netlink(7), sock_diag(7)).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
/// The message is a request.
const NLM_F_REQUEST: u16 = 1;
const IPPROTO_TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// A state of a connection (tcp(7)): both ends may send.
const ESTABLISHED: u8 = 1;
/// Bytes of the header before the answer, and of the part of the answer that is read.
const HEADER_BYTES: usize = 16;
const ANSWER_BYTES: usize = 72;

/// The owner of a socket, according to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A process of this user.
    User(u32),
    /// None: the process has closed the socket. The kernel then shows root as its user.
    Nobody,
    /// There is no such socket.
    No,
}

/// Looks for the connected socket with these ends. The time that this takes does not depend on the
/// number of sockets.
///
/// # Errors
/// The kernel does not answer such requests.
pub(crate) fn find(local: SocketAddr, remote: SocketAddr) -> Result<Found, Errno> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    // A message without an address goes to the kernel, which answers before the call returns.
    send(&socket, &request(local, remote), SendFlags::empty())?;
    let mut answer = [0; HEADER_BYTES + ANSWER_BYTES];
    let (_, length) = recv(
        &socket,
        &mut answer[..],
        RecvFlags::DONTWAIT | RecvFlags::TRUNC,
    )?;
    parse(answer.get(..length).unwrap_or(&answer), local, remote)
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = match local {
        SocketAddr::V4(_) => AF_INET,
        SocketAddr::V6(_) => AF_INET6,
    };
    let mut body = vec![family, IPPROTO_TCP, 0, 0];
    body.extend(u32::MAX.to_ne_bytes()); // all states
    body.extend(id(local, remote));
    body.extend([0; 4]); // any interface
    body.extend([0xff; 8]); // no cookie
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or_default();
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]); // sequence number and port
    message.extend(body);
    message
}

/// The beginning of `struct inet_diag_sockid`: ports and addresses in network byte order.
fn id(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let mut id = Vec::with_capacity(36);
    id.extend(local.port().to_be_bytes());
    id.extend(remote.port().to_be_bytes());
    for end in [local, remote] {
        let mut address = [0; 16];
        match end.ip() {
            IpAddr::V4(ip) => address[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => address = ip.octets(),
        }
        id.extend(address);
    }
    id
}

/// The IPv4-mapped IPv6 form of an IPv4 address, which an IPv6 socket has.
fn mapped(end: SocketAddr) -> SocketAddr {
    match end.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), end.port()),
        IpAddr::V6(_) => end,
    }
}

/// The result in an answer: an error, or `struct inet_diag_msg`.
fn parse(answer: &[u8], local: SocketAddr, remote: SocketAddr) -> Result<Found, Errno> {
    let u16_at = |at: usize| {
        let bytes = answer.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_ne_bytes(bytes))
    };
    let u32_at = |at: usize| {
        let bytes = answer.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes))
    };
    match u16_at(4).ok_or(Errno::BADMSG)? {
        NLMSG_ERROR => {
            let code = u32_at(HEADER_BYTES).ok_or(Errno::BADMSG)?.cast_signed();
            match Errno::from_raw_os_error(code.saturating_neg()) {
                Errno::NOENT => Ok(Found::No),
                error => Err(error),
            }
        }
        SOCK_DIAG_BY_FAMILY => {
            let state = answer.get(HEADER_BYTES + 1).copied();
            let ends = answer.get(HEADER_BYTES + 4..HEADER_BYTES + 40);
            // An IPv6 socket may have IPv4 ends. The kernel may also find a listening socket.
            let as_asked = ends == Some(&id(local, remote));
            if !as_asked && ends != Some(&id(mapped(local), mapped(remote))) {
                return Ok(Found::No);
            }
            let user = u32_at(HEADER_BYTES + 64).ok_or(Errno::BADMSG)?;
            let inode = u32_at(HEADER_BYTES + 68).ok_or(Errno::BADMSG)?;
            Ok(if inode == 0 || state != Some(ESTABLISHED) {
                Found::Nobody
            } else {
                Found::User(user)
            })
        }
        _ => Err(Errno::BADMSG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_nonsense_is_an_error() {
        let local: SocketAddr = "127.0.0.2:50000".parse().expect("an address");
        let remote: SocketAddr = "127.0.0.1:9559".parse().expect("an address");
        let answer = |state: u8, user: u32, inode: u32| {
            let mut answer = vec![0; HEADER_BYTES];
            answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            answer.extend([AF_INET, state, 0, 0]);
            answer.extend(id(local, remote));
            answer.extend([0; 24]);
            answer.extend(user.to_ne_bytes());
            answer.extend(inode.to_ne_bytes());
            answer
        };
        let read = |answer: &[u8]| parse(answer, local, remote);
        assert_eq!(read(&answer(ESTABLISHED, 1000, 7)), Ok(Found::User(1000)));
        // A socket that its process has closed, also half closed.
        assert_eq!(read(&answer(ESTABLISHED, 0, 0)), Ok(Found::Nobody));
        assert_eq!(read(&answer(6, 0, 0)), Ok(Found::Nobody));
        // A socket of IPv6 with these ends.
        let mut of_six = answer(ESTABLISHED, 1000, 7);
        of_six[HEADER_BYTES] = AF_INET6;
        of_six[HEADER_BYTES + 4..HEADER_BYTES + 40]
            .copy_from_slice(&id(mapped(local), mapped(remote)));
        assert_eq!(read(&of_six), Ok(Found::User(1000)));
        // Another socket.
        assert_eq!(
            parse(&answer(ESTABLISHED, 0, 7), remote, local),
            Ok(Found::No)
        );
        let whole = answer(ESTABLISHED, 1000, 7);
        for end in 0..whole.len() {
            let part = read(&whole[..end]);
            assert!(!matches!(part, Ok(Found::User(_))), "{end}");
        }
    }
}
