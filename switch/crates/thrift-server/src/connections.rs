//! Connections: how many, from whom, and the threads that serve them.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use p4runtime_server::{Beside, Standing, standing_here};

use crate::control::Control;
use crate::limits::ThriftLimits;
use crate::programs::Programs;
use crate::refusals::{Refusal, ThriftRefusals};
use crate::replication::Replication;
use crate::session::{self, Services};
use crate::standard::Given;

/// Pause after the kernel has refused to give a connection: no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Settings of the server.
pub struct ThriftConfig {
    /// The switch's number, for `bm_mgmt_get_info`.
    pub device_id: u64,
    /// Users whose processes on this machine are holders. `None`: those of all users.
    pub holders: Option<Vec<u32>>,
    /// The program that the switch has started with, as BMv2 JSON.
    pub program: Option<Vec<u8>>,
    /// Where notifications are published, for `bm_mgmt_get_info`.
    pub notifications: Option<String>,
    /// Turns the switch's time into the time since 1970, both in ns.
    pub since_1970_ns: fn(u64) -> u64,
    /// Called by the thread that accepts connections, before it starts those that serve them. They inherit
    /// its priority and capabilities.
    pub on_thread_start: fn(),
    /// Limits.
    pub limits: ThriftLimits,
}

/// Opens a port on loopback. Clients can connect from then on.
///
/// # Errors
/// Those of the kernel.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port)))
}

/// A server that answers clients on threads of its own.
pub struct ThriftServer {
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    services: Services,
    holders: Option<Vec<u32>>,
    local_addr: SocketAddr,
    stopping: AtomicBool,
    connections: Mutex<Connections>,
}

/// The connections that are served.
#[derive(Default)]
struct Connections {
    next: u64,
    streams: HashMap<u64, (Standing, TcpStream)>,
}

impl Connections {
    fn count(&self, standing: Standing) -> usize {
        let streams = self.streams.values();
        streams.filter(|(other, _)| *other == standing).count()
    }
}

impl ThriftServer {
    /// Serves clients of `listener`.
    ///
    /// # Errors
    /// No thread could be made, or the listener cannot be used.
    pub fn start(config: ThriftConfig, listener: TcpListener, beside: Beside) -> io::Result<Self> {
        let local_addr = listener.local_addr()?;
        let refusals = Arc::new(ThriftRefusals::default());
        beside.report_refusals({
            let refusals = Arc::clone(&refusals);
            move || refusals.counts()
        });
        let services = Services {
            control: Arc::new(Control::new(beside, config.limits, refusals)),
            programs: Arc::new(Programs::new(config.program)),
            replication: Arc::new(Replication::default()),
            given: Arc::new(Given::default()),
            device_id: config.device_id,
            thrift_port: local_addr.port(),
            notifications: config.notifications,
            since_1970_ns: config.since_1970_ns,
        };
        let shared = Arc::new(Shared {
            services,
            holders: config.holders,
            local_addr,
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let accepting = Builder::new().name("thrift".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                (config.on_thread_start)();
                accept(&shared, &listener);
            }
        })?;
        Ok(Self { shared, accepting })
    }

    /// The address that clients connect to.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local_addr
    }

    /// Closes all connections and ends the threads. Calls that wait for the switch must have been
    /// answered, or the switch's end of the executor be dropped.
    pub fn stop(self) {
        self.shared.stopping.store(true, Ordering::Release);
        // Wakes the thread that accepts. If the socket is closed, there is no thread to wake.
        let _ = TcpStream::connect(self.shared.local_addr);
        let _ = self.accepting.join();
    }
}

impl Shared {
    /// The connections. A panic elsewhere leaves them consistent: each change is one call.
    fn connections(&self) -> MutexGuard<'_, Connections> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a connection a place; `None`: it is refused, and counted.
    fn enter(&self, stream: &TcpStream, client: SocketAddr) -> Option<(u64, Standing)> {
        let control = &self.services.control;
        let server = stream.local_addr().ok()?;
        let Some(standing) = standing_here(client, server, self.holders.as_deref()) else {
            control.refusals.count(Refusal::NotHere);
            return None;
        };
        let (most, full) = match standing {
            Standing::Holder => (control.limits.connections, Refusal::ConnectionsFull),
            Standing::Stranger => (
                control.limits.stranger_connections,
                Refusal::ConnectionsOfStrangersFull,
            ),
        };
        let stream = stream.try_clone().ok()?;
        let mut connections = self.connections();
        if connections.count(standing) >= most {
            control.refusals.count(full);
            return None;
        }
        let number = connections.next;
        connections.next += 1;
        connections.streams.insert(number, (standing, stream));
        Some((number, standing))
    }
}

/// Accepts connections until the server stops, then closes those that are left.
fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    loop {
        let accepted = listener.accept();
        if shared.stopping.load(Ordering::Acquire) {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "no connection accepted");
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        let Some((number, standing)) = shared.enter(&stream, client) else {
            continue;
        };
        let serve = {
            let shared = Arc::clone(shared);
            move || {
                session::serve(&shared.services, standing, stream);
                shared.connections().streams.remove(&number);
            }
        };
        match Builder::new().name("thrift client".to_owned()).spawn(serve) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                tracing::warn!(%error, "no thread for a Thrift connection");
                shared.connections().streams.remove(&number);
            }
        }
    }
    for (_, stream) in shared.connections().streams.values() {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for thread in threads {
        let _ = thread.join();
    }
}
