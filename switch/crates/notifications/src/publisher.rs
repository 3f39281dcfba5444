//! The PUB side of nanomsg's publish/subscribe protocol.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::address::Address;

/// Most connections at once, of subscribers and of those that have not said who they are; others are closed.
const CONNECTIONS_MAX: usize = 16;

/// Longest time until a subscriber has said who it is.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The numbers of the protocol's sides.
const PUB: u16 = 32;
const SUB: u16 = 33;

/// The byte before the length of each message over a Unix socket.
const IPC_IN_BAND: u8 = 1;

/// A socket to which subscribers connect.
#[derive(Debug)]
pub struct Publisher {
    address: Address,
    listener: Listener,
    subscribers: Arc<Subscribers>,
}

#[derive(Debug)]
enum Listener {
    Ipc(UnixListener),
    Tcp(TcpListener),
}

#[derive(Debug)]
struct Subscriber {
    number: u64,
    sender: Sender<Arc<[u8]>>,
    /// Messages that wait. A bounded channel would do without, but to find out whether it is full, its
    /// sender may have to spin until a receiver that has lost its processor goes on. The sender may be the
    /// thread that paces.
    waiting: Arc<AtomicUsize>,
}

/// The messages for a subscriber, as its thread takes them.
struct Messages {
    receiver: Receiver<Arc<[u8]>>,
    waiting: Arc<AtomicUsize>,
}

impl Iterator for Messages {
    type Item = Arc<[u8]>;

    /// Waits for a message; `None`: the subscriber has been removed.
    fn next(&mut self) -> Option<Self::Item> {
        let message = self.receiver.recv().ok()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(message)
    }
}

#[derive(Debug, Default)]
struct Subscribers {
    senders: Mutex<Vec<Subscriber>>,
    /// How many these are.
    count: AtomicUsize,
    /// Messages that may wait for each.
    waiting_max: usize,
    next: AtomicU64,
    lost: AtomicU64,
    connections: AtomicUsize,
    not_admitted: AtomicU64,
    full: AtomicU64,
}

/// The place of a connection, until it is dropped.
struct Place(Arc<Subscribers>);

