//! Connections to the control services: their limits, their transport, and their clients.
//!
//! One port serves plain connections and TLS, which differ in their first byte. Everything that a
//! client can use before it has identified itself has a limit: the time to complete the handshakes of TLS
//! and HTTP/2, and the number of connections. Clients on this machine and on others have separate limits. A
//! client on another machine is never refused a connection: it takes the slot of the oldest one there.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::refusals::{Refusal, Refusals};
use crate::shared::ServerLimits;
use crate::standing::{self, Place, Standing, canonical};

/// Longest time for a client to complete the handshake of TLS and to begin that of HTTP/2.
const ESTABLISH_LIMIT: Duration = Duration::from_secs(5);
/// Pause after `accept` has failed, usually because no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The first byte of a TLS record with a handshake in it (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;
/// The first bytes of a client's side of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

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
#[derive(Clone)]
pub(crate) struct Peer {
    /// Whether the traffic is safe from others: it uses TLS, or stays on this machine.
    pub(crate) is_private: bool,
    /// The standing that the connection alone proves. `None`: calls need a token.
    pub(crate) standing: Option<Standing>,
    /// The address of the client's machine.
    pub(crate) address: IpAddr,
    slot: Arc<Mutex<Slot>>,
    holders: Arc<Slots>,
}

impl Peer {
    /// Gives the connection a slot of holders, because a call on it has shown the token. If none is free,
    /// it keeps its slot.
    pub(crate) fn become_holder(&self) {
        let mut slot = locked(&self.slot);
        if !Arc::ptr_eq(&slot.slots, &self.holders)
            && let (Some(of_holder), _) = self.holders.enter(slot.address)
        {
            *slot = of_holder;
        }
    }
}

/// An established connection.
pub(crate) struct Connection {
    transport: Transport,
    /// The rest of [`PREFACE`], which was read before.
    preface: &'static [u8],
    peer: Peer,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A limited number of connections.
struct Slots {
    most: usize,
    full: Refusal,
    /// The limit of one address. If set, a newcomer beyond a limit takes the slot of the oldest
    /// connection; if not, it is refused.
    of_address: Option<(usize, Refusal)>,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// The connections in order of arrival. Dropping the sender ends a connection.
    connections: BTreeMap<u64, (IpAddr, oneshot::Sender<()>)>,
}

/// A connection's share of a limit, which ends when it is dropped.
struct Slot {
    slots: Arc<Slots>,
    number: u64,
    address: IpAddr,
    /// `None`: a newcomer has the slot.
    displaced: Option<oneshot::Receiver<()>>,
}

/// A panic elsewhere leaves the contents consistent: every change is a single step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The addresses that one client can have: with IPv6, those of a network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

impl Slots {
    fn new(most: usize, full: Refusal, of_address: Option<(usize, Refusal)>) -> Arc<Self> {
        Arc::new(Self {
            most,
            full,
            of_address,
            taken: Mutex::default(),
        })
    }

    /// Whether a connection has this very address.
    fn has(&self, address: IpAddr) -> bool {
        let taken = locked(&self.taken);
        taken.connections.values().any(|(of, _)| *of == address)
    }

