//! Addresses of nanomsg sockets.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// Where subscribers connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Ipc(PathBuf),
    /// A port of loopback.
    Tcp(SocketAddr),
}

/// The text is no address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{0}' is not ipc:///PATH or tcp://127.0.0.1:PORT")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("ipc://") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Self::Ipc(path))
            } else {
                Err(wrong())
            };
        }
        let address = text.strip_prefix("tcp://").ok_or_else(wrong)?;
        let address: SocketAddr = address.parse().map_err(|_| wrong())?;
        // Digests are not encrypted, and whoever subscribes gets them.
        if address.ip().is_loopback() {
            Ok(Self::Tcp(address))
        } else {
            Err(wrong())
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipc(path) => write!(f, "ipc://{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            "ipc:///tmp/bmv2-0-notifications.ipc",
            "tcp://127.0.0.1:5555",
        ] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
        for text in [
            "/tmp/a",
            "ipc://a",
            "tcp://10.0.0.1:5",
            "tcp://localhost",
            "inproc://a",
        ] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains("ipc:///PATH or tcp://"), "{error}");
        }
    }
}
