//! Connections to the control services: their limits, their transport, and their clients.
//!
//! One port serves plain connections and TLS, which differ in their first byte. Everything that a
//! client can use before it has identified itself has a limit: the number of connections in all, of an
//! address and of strangers, and the time to establish one.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::refusals::{Refusal, Refusals};
use crate::shared::ServerLimits;
use crate::standing::{self, Place, Standing, canonical};

/// Longest time for a client to send its first byte and to complete the TLS handshake.
const ESTABLISH_LIMIT: Duration = Duration::from_secs(10);
/// Pause after `accept` has failed, usually because no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The first byte of a TLS record with a handshake in it (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// The transports that connections may use, and the users who are holders.
#[derive(Clone, Default)]
pub(crate) struct Transports {
    /// `None`: no TLS.
    pub(crate) tls: Option<TlsAcceptor>,
    /// Whether plain connections are refused.
    pub(crate) only_tls: bool,
    /// The users whose processes on this machine are holders; `None`: all users.
    pub(crate) users: Option<Vec<u32>>,
}

/// The client of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Whether the traffic is safe from others: it uses TLS, or stays on this machine.
    pub(crate) is_private: bool,
    /// The standing that the connection alone proves. `None`: calls need a token.
    pub(crate) standing: Option<Standing>,
}

/// An established connection.
pub(crate) struct Connection {
    transport: Transport,
    peer: Peer,
    _place: Entrance,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The number of connections by address of their client.
#[derive(Debug, Default)]
struct Addresses(Mutex<HashMap<IpAddr, usize>>);

/// The place of a connection in the count of its address, which it leaves when dropped.
struct OfAddress {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    fn is_full(&self, address: IpAddr, most: usize) -> bool {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&address).is_some_and(|count| *count >= most)
    }

    /// Counts a connection; `None` if the address has `most` already.
    fn enter(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<OfAddress> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(OfAddress {
            addresses: Arc::clone(self),
            address,
        })
    }
}

impl Drop for OfAddress {
    fn drop(&mut self) {
        let counts = self.addresses.0.lock();
        let mut counts = counts.unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// The shares of the limits that a connection holds until it ends.
struct Entrance {
    _place: OwnedSemaphorePermit,
    /// `None`: the connection is a holder's.
    _of_address: Option<OfAddress>,
}

/// The limits of connections. Connections of holders have a limit of their own, so that other clients
/// cannot use it up.
struct Gate {
    transports: Transports,
    refusals: Arc<Refusals>,
    holders: Arc<Semaphore>,
    others: Arc<Semaphore>,
    addresses: Arc<Addresses>,
    of_address_most: usize,
}

/// Accepts connections until the receiver of `established` is dropped. Connections are looked at one
/// after another; the others wait in the kernel.
pub(crate) async fn accept(
    listener: TcpListener,
    transports: Transports,
    limits: &ServerLimits,
    refusals: Arc<Refusals>,
    established: mpsc::Sender<io::Result<Connection>>,
) {
    let places = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
    let gate = Arc::new(Gate {
        transports,
        refusals,
        holders: places(limits.connections),
        others: places(limits.stranger_connections),
        addresses: Arc::default(),
        of_address_most: limits.stranger_connections_per_address,
    });
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = established.closed() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // The connection is gone, or the process has no descriptors left.
                tracing::debug!(%error, "no connection accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(arrival) = gate.look_at(stream, address) else {
            continue;
        };
        let (gate, established) = (Arc::clone(&gate), established.clone());
        tokio::spawn(async move {
            let establish = gate.establish(arrival);
            match tokio::time::timeout(ESTABLISH_LIMIT, establish).await {
                Ok(Some(connection)) => drop(established.send(Ok(connection)).await),
                Ok(None) => {}
                Err(_) => gate.refusals.count(Refusal::ConnectionSlow),
            }
        });
    }
}

/// An accepted connection that is not established yet.
struct Arrival {
    stream: TcpStream,
    address: SocketAddr,
    is_here: bool,
    standing: Option<Standing>,
    entrance: Entrance,
}

impl Gate {
    /// Finds out where a client is, and counts its connection.
    fn look_at(&self, stream: TcpStream, address: SocketAddr) -> Option<Arrival> {
        let server = stream.local_addr().ok()?;
        let (client, own) = (canonical(address).ip(), canonical(server).ip());
        let is_from_outside = !client.is_loopback() && client != own;
        if is_from_outside && self.addresses.is_full(client, self.of_address_most) {
            // The check comes first, so that a client that connects again and again does not delay
            // others.
            self.refusals.count(Refusal::ConnectionsOfAddressFull);
            return None;
        }
        let users = self.transports.users.as_deref();
        let place = standing::look_at(address, server, users);
        if place == Place::Gone {
            return None;
        }
        let standing = standing::standing_of(place, users);
        Some(Arrival {
            stream,
            address,
            is_here: place != Place::Elsewhere,
            standing,
            entrance: self.enter(address, standing)?,
        })
    }

    fn enter(&self, address: SocketAddr, standing: Option<Standing>) -> Option<Entrance> {
        let is_holder = standing == Some(Standing::Holder);
        let (places, full) = if is_holder {
            (&self.holders, Refusal::ConnectionsFull)
        } else {
            (&self.others, Refusal::ConnectionsOfStrangersFull)
        };
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            self.refusals.count(full);
            return None;
        };
        let of_address = if is_holder {
            None
        } else {
            let ip = canonical(address).ip();
            let entered = self.addresses.enter(ip, self.of_address_most);
            if entered.is_none() {
                self.refusals.count(Refusal::ConnectionsOfAddressFull);
            }
            Some(entered?)
        };
        Some(Entrance {
            _place: place,
            _of_address: of_address,
        })
    }

    async fn establish(&self, arrival: Arrival) -> Option<Connection> {
        let Arrival {
            stream,
            address,
            is_here,
            mut standing,
            mut entrance,
        } = arrival;
        // Without this, each small answer may wait for the client's acknowledgement.
        stream.set_nodelay(true).ok()?;
        let mut first = [0];
        if stream.peek(&mut first).await.ok()? == 0 {
            return None;
        }
        let with_tls = first[0] == TLS_HANDSHAKE && self.transports.tls.is_some();
        if !with_tls && self.transports.only_tls {
            self.refusals.count(Refusal::NoTls);
            return None;
        }
        let transport = match &self.transports.tls {
            Some(acceptor) if with_tls => match acceptor.accept(stream).await {
                Ok(stream) => {
                    let (_, session) = stream.get_ref();
                    if session.peer_certificates().is_some() && standing != Some(Standing::Holder) {
                        standing = Some(Standing::Holder);
                        entrance = self.enter(address, standing)?;
                    }
                    Transport::Tls(Box::new(stream))
                }
                Err(error) => {
                    tracing::info!(client = %address, %error, "no TLS connection");
                    self.refusals.count(Refusal::Handshake);
                    return None;
                }
            },
            _ => Transport::Plain(stream),
        };
        Some(Connection {
            transport,
            peer: Peer {
                is_private: with_tls || is_here,
                standing,
            },
            _place: entrance,
        })
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