    /// The slot of a new connection, and the limit that was reached if so.
    fn enter(self: &Arc<Self>, address: IpAddr) -> (Option<Slot>, Option<Refusal>) {
        let mut taken = locked(&self.taken);
        let all = taken.connections.iter();
        let own = all.filter(|(_, (of, _))| network(*of) == network(address));
        let own: Vec<u64> = own.map(|(number, _)| *number).collect();
        let reached = match self.of_address {
            Some((most, full)) if own.len() >= most => Some((full, own.first().copied())),
            _ if taken.connections.len() >= self.most => {
                Some((self.full, taken.connections.keys().next().copied()))
            }
            _ => None,
        };
        if let Some((refusal, oldest)) = reached {
            let Some(oldest) = oldest.filter(|_| self.of_address.is_some()) else {
                return (None, Some(refusal));
            };
            taken.connections.remove(&oldest);
        }
        let number = taken.next;
        taken.next += 1;
        let (sender, displaced) = oneshot::channel();
        taken.connections.insert(number, (address, sender));
        let slot = Slot {
            slots: Arc::clone(self),
            number,
            address,
            displaced: Some(displaced),
        };
        (Some(slot), reached.map(|(refusal, _)| refusal))
    }
}

impl Slot {
    /// Ready once a newcomer has the slot.
    fn poll_displaced(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(displaced) = &mut self.displaced {
            // Nothing is ever sent: it is ready when the sender is gone.
            let _ = ready!(Pin::new(displaced).poll(cx));
            self.displaced = None;
        }
        Poll::Ready(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        locked(&self.slots.taken).connections.remove(&self.number);
    }
}

/// Finds out where a client is, as [`standing::look_at`] does.
type LookAt = fn(SocketAddr, SocketAddr, Option<&[u32]>) -> Place;

/// The limits of connections.
pub(crate) struct Gate {
    transports: Transports,
    refusals: Arc<Refusals>,
    look_at: LookAt,
    holders: Arc<Slots>,
    /// Clients on this machine of other users.
    strangers: Arc<Slots>,
    /// Clients on other machines before their handshake ends.
    handshakes: Arc<Slots>,
    /// Clients on other machines without a certificate, until a call shows the token.
    remote: Arc<Slots>,
}

/// An accepted connection that is not established yet.
struct Arrival {
    stream: TcpStream,
    is_here: bool,
    standing: Option<Standing>,
    slot: Slot,
}

/// Accepts connections until the receiver of `established` is dropped. Connections are looked at one
/// after another; the others wait in the kernel.
pub(crate) async fn accept(
    listener: TcpListener,
    gate: Gate,
    established: mpsc::Sender<io::Result<Connection>>,
) {
    let gate = Arc::new(gate);
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
            if let Some(connection) = gate.admit(arrival).await {
                let _ = established.send(Ok(connection)).await;
            }
        });
    }
}

impl Gate {
    pub(crate) fn new(
        transports: Transports,
        limits: &ServerLimits,
        refusals: Arc<Refusals>,
    ) -> Self {
        Self {
            transports,
            refusals,
            look_at: standing::look_at,
            holders: Slots::new(limits.connections, Refusal::ConnectionsFull, None),
            strangers: Slots::new(
                limits.stranger_connections,
                Refusal::ConnectionsOfStrangersFull,
                None,
            ),
            handshakes: Slots::new(
                limits.handshakes,
                Refusal::HandshakesFull,
                Some((
                    limits.handshakes_per_address,
                    Refusal::HandshakesOfAddressFull,
                )),
            ),
            remote: Slots::new(
                limits.remote_connections,
                Refusal::RemoteConnectionsFull,
                Some((
                    limits.remote_connections_per_address,
                    Refusal::ConnectionsOfAddressFull,
                )),
            ),
        }
    }

    /// Finds out where a client is, and counts its connection.
    fn look_at(&self, stream: TcpStream, address: SocketAddr) -> Option<Arrival> {
        let server = stream.local_addr().ok()?;
        let ip = canonical(address).ip();
        let users = self.transports.users.as_deref();
        let place = if self.handshakes.has(ip) {
            // Known to be elsewhere. So a client that connects again and again does not take the time of a
            // question to the kernel each time.
            Place::Elsewhere
        } else {
            (self.look_at)(address, server, users)
        };
        if place == Place::Gone {
            return None;
        }
        let standing = standing::standing_of(place, users);
        Some(Arrival {
            stream,
            is_here: place != Place::Elsewhere,
            standing,
            slot: self.enter(self.slots(standing, &self.handshakes), ip)?,
        })
    }

