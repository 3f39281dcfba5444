//! One connection: reads calls, has them answered, and bounds both.

use std::cell::{Cell, RefCell};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bmv2_thrift::simple_pre::SimplePreSyncProcessor;
use bmv2_thrift::simple_pre_lag::SimplePreLAGSyncProcessor;
use bmv2_thrift::simple_switch::SimpleSwitchSyncProcessor;
use bmv2_thrift::standard::StandardSyncProcessor;
use p4runtime_server::Standing;
use thrift::protocol::{
    TBinaryOutputProtocol, TInputProtocol, TMessageIdentifier, TStoredInputProtocol, TType,
};
use thrift::server::{TProcessor, handle_process_result};
use thrift::{ApplicationError, ApplicationErrorKind};

use crate::control::Control;
use crate::programs::Programs;
use crate::protocol::{BoundedInput, Failure};
use crate::refusals::Refusal;
use crate::replication::Replication;
use crate::simple_pre::SimplePre;
use crate::simple_switch::SimpleSwitch;
use crate::standard::{Given, Held, Standard};

/// Bytes read or written at once.
const BUFFER_BYTES: usize = 16 << 10;
/// The function whose message has a program in it.
const LOAD_PROGRAM: &str = "standard:bm_load_new_config";

/// The state that the services of all connections share.
pub(crate) struct Services {
    pub(crate) control: Arc<Control>,
    pub(crate) programs: Arc<Programs>,
    pub(crate) replication: Arc<Replication>,
    pub(crate) given: Arc<Given>,
    pub(crate) device_id: u64,
    pub(crate) thrift_port: u16,
    pub(crate) notifications: Option<String>,
    pub(crate) since_1970_ns: fn(u64) -> u64,
}

/// A socket that is read until a deadline.
struct Timed {
    stream: TcpStream,
    /// `None`: for as long as it takes.
    deadline: Option<Instant>,
}

impl Timed {
    fn begin(&mut self, time: Duration) {
        self.deadline = Some(Instant::now() + time);
    }

    fn end(&mut self) {
        self.deadline = None;
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = match self.deadline {
            None => None,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Some(left)
            }
        };
        self.stream.set_read_timeout(left)?;
        self.stream.read(buffer)
    }
}

/// A socket that is written to, and whether its client has let the time for that pass.
struct Patient {
    stream: TcpStream,
    was_slow: Rc<Cell<bool>>,
}

impl Write for Patient {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.stream.write(buffer);
        if let Err(error) = &written {
            let kind = error.kind();
            let timed_out = matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
            self.was_slow.set(timed_out);
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

type Input = BoundedInput<BufReader<Timed>>;
type Output = TBinaryOutputProtocol<BufWriter<Patient>>;

/// The services as one client has them.
struct Session<'a> {
    control: &'a Control,
    standing: Standing,
    services: Vec<(&'static str, Box<dyn TProcessor>)>,
    held: Held,
}

/// Serves a connection until it ends.
pub(crate) fn serve(services: &Services, standing: Standing, stream: TcpStream) {
    let session = Session::new(services, standing);
    let limits = &session.control.limits;
    // Without this, each small answer may wait for the client's acknowledgement.
    let prepared = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_write_timeout(Some(limits.message_time)))
        .and_then(|()| stream.try_clone());
    let Ok(writing) = prepared else {
        return;
    };
    let reading = Timed {
        stream,
        deadline: None,
    };
    let reader = BufReader::with_capacity(BUFFER_BYTES, reading);
    let mut input = BoundedInput::new(reader, limits.list_elements);
    let was_slow = Rc::new(Cell::new(false));
    let writing = Patient {
        stream: writing,
        was_slow: Rc::clone(&was_slow),
    };
    let writer = BufWriter::with_capacity(BUFFER_BYTES, writing);
    let mut output = TBinaryOutputProtocol::new(writer, true);
    while input.wait() {
        input.reader().get_mut().begin(limits.message_time);
        let answered = session.answer(&mut input, &mut output);
        match input.failure() {
            Some(Failure::Refused(refusal)) => session.control.refusals.count(refusal),
            None if was_slow.get() => session.control.refusals.count(Refusal::Slow),
            _ => {}
        }
        if answered.is_err() || input.failure().is_some() {
            return;
        }
        input.reader().get_mut().end();
    }
}

impl<'a> Session<'a> {
    fn new(services: &'a Services, standing: Standing) -> Self {
        let control = &services.control;
        let pre = || SimplePre {
            control: Arc::clone(control),
            replication: Arc::clone(&services.replication),
            standing,
        };
        let held: Held = Rc::new(RefCell::new(None));
        let standard = Standard {
            control: Arc::clone(control),
            programs: Arc::clone(&services.programs),
            replication: Arc::clone(&services.replication),
            device_id: services.device_id,
            thrift_port: services.thrift_port,
            notifications: services.notifications.clone(),
            standing,
            held: Rc::clone(&held),
            given: Arc::clone(&services.given),
        };
        let simple_switch = SimpleSwitch {
            control: Arc::clone(control),
            replication: Arc::clone(&services.replication),
            since_1970_ns: services.since_1970_ns,
            standing,
        };
        Self {
            control,
            standing,
            held,
            services: vec![
                ("standard", Box::new(StandardSyncProcessor::new(standard))),
                ("simple_pre", Box::new(SimplePreSyncProcessor::new(pre()))),
                (
                    "simple_pre_lag",
                    Box::new(SimplePreLAGSyncProcessor::new(pre())),
                ),
                (
                    "simple_switch",
                    Box::new(SimpleSwitchSyncProcessor::new(simple_switch)),
                ),
            ],
        }
    }

    /// Answers one call.
    ///
    /// # Errors
    /// The message cannot be read or the answer cannot be written: the connection ends.
    fn answer(&self, input: &mut Input, output: &mut Output) -> thrift::Result<()> {
        let limits = &self.control.limits;
        input.allow(limits.message_bytes);
        let call = input.read_message_begin()?;
        // The long message of a client that may not load a program is not read.
        if call.name == LOAD_PROGRAM && self.control.beside.may_change(self.standing) {
            input.allow(limits.program_bytes);
        }
        let result = self.dispatch(&call, input, output);
        self.held.borrow_mut().take();
        if input.failure().is_none() && !input.has_structs() {
            // A call that no service has taken.
            input.skip(TType::Struct)?;
        }
        handle_process_result(&call, result, output)
    }

    fn dispatch(
        &self,
        call: &TMessageIdentifier,
        input: &mut Input,
        output: &mut Output,
    ) -> thrift::Result<()> {
        let (service, function) = call.name.split_once(':').unwrap_or(("", &call.name));
        let known = self.services.iter().find(|(name, _)| *name == service);
        let Some((_, processor)) = known else {
            let names: Vec<_> = self.services.iter().map(|(name, _)| *name).collect();
            return Err(thrift::Error::Application(ApplicationError::new(
                ApplicationErrorKind::UnknownMethod,
                format!(
                    "'{}': no service '{service}'; known: {}",
                    call.name,
                    names.join(", ")
                ),
            )));
        };
        let call = TMessageIdentifier::new(function, call.message_type, call.sequence_number);
        processor.process(&mut TStoredInputProtocol::new(input, call), output)
    }
}
