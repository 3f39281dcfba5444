//! The standing of a client: a process of this machine, or a client with credentials.

use std::net::{IpAddr, SocketAddr};

use tonic::Status;

use crate::sock_diag::{self, Found};

/// The trust in a client; the greater value is the higher trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// A process on this machine of another user. It may control the switch while no holder does.
    Stranger,
    /// A process on this machine of the switch's own user, of root, or of a user that the switch is told to
    /// trust, or a client with a certificate or the token of the switch.
    Holder,
}

/// The refusal for a stranger beside holders. `what` is what only they may do.
pub(crate) fn refused_beside_holders(what: &str) -> Status {
    Status::permission_denied(format!(
        "this switch has controllers of its own user or with credentials, and only they may {what}; \
         become one of them (its client certificate or token)"
    ))
}

/// The client of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) standing: Standing,
    /// The address of its machine.
    pub(crate) address: IpAddr,
}

/// The place of a client, from its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The switch's network namespace: a process of this user.
    Here(u32),
    /// The switch's network namespace. The client has closed its socket, so its user is unknown.
    Gone,
    /// Another machine or network namespace.
    Elsewhere,
}

/// Finds out where the client of a connection is; `users` as for [`standing_of`].
pub(crate) fn look_at(client: SocketAddr, server: SocketAddr, users: Option<&[u32]>) -> Place {
    if users.is_some() {
        return place_of(client, server);
    }
    let (client, server) = (canonical(client).ip(), canonical(server).ip());
    if client.is_loopback() || client == server {
        Place::Here(0)
    } else {
        Place::Elsewhere
    }
}

/// The standing of a client without a certificate or token. `users`: those whose processes here are
/// holders; `None`: all.
pub(crate) fn standing_of(place: Place, users: Option<&[u32]>) -> Option<Standing> {
    let Place::Here(user) = place else {
        return None;
    };
    Some(match users.is_none_or(|users| users.contains(&user)) {
        true => Standing::Holder,
        false => Standing::Stranger,
    })
}

/// The standing of the client of a connection, by its place alone; `None`: it is not on this machine, or
/// has closed its socket. `users` are those whose processes on this machine are holders; `None`: all.
pub fn standing_here(
    client: SocketAddr,
    server: SocketAddr,
    users: Option<&[u32]>,
) -> Option<Standing> {
    standing_of(look_at(client, server, users), users)
}

/// Whether the kernel reports the owners of sockets.
pub fn kernel_tells_users() -> bool {
    // No process has such a socket.
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    sock_diag::find(nowhere, nowhere).is_ok()
}

/// Finds out where the client of a connection is. A client in this network namespace has a socket with
/// the two ends of the connection exchanged; other clients have none.
pub(crate) fn place_of(client: SocketAddr, server: SocketAddr) -> Place {
    let (client, server) = (canonical(client), canonical(server));
    match sock_diag::find(client, server) {
        Ok(Found::User(user)) => Place::Here(user),
        Ok(Found::Nobody) => Place::Gone,
        Ok(Found::No) | Err(_) if client.ip().is_loopback() || client.ip() == server.ip() => {
            Place::Gone
        }
        Ok(Found::No) | Err(_) => Place::Elsewhere,
    }
}

/// The address, in IPv4 form if it is an IPv4-mapped IPv6 address.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_client_of_this_machine_is_found_by_its_socket() {
        if !kernel_tells_users() {
            return; // the kernel does not report owners here
        }
        for listen in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(listen) else {
                continue; // a machine without IPv6
            };
            let port = listener.local_addr().expect("bound").port();
            let client = TcpStream::connect(("127.0.0.1", port)).expect("connects");
            let (served, address) = listener.accept().expect("accepts");
            let server = served.local_addr().expect("connected");
            let place = place_of(address, server);
            assert!(matches!(place, Place::Here(_)), "{listen}: {place:?}");
            // The kernel shows root as owner of a closed socket.
            drop(client);
            assert_eq!(place_of(address, server), Place::Gone, "{listen}");
        }
        // gRPC's clients connect to an IPv4 address by an IPv6 socket.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("bound").port();
        if let Ok(client) = TcpStream::connect(("::ffff:127.0.0.1", port)) {
            let (served, address) = listener.accept().expect("accepts");
            let place = place_of(address, served.local_addr().expect("connected"));
            assert!(matches!(place, Place::Here(_)), "{place:?}");
            drop(client);
        }
    }

    #[test]
    fn an_address_without_a_socket_here_is_elsewhere() {
        let client: SocketAddr = "192.0.2.7:50000".parse().expect("an address");
        let server: SocketAddr = "192.0.2.1:9559".parse().expect("an address");
        assert_eq!(place_of(client, server), Place::Elsewhere);
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:1".parse().expect("an address");
        assert_eq!(place_of(mapped, server), Place::Gone);
    }
}