    /// The slots for clients of a standing; `elsewhere` are those without one.
    fn slots<'a>(
        &'a self,
        standing: Option<Standing>,
        elsewhere: &'a Arc<Slots>,
    ) -> &'a Arc<Slots> {
        match standing {
            Some(Standing::Holder) => &self.holders,
            Some(Standing::Stranger) => &self.strangers,
            None => elsewhere,
        }
    }

    /// A slot, unless the client is refused. Counts the refusal of the client, or of the one that makes
    /// room for it.
    fn enter(&self, slots: &Arc<Slots>, address: IpAddr) -> Option<Slot> {
        let (slot, reached) = slots.enter(address);
        if let Some(refusal) = reached {
            self.refusals.count(refusal);
        }
        slot
    }

    /// Waits for a client's handshakes.
    async fn admit(&self, arrival: Arrival) -> Option<Connection> {
        let Arrival {
            stream,
            is_here,
            standing,
            mut slot,
        } = arrival;
        let establish = self.establish(stream, slot.address);
        let established = tokio::select! {
            established = tokio::time::timeout(ESTABLISH_LIMIT, establish) => established,
            () = std::future::poll_fn(|cx| slot.poll_displaced(cx)) => return None,
        };
        let Ok(established) = established else {
            self.refusals.count(Refusal::ConnectionSlow);
            return None;
        };
        let transport = established?;
        let (with_tls, has_certificate) = match &transport {
            Transport::Plain(_) => (false, false),
            Transport::Tls(stream) => (true, stream.get_ref().1.peer_certificates().is_some()),
        };
        let standing = if has_certificate {
            Some(Standing::Holder)
        } else {
            standing
        };
        let slots = self.slots(standing, &self.remote);
        if !Arc::ptr_eq(&slot.slots, slots) {
            slot = self.enter(slots, slot.address)?;
        }
        Some(Connection {
            transport,
            preface: PREFACE,
            peer: Peer {
                is_private: with_tls || is_here,
                standing,
                address: slot.address,
                slot: Arc::new(Mutex::new(slot)),
                holders: Arc::clone(&self.holders),
            },
        })
    }

    /// Completes the handshake of TLS, if the client begins one, and reads the client's [`PREFACE`].
    async fn establish(&self, stream: TcpStream, client: IpAddr) -> Option<Transport> {
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
        let handshake = async {
            Ok::<_, io::Error>(match &self.transports.tls {
                Some(acceptor) if with_tls => {
                    let mut stream = acceptor.accept(stream).await?;
                    read_preface(&mut stream).await?;
                    Transport::Tls(Box::new(stream))
                }
                _ => {
                    let mut stream = stream;
                    read_preface(&mut stream).await?;
                    Transport::Plain(stream)
                }
            })
        };
        let done = handshake.await.inspect_err(|error| {
            tracing::info!(%client, %error, with_tls, "the handshake failed");
            self.refusals.count(Refusal::Handshake);
        });
        done.ok()
    }
}

/// # Errors
/// The client has sent other bytes, or has disconnected.
async fn read_preface(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).await?;
    if preface != *PREFACE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no HTTP/2"));
    }
    Ok(())
}

