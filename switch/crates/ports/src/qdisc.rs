//! The queueing discipline of an interface, which decides whether the kernel can send frames at given
//! times.
//!
//! `fq` sends a frame at its given time (`SO_TXTIME`), or at once if that has passed. Other disciplines
//! send it at once, without an error; `etf` refuses late frames, and times of this clock. So a port asks
//! the kernel by rtnetlink(7) for its discipline before it relies on it.

use std::io;
use std::os::fd::AsFd;

use crate::sys;

/// The discipline that sends frames at their given times.
const TIMED: &str = "fq";
/// Disciplines that send at a rate, mostly less than the interface's.
const WITH_RATE: [&str; 4] = ["cake", "hfsc", "htb", "tbf"];

const HEADER_BYTES: usize = 16; // nlmsghdr
const TCMSG_BYTES: usize = 20;
const ATTRIBUTE_BYTES: usize = 4; // nlattr
const ALIGNMENT: usize = 4;
const TC_ROOT: u32 = 0xFFFF_FFFF;
const TCA_KIND: u16 = 1;
/// Answers come in messages of at most this (`NLMSG_GOODSIZE` is 8 KiB).
const ANSWER_BYTES: usize = 32_768;

/// Name of the root discipline of the interface with this index; `None`: there is none (`noqueue`).
pub(crate) fn root(interface_index: i32) -> io::Result<Option<String>> {
    let socket = sys::netlink_route_socket()?;
    let mut request = Vec::with_capacity(HEADER_BYTES + TCMSG_BYTES);
    request.extend(((HEADER_BYTES + TCMSG_BYTES) as u32).to_ne_bytes());
    request.extend(libc::RTM_GETQDISC.to_ne_bytes());
    request.extend(((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    request.extend([0; 8]); // sequence number, port id
    request.extend([0; 4]); // family and padding
    request.extend(interface_index.to_ne_bytes());
    request.extend([0; 12]); // handle, parent, info
    sys::send(socket.as_fd(), &request)?;
    let mut answer = vec![0; ANSWER_BYTES];
    loop {
        let bytes = sys::receive(socket.as_fd(), &mut answer)?;
        let mut messages = answer.get(..bytes).unwrap_or_default();
        while let Some((kind, body, rest)) = message(messages) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(None),
                libc::NLMSG_ERROR => return Err(error_of(body)),
                _ if index_of(body) == Some(interface_index) && is_root(body) => {
                    return Ok(kind_of(body));
                }
                _ => messages = rest,
            }
        }
        if !messages.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Whether a discipline sends frames at their given times.
pub(crate) fn is_timed(name: &str) -> bool {
    name == TIMED
}

/// Whether a discipline sends at a rate of its own.
pub(crate) fn has_rate(name: &str) -> bool {
    WITH_RATE.contains(&name)
}

/// The first message: its type and body, and the bytes after it.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER_BYTES..length)?;
    let next = length.next_multiple_of(ALIGNMENT).min(bytes.len());
    Some((kind, body, bytes.get(next..)?))
}

/// The kernel's reason for refusing to answer.
fn error_of(body: &[u8]) -> io::Error {
    match body.first_chunk() {
        Some(errno) => io::Error::from_raw_os_error(-i32::from_ne_bytes(*errno)),
        None => io::ErrorKind::InvalidData.into(),
    }
}

fn index_of(tcmsg: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(*tcmsg.get(4..)?.first_chunk()?))
}

fn is_root(tcmsg: &[u8]) -> bool {
    let parent = tcmsg.get(12..).and_then(|rest| rest.first_chunk());
    parent.is_some_and(|parent| u32::from_ne_bytes(*parent) == TC_ROOT)
}

/// The discipline's name, from the attributes.
fn kind_of(tcmsg: &[u8]) -> Option<String> {
    let mut attributes = tcmsg.get(TCMSG_BYTES..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let value = attributes.get(ATTRIBUTE_BYTES..length)?;
        if kind == TCA_KIND {
            let name = value.split(|byte| *byte == 0).next()?;
            return Some(String::from_utf8_lossy(name).into_owned());
        }
        let next = length.next_multiple_of(ALIGNMENT).min(attributes.len());
        attributes = attributes.get(next..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tcmsg with its attributes, in its nlmsghdr.
    fn answer(interface_index: i32, parent: u32, name: &[u8]) -> Vec<u8> {
        let mut body = [0; 4].to_vec();
        body.extend(interface_index.to_ne_bytes());
        body.extend([0; 4]);
        body.extend(parent.to_ne_bytes());
        body.extend([0; 4]);
        body.extend(((ATTRIBUTE_BYTES + name.len()) as u16).to_ne_bytes());
        body.extend(TCA_KIND.to_ne_bytes());
        body.extend(name);
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(36u16.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes
    }

    #[test]
    fn names_are_found_behind_others() {
        let bytes = [answer(1, 7, b"mq\0"), answer(3, TC_ROOT, b"fq\0")].concat();
        let (_, first, rest) = message(&bytes).unwrap();
        assert!(!is_root(first));
        let (_, second, rest) = message(rest).unwrap();
        assert_eq!((index_of(second), is_root(second)), (Some(3), true));
        assert_eq!(kind_of(second).as_deref(), Some("fq"));
        assert!(message(rest).is_none());
        assert!(is_timed("fq") && !is_timed("noqueue"));
        assert!(has_rate("htb") && !has_rate("fq"));
    }

    #[test]
    fn cut_answers_hold_nothing() {
        let whole = answer(3, TC_ROOT, b"fq\0");
        for end in 0..whole.len() - 1 {
            assert!(message(&whole[..end]).is_none(), "{end}");
        }
        let (_, body, _) = message(&whole).unwrap();
        for end in 0..body.len() {
            assert_eq!(kind_of(&body[..end]), None, "{end}");
        }
    }

    #[test]
    fn the_loopback_interface_has_none_that_is_timed() {
        let found = root(1).expect("the kernel answers");
        assert!(!found.as_deref().is_some_and(is_timed), "{found:?}");
    }
}
