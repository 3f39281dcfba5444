//! Bytes of a client of BMv2's Thrift services.

use std::cell::OnceCell;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use p4runtime_server::{
    BoundServer, Mappings, ServerConfig, ServerLimits, bind, controller_queues, executor,
};
use switch::{Switch, SwitchConfig};
use thrift_server::{ThriftConfig, ThriftLimits, ThriftServer};
use tokio::runtime::Runtime;
use traffic_manager::Limits;

use crate::files::read;

/// A call of `bm_mt_get_num_entries` of a table, in Thrift's binary protocol.
const QUESTION: &[u8] = b"\x80\x01\0\x01\0\0\0\x1estandard:bm_mt_get_num_entries\0\0\0\x01\
    \x08\0\x01\0\0\0\0\x0b\0\x02\0\0\0\x12KindsIngress.fixed\0";
/// The beginning of its answer: no exception.
const ANSWER: &[u8] = b"\x80\x01\0\x02";
/// Time after which a server without an answer counts as dead.
const PATIENCE: Duration = Duration::from_secs(30);

thread_local! {
    /// A server with a program; inputs follow each other on it.
    static RIG: OnceCell<Rig> = const { OnceCell::new() };
}

struct Rig {
    address: SocketAddr,
    _server: ThriftServer,
    _beside: (BoundServer, Runtime),
}

/// Sends the bytes over a connection of their own, and takes the answers.
pub fn thrift(bytes: &[u8]) {
    RIG.with(|rig| rig.get_or_init(Rig::new).run(bytes));
}

impl Rig {
    fn new() -> Self {
        let program = read("crates/p4runtime-server/tests/programs/kinds.json");
        let config = SwitchConfig {
            entry_handles: true,
            ..SwitchConfig::default()
        };
        let mut switch = Switch::new(config, Limits::default());
        switch.load(&program).expect("a program");
        let (executor, mut jobs) = executor::channel(64, || ());
        let compiler = switch.compiler();
        let (_, receiver) = controller_queues(4, 4);
        std::thread::spawn(move || while jobs.run_next(&mut switch) {});
        let runtime = Runtime::new().expect("a runtime");
        let config = ServerConfig {
            device_id: 1,
            cpu_port: None,
            tls: None,
            only_tls: false,
            token: None,
            holders: None,
            mappings: Mappings::default(),
            limits: ServerLimits::default(),
        };
        let listener = p4runtime_server::listen(([127, 0, 0, 1], 0).into()).expect("a port");
        let entered = runtime.enter();
        let p4runtime = bind(config, listener, executor, compiler, receiver).expect("binds");
        drop(entered);
        let config = ThriftConfig {
            device_id: 1,
            holders: None,
            program: Some(program),
            notifications: None,
            since_1970_ns: |ns| ns,
            on_thread_start: || (),
            limits: ThriftLimits::default(),
        };
        let listener = thrift_server::listen(0).expect("a port");
        let server = ThriftServer::start(config, listener, p4runtime.beside()).expect("threads");
        Self {
            address: server.local_addr(),
            _server: server,
            _beside: (p4runtime, runtime),
        }
    }

    fn answers(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).expect("the server lives");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        // The server may have closed the connection before it has read everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answers = Vec::new();
        let read = stream.read_to_end(&mut answers);
        let timed_out = read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!timed_out, "neither answered nor closed");
        answers
    }

    fn run(&self, bytes: &[u8]) {
        self.answers(bytes);
        let answer = self.answers(QUESTION);
        assert!(answer.starts_with(ANSWER), "{answer:?}");
    }
}