impl Connection {
    /// An error once a newcomer has the connection's slot.
    fn check_slot(&self, cx: &mut Context<'_>) -> io::Result<()> {
        match locked(&self.peer.slot).poll_displaced(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
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
        let connection = self.get_mut();
        connection.check_slot(cx)?;
        if !connection.preface.is_empty() {
            let most = connection.preface.len().min(buffer.remaining());
            let (now, later) = connection.preface.split_at(most);
            buffer.put_slice(now);
            connection.preface = later;
            return Poll::Ready(Ok(()));
        }
        match &mut connection.transport {
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
        self.check_slot(cx)?;
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
        self.check_slot(cx)?;
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
        self.check_slot(cx)?;
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpSocket;

    use super::*;

    /// 127.0.0.1 is this machine, with a stranger. Its other addresses stand for other machines.
    fn look_at(client: SocketAddr, _: SocketAddr, _: Option<&[u32]>) -> Place {
        if client.ip() == IpAddr::from([127, 0, 0, 1]) {
            Place::Here(1_000)
        } else {
            Place::Elsewhere
        }
    }

    struct Port {
        address: SocketAddr,
        refusals: Arc<Refusals>,
        established: mpsc::Receiver<io::Result<Connection>>,
    }

    impl Port {
        async fn new(limits: ServerLimits) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await;
            let listener = listener.expect("a port is free");
            let address = listener.local_addr().expect("bound");
            let refusals = Arc::<Refusals>::default();
            let transports = Transports {
                users: Some(Vec::new()),
                ..Transports::default()
            };
            let mut gate = Gate::new(transports, &limits, Arc::clone(&refusals));
            gate.look_at = look_at;
            let (sender, established) = mpsc::channel(8);
            tokio::spawn(accept(listener, gate, sender));
            Self {
                address,
                refusals,
                established,
            }
        }

        /// A client with the address 127.0.0.`last`.
        async fn connect(&self, last: u8) -> TcpStream {
            let socket = TcpSocket::new_v4().expect("IPv4");
            let own = ([127, 0, 0, last], 0).into();
            socket.bind(own).expect("an address of this machine");
            socket.connect(self.address).await.expect("connects")
        }

        /// A client that has begun HTTP/2, and the server's end of its connection.
        async fn client(&mut self, last: u8) -> (TcpStream, Connection) {
            let mut client = self.connect(last).await;
            client.write_all(PREFACE).await.expect("open");
            let connection = self.established.recv().await.expect("the port is open");
            (client, connection.expect("established"))
        }

        fn count(&self, cause: &str) -> u64 {
            let counts = self.refusals.counts();
            let of_cause = counts.iter().find(|refusal| refusal.cause == cause);
            of_cause.expect("a cause").count
        }
    }

    async fn is_closed(client: &mut TcpStream) -> bool {
        matches!(client.read(&mut [0]).await, Ok(0) | Err(_))
    }

    #[tokio::test]
    async fn clients_elsewhere_that_stay_silent_make_room_for_newcomers() {
        let mut port = Port::new(ServerLimits {
            stranger_connections: 1,
            handshakes: 3,
            handshakes_per_address: 2,
            ..ServerLimits::default()
        })
        .await;
        let mut silent = port.connect(2).await;
        let _another = port.connect(2).await;
        let mut of_address = port.connect(3).await;
        // All handshakes are taken, and clients of this machine do not notice.
        let (_here, here) = port.client(1).await;
        assert_eq!(here.peer.standing, Some(Standing::Stranger));
        assert_eq!(port.count("handshakes-full"), 0);
        // Nor do newcomers: the oldest one makes room.
        let (_there, there) = port.client(4).await;
        assert_eq!(there.peer.standing, None);
        assert!(is_closed(&mut silent).await);
        assert_eq!(port.count("handshakes-full"), 1);
        // The newcomer's handshake has ended, so one of three is free. An address may have two.
        let _second = port.connect(3).await;
        let _third = port.connect(3).await;
        assert!(is_closed(&mut of_address).await);
        assert_eq!(port.count("handshakes-of-address-full"), 1);
        assert_eq!(port.count("handshakes-full"), 1);
        // Clients of this machine have a limit of their own.
        assert!(is_closed(&mut port.connect(1).await).await);
        assert_eq!(port.count("connections-of-strangers-full"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_must_end_in_time() {
        let port = Port::new(ServerLimits::default()).await;
        let begin = tokio::time::Instant::now();
        let mut silent = port.connect(2).await;
        let mut slow = port.connect(1).await;
        slow.write_all(&PREFACE[..9]).await.expect("open");
        assert!(is_closed(&mut silent).await && is_closed(&mut slow).await);
        assert!(begin.elapsed() >= ESTABLISH_LIMIT);
        assert_eq!(port.count("connection-slow"), 2);
    }

    #[tokio::test]
    async fn a_client_that_speaks_another_protocol_is_refused() {
        let port = Port::new(ServerLimits::default()).await;
        let mut client = port.connect(2).await;
        let request = b"GET / HTTP/1.1\r\nHost: switch\r\n\r\n";
        client.write_all(request).await.expect("open");
        assert!(is_closed(&mut client).await);
        assert_eq!(port.count("handshake"), 1);
    }

    #[tokio::test]
    async fn a_client_elsewhere_keeps_its_connection_once_it_has_shown_the_token() {
        let mut port = Port::new(ServerLimits {
            remote_connections: 1,
            ..ServerLimits::default()
        })
        .await;
        let (_first, mut first) = port.client(2).await;
        let (_second, mut second) = port.client(3).await;
        assert!(first.read(&mut [0]).await.is_err());
        assert_eq!(port.count("remote-connections-full"), 1);
        second.peer.become_holder();
        let (_third, mut third) = port.client(4).await;
        let (_fourth, _fourth_end) = port.client(5).await;
        assert!(third.read(&mut [0]).await.is_err());
        let mut received = [0; PREFACE.len()];
        let read = second.read_exact(&mut received).await;
        read.expect("its connection stays");
        assert_eq!(received, *PREFACE);
        assert_eq!(port.count("remote-connections-full"), 2);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_client() {
        let slots = Slots::new(
            8,
            Refusal::HandshakesFull,
            Some((2, Refusal::HandshakesOfAddressFull)),
        );
        let enter = |address: &str| slots.enter(address.parse().expect("an address"));
        let (_first, reached) = enter("2001:db8::1");
        assert_eq!(reached, None);
        let (_second, reached) = enter("2001:db8::2");
        assert_eq!(reached, None);
        let (_other, reached) = enter("2001:db8:0:1::1");
        assert_eq!(reached, None);
        let (_third, reached) = enter("2001:db8::3");
        assert_eq!(reached, Some(Refusal::HandshakesOfAddressFull));
    }
}