impl Place {
    /// `None`: there are enough, and this one is counted.
    fn take(subscribers: &Arc<Subscribers>) -> Option<Self> {
        let place = Self(Arc::clone(subscribers));
        let before = subscribers.connections.fetch_add(1, Ordering::AcqRel);
        if before >= CONNECTIONS_MAX {
            subscribers.full.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Subscribers {
    fn senders(&self) -> MutexGuard<'_, Vec<Subscriber>> {
        // A list of senders has no state in between.
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a subscriber.
    fn add(&self) -> (u64, Messages) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let subscriber = Subscriber {
            number,
            sender,
            waiting: Arc::clone(&waiting),
        };
        let mut senders = self.senders();
        senders.push(subscriber);
        self.count.store(senders.len(), Ordering::Release);
        (number, Messages { receiver, waiting })
    }

    fn remove(&self, number: u64) {
        let mut senders = self.senders();
        senders.retain(|other| other.number != number);
        self.count.store(senders.len(), Ordering::Release);
    }
}

impl Publisher {
    /// Listens at an address. A Unix socket that a process left behind is replaced. `waiting` messages may
    /// wait for each subscriber. Clients can connect from then on; they wait for [`serve`](Self::serve).
    ///
    /// # Errors
    /// Another program listens there, or the address cannot be used.
    pub fn listen(address: &Address, waiting: usize) -> io::Result<Self> {
        let mut address = address.clone();
        let listener = match &mut address {
            Address::Ipc(path) => {
                remove_left_behind(path)?;
                Listener::Ipc(UnixListener::bind(path)?)
            }
            Address::Tcp(socket) => {
                let listener = TcpListener::bind(*socket)?;
                *socket = listener.local_addr()?;
                Listener::Tcp(listener)
            }
        };
        Ok(Self {
            address,
            listener,
            subscribers: Arc::new(Subscribers {
                waiting_max: waiting,
                ..Subscribers::default()
            }),
        })
    }

    /// Lets subscribers in, on a thread of its own. `admits` decides by the addresses of a TCP connection,
    /// its client's first, whether the client may subscribe; the permissions of a Unix socket decide for
    /// that. The thread calls `on_thread_start` first; threads that serve subscribers inherit its priority.
    ///
    /// # Errors
    /// There are too many threads, or descriptors.
    pub fn serve(
        &self,
        admits: impl Fn(SocketAddr, SocketAddr) -> bool + Send + 'static,
        on_thread_start: fn(),
    ) -> io::Result<()> {
        match &self.listener {
            Listener::Ipc(listener) => {
                let listener = listener.try_clone()?;
                let next = move || Ok(Some(listener.accept()?.0));
                accept(&self.subscribers, on_thread_start, next)
            }
            Listener::Tcp(listener) => {
                let listener = listener.try_clone()?;
                let counted = Arc::clone(&self.subscribers);
                accept(&self.subscribers, on_thread_start, move || {
                    let (connection, client) = listener.accept()?;
                    let server = connection.local_addr()?;
                    let admitted = admits(client, server);
                    if !admitted {
                        counted.not_admitted.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(admitted.then_some(connection))
                })
            }
        }
    }

    /// The address, with the port if any free one was asked for.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether somebody has subscribed: connected and greeted.
    pub fn has_subscribers(&self) -> bool {
        self.subscribers.count.load(Ordering::Acquire) > 0
    }

    /// Sends a message to all subscribers. Those that do not keep up lose it.
    pub fn publish(&self, message: &[u8]) {
        let message: Arc<[u8]> = message.into();
        for subscriber in self.subscribers.senders().iter() {
            // Nobody else adds to them meanwhile, because the list is locked.
            if subscriber.waiting.load(Ordering::Relaxed) >= self.subscribers.waiting_max {
                self.subscribers.lost.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            subscriber.waiting.fetch_add(1, Ordering::Relaxed);
            // A subscriber that has gone is removed by its own thread.
            let _ = subscriber.sender.send(Arc::clone(&message));
        }
    }

    /// Messages that subscribers have lost.
    pub fn lost(&self) -> u64 {
        self.subscribers.lost.load(Ordering::Relaxed)
    }

    /// Connections of clients that may not subscribe.
    pub fn not_admitted(&self) -> u64 {
        self.subscribers.not_admitted.load(Ordering::Relaxed)
    }

    /// Connections beyond the limit.
    pub fn full(&self) -> u64 {
        self.subscribers.full.load(Ordering::Relaxed)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.subscribers.senders().clear();
        if let Address::Ipc(path) = &self.address {
            // Its thread ends with the process; nobody finds the socket any more.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes a Unix socket whose process has ended.
fn remove_left_behind(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// A connection of either kind.
trait Connection: Read + Write + Send + Sized + 'static {
    /// The bytes before the length of a message.
    const BEFORE_LENGTH: &'static [u8];

    fn another(&self) -> io::Result<Self>;
    fn limit(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn end(&self);
}

impl Connection for UnixStream {
    const BEFORE_LENGTH: &'static [u8] = &[IPC_IN_BAND];

    fn another(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn limit(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)
    }

    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Connection for TcpStream {
    const BEFORE_LENGTH: &'static [u8] = &[];

    fn another(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn limit(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)
    }

    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// Lets subscribers in, on a thread of its own. `next` waits for a connection; `None`: it is refused.
fn accept<C: Connection>(
    subscribers: &Arc<Subscribers>,
    on_thread_start: fn(),
    mut next: impl FnMut() -> io::Result<Option<C>> + Send + 'static,
) -> io::Result<()> {
    let subscribers = Arc::clone(subscribers);
    thread::Builder::new()
        .name("notifications".to_owned())
        .spawn(move || {
            on_thread_start();
            loop {
                let connection = match next() {
                    Ok(Some(connection)) => connection,
                    Ok(None) => continue,
                    Err(_) => {
                        // Out of descriptors: it can be better in a while.
                        thread::sleep(Duration::from_millis(100));
                        continue;
                    }
                };
                // If there are enough connections, or no thread, this one ends here.
                if let Some(place) = Place::take(&subscribers) {
                    let serving = thread::Builder::new().name("subscriber".to_owned());
                    let _ = serving.spawn(move || {
                        // The subscriber has gone, or is none.
                        let _ = serve(connection, &place.0);
                    });
                }
            }
        })?;
    Ok(())
}

/// Serves one client until it goes. It is a subscriber from its greeting on.
fn serve<C: Connection>(mut connection: C, subscribers: &Subscribers) -> io::Result<()> {
    hear_greeting(&mut connection)?;
    // Before ours, so that whoever has that gets each message.
    let (number, messages) = subscribers.add();
    let sent = send(connection, messages);
    subscribers.remove(number);
    sent
}

/// Greets a subscriber, then sends it messages until it goes.
fn send<C: Connection>(mut connection: C, messages: Messages) -> io::Result<()> {
    connection.write_all(&greeting(PUB))?;
    let mut sending = connection.another()?;
    let sender =
        thread::Builder::new()
            .name("subscriber".to_owned())
            .spawn(move || -> io::Result<()> {
                for message in messages {
                    let mut bytes = C::BEFORE_LENGTH.to_vec();
                    let length = u64::try_from(message.len()).unwrap_or(u64::MAX);
                    bytes.extend_from_slice(&length.to_be_bytes());
                    bytes.extend_from_slice(&message);
                    sending.write_all(&bytes)?;
                }
                sending.end();
                Ok(())
            })?;
    // A subscriber says nothing more: it filters by itself. So this waits for its end.
    let mut ignored = [0; 64];
    while connection.read(&mut ignored)? > 0 {}
    connection.end();
    // The thread ends when the subscriber is removed, because nobody sends to it then.
    drop(sender);
    Ok(())
}

/// What a side of this protocol says first.
fn greeting(protocol: u16) -> [u8; 8] {
    let [high, low] = protocol.to_be_bytes();
    [0, b'S', b'P', 0, high, low, 0, 0]
}

/// Waits until the client has said that it is a subscriber.
fn hear_greeting<C: Connection>(connection: &mut C) -> io::Result<()> {
    connection.limit(Some(HANDSHAKE))?;
    let mut theirs = [0; 8];
    connection.read_exact(&mut theirs)?;
    connection.limit(None)?;
    // The last two bytes are reserved.
    if theirs.starts_with(&greeting(SUB)[..6]) {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}
