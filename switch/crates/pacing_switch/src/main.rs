//! `pacing_switch`: a v1model software switch with a traffic manager.
//!
//! This crate is the outermost layer: it reads the command line, opens interfaces or capture
//! files, owns the clock (through `ports`), and joins the switch with its control servers.

mod credentials;
mod files;
mod generate;
mod log_file;
mod options;
mod private_file;
mod privileges;
mod real_time;
mod report;
mod runtime_file;
mod say;
mod service_manager;
mod tls;
mod traces;
mod virtual_time;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, Once};

use anyhow::{Context, bail};
use clap::{CommandFactory, FromArgMatches};
use credentials::Credentials;
use files::{read_limited, refuse_source};
use notifications::{Address, Publisher};
use options::{Ignored, Options, Realtime};
use p4runtime_server::{
    Beside, Mappings, RefusalCount, ServerConfig, Standing, Token, controller_queues, standing_here,
};
use packet_trace::EventLog;
use ports::{Port, PortDriver, PortOptions};
use privileges::Identity;
use real_time::{Interface, RealTime};
use report::Losses;
use runtime_file::RuntimeFile;
use say::say;
use service_manager::Heartbeat;
use switch::{Switch, SwitchConfig};
use thrift_server::{ThriftConfig, ThriftLimits, ThriftServer};
use tokio::sync::oneshot;
use traces::{Events, TraceThread, TraceWriter, logs_packets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use traffic_manager::{DropCount, Limits};
use v1model::entries::digest::DigestConfig;
use virtual_time::Ended;

#[global_allocator]
static ALLOCATOR: ports::HugePages = ports::HugePages;

/// Most control requests that wait for the switch.
const JOB_QUEUE: usize = 1_024;
/// Most packets that wait for the controller.
const PACKET_IN_QUEUE: usize = 1_024;
/// Most digest lists and idle notifications that wait for the control server.
const NOTIFICATION_QUEUE: usize = 1_024;
/// Messages that may wait for a subscriber to notifications, and to events, of which a packet has dozens.
const NOTIFICATIONS_WAITING: usize = 256;
const EVENTS_WAITING: usize = 16_384;
/// How digests are collected for subscribers: as simple_switch does until a client changes it.
const DIGESTS: DigestConfig = DigestConfig {
    max_timeout_ns: 1_000_000_000,
    max_list_size: 1,
    ack_timeout_ns: u64::MAX,
};
/// Largest program read, in bytes.
const PROGRAM_BYTES_MAX: u64 = 64 << 20;
/// Largest file of mappings read, in bytes.
const TRANSLATION_BYTES_MAX: u64 = 16 << 20;

fn main() -> ExitCode {
    let matches = Options::command().get_matches_from(options::arguments(std::env::args_os()));
    let mut options = Options::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    options.forget_repeated_ports();
    options.adapt_to_name(std::env::args_os().next().as_deref(), &matches);
    if let Some(kind) = options.generate {
        return match kind.write(Options::command(), &mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                say(&format!("pacing_switch: --generate: {error}\n"));
                ExitCode::FAILURE
            }
        };
    }
    match start_log(&options).and_then(|()| run(&options, Ignored::given(&matches))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("pacing_switch: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Starts the log, in its file or on standard error.
fn start_log(options: &Options) -> anyhow::Result<()> {
    let level = match &options.log_level {
        Some(level) => level,
        None if options.log_console || options.log_file.is_given() => "debug",
        None => "warn",
    };
    // Messages of the libraries below gRPC, and of the compiler to machine code, do not help to debug
    // a P4 program.
    let filter = format!(
        "{level},cranelift=warn,h2=warn,hyper=warn,hyper_util=warn,regalloc2=warn,tonic=warn,\
         tower=warn"
    );
    let file = options.log_file.open()?;
    let colours = file.is_none() && std::io::stderr().is_terminal();
    let writer = match file {
        Some(file) => BoxMakeWriter::new(Mutex::new(file)),
        None => BoxMakeWriter::new(std::io::stderr),
    };
    tracing_subscriber::fmt()
        .with_writer(writer)
        .with_ansi(colours)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(filter)),
        )
        .init();
    Ok(())
}

fn run(options: &Options, mut ignored: Vec<String>) -> anyhow::Result<()> {
    options.check().map_err(anyhow::Error::msg)?;
    ignored.extend(options.tls.ignored().into_iter().map(str::to_owned));
    if let Some(address) = options.nanolog.as_ref().filter(|_| options.virtual_time) {
        ignored.insert(0, format!("--nanolog {address}"));
    }
    if !ignored.is_empty() {
        say(&format!("pacing_switch: ignored: {}\n", ignored.join(", ")));
    }
    // The file is opened first, so that an error shows before the run.
    let mut stats_file = options
        .stats_file
        .as_ref()
        .map(|path| File::create(path).with_context(|| format!("cannot write {}", path.display())))
        .transpose()?;
    let config = SwitchConfig {
        cpu_port: options.cpu_port,
        drop_port: options.drop_port,
        max_packets: options.max_held_packets.saturating_mul(2),
        entry_handles: options.thrift_port.is_some()
            || options.notifications_addr.is_some()
            || options.nanolog.is_some()
            || options.packet_trace.is_some()
            || logs_packets(),
        digests: options.notifications_addr.is_some().then_some(DIGESTS),
        engine: options.engine.into(),
        ..SwitchConfig::default()
    };
    let mut switch = Switch::new(
        config,
        Limits {
            max_held_packets: options.max_held_packets,
            max_delay_line_packets: options.max_held_packets,
            buffer_bytes: options.switch_buffer,
            ..Limits::default()
        },
    );
    for option in &options.ports {
        switch.add_port(option.port, &option.interface, option.config)?;
        let queues = option.queues.settings(options.priority_queues);
        switch.set_queues(option.port, queues.map_err(anyhow::Error::msg)?)?;
    }
    let mut program = None;
    if let Some(path) = options.program_at_start() {
        refuse_source(path)?;
        let json = read_limited(path, PROGRAM_BYTES_MAX)?;
        switch
            .load(&json)
            .with_context(|| path.display().to_string())?;
        program = Some(json);
    }
    let runtime = match &options.runtime_json {
        Some(path) => {
            let bytes = read_limited(path, runtime_file::MAX_BYTES)?;
            let text = String::from_utf8(bytes)
                .with_context(|| format!("{} is not text", path.display()))?;
            let file = RuntimeFile::parse(&text).with_context(|| path.display().to_string())?;
            file.apply_groups(&mut switch)
                .with_context(|| path.display().to_string())?;
            Some(file)
        }
        None => None,
    };

    let holders = (!options.virtual_time).then(|| holders(options)).flatten();
    let events = events(options);
    let traces = TraceWriter::create(options.packet_trace.as_deref(), events)?;
    switch.set_tracing(traces.as_ref().is_some_and(TraceWriter::takes_all));
    let mut losses = Losses::default();
    let switch = if options.virtual_time {
        if options.program.is_none() {
            bail!("--virtual needs a PROGRAM.json: there is no controller that could install one");
        }
        let ended = virtual_time::run(
            &mut switch,
            &options.ports,
            runtime.as_ref(),
            options.virtual_until,
            traces,
        )?;
        if ended == Ended::Stopped {
            say("pacing_switch: ended by --virtual-until; packets were still to be sent\n");
        }
        switch
    } else {
        if let Some(file) = &runtime {
            let applied = file.apply_due(&mut switch, 0, 0)?;
            if file.due_ns(applied).is_some() {
                bail!("--runtime-json: table entry {applied} has an at_ns, which needs --virtual");
            }
        }
        let (switch, lost) = serve(switch, options, program, traces, holders)?;
        losses = lost;
        switch
    };

    if let Some(file) = &mut stats_file {
        let text = serde_json::to_string_pretty(&report::as_json(&switch, &losses))?;
        writeln!(file, "{text}").context("cannot write the statistics")?;
    }
    say(&report::as_text(&switch, &losses));
    Ok(())
}

/// Access to the control servers: TLS, token.
struct Access {
    tls: Option<p4runtime_server::Tls>,
    only_tls: bool,
    token: Option<Token>,
}

/// Reads the files of the options and, if other machines can reach the server, those of the state
/// folder.
fn access(options: &Options) -> anyhow::Result<Access> {
    let mut access = Access {
        tls: options.tls.read()?,
        only_tls: false,
        token: None,
    };
    access.only_tls = access.tls.is_some();
    if options.grpc_server_addr.ip().is_loopback() {
        return Ok(access);
    }
    match credentials::folder(options.state_dir.as_deref()).and_then(|folder| {
        let credentials = Credentials::of(&folder);
        credentials.map(|credentials| (folder, credentials))
    }) {
        Ok((folder, credentials)) => {
            say(&format!(
                "pacing_switch: clients on other machines need TLS and what is in {}\n",
                folder.display()
            ));
            access.token = Some(credentials.token);
            access.tls.get_or_insert(credentials.tls);
        }
        // A folder given by an option must be usable.
        Err(error) if options.state_dir.is_some() => return Err(error),
        Err(error) => say(&format!(
            "pacing_switch: no client on another machine is let in: {error:#}\n"
        )),
    }
    Ok(access)
}

/// The users whose processes on this machine are trusted like the switch itself.
fn holders(options: &Options) -> Option<Vec<u32>> {
    if !p4runtime_server::kernel_tells_users() {
        say("pacing_switch: the kernel does not say whose a connection is: all users are alike\n");
        return None;
    }
    Some(trusted_users(options))
}

/// Root, the switch's own user before and after it becomes another one, and the users of controllers.
fn trusted_users(options: &Options) -> Vec<u32> {
    let own = rustix::process::geteuid().as_raw();
    let becomes = options.user.as_ref().map(Identity::user);
    let mut users: Vec<u32> = [0, own].into_iter().chain(becomes).collect();
    for name in &options.controller_user {
        match Identity::named(name) {
            Ok(known) => users.push(known.user()),
            Err(error) => say(&format!("pacing_switch: --controller-user: {error}\n")),
        }
    }
    users
}

/// Opens the port of the Thrift server.
fn listen_for_thrift(port: u16) -> anyhow::Result<TcpListener> {
    thrift_server::listen(port).with_context(|| {
        format!("Thrift server: port {port} of 127.0.0.1; choose another one with --thrift-port")
    })
}

/// The first call of each thread of the control servers. They give way to the thread that paces if that
/// has no real-time class. Otherwise it does not need that, and other processes would delay changes.
fn on_control_thread_start(realtime: bool) -> fn() {
    if realtime { || () } else { give_way }
}

/// Has this thread of the control servers give way to the threads that pace.
///
/// The thread that paces may wait for one that gives way, at locks that are held for a few microseconds:
/// those of the memory allocator, of the runtime (an answer makes a task ready), of the list of subscribers,
/// and of the committed program. It sleeps meanwhile, so a holder that has lost its processor gets this one.
/// It never spins until a control thread goes on: see `JobQueue` in crate p4runtime-server, and
/// `Subscriber` in crate notifications.
fn give_way() {
    static SAID: Once = Once::new();
    if let Err(error) = ports::scheduling::give_way() {
        SAID.call_once(|| {
            say(&format!(
                "pacing_switch: control threads do not give way to the pacing thread: {error}\n"
            ));
        });
    }
}

/// The threads of the control servers.
fn control_runtime(on_thread_start: fn()) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("control")
        .on_thread_start(on_thread_start)
        .enable_all()
        .build()
}

/// Starts the Thrift server, and says where it is.
fn start_thrift(
    config: ThriftConfig,
    listener: TcpListener,
    beside: Beside,
) -> anyhow::Result<ThriftServer> {
    let thrift =
        ThriftServer::start(config, listener, beside).context("no thread for the Thrift server")?;
    say(&format!(
        "pacing_switch: Thrift at {}\n",
        thrift.local_addr()
    ));
    Ok(thrift)
}

/// Lets subscribers in. Holders on this machine may subscribe: subscribers take digests from
/// controllers, and those of the event log make the switch slower.
fn serve_subscribers(
    publishers: [&Option<Arc<Publisher>>; 2],
    holders: Option<&Vec<u32>>,
    on_thread_start: fn(),
) -> anyhow::Result<()> {
    for publisher in publishers.into_iter().flatten() {
        let holders = holders.cloned();
        let admits = move |client, server| {
            standing_here(client, server, holders.as_deref()) == Some(Standing::Holder)
        };
        let serving = publisher.serve(admits, on_thread_start);
        serving.with_context(|| format!("no thread for {}", publisher.address()))?;
    }
    Ok(())
}

/// Opens the socket for subscribers to notifications.
fn publisher(options: &Options) -> anyhow::Result<Option<Arc<Publisher>>> {
    let Some(address) = &options.notifications_addr else {
        return Ok(None);
    };
    let publisher = Publisher::listen(address, NOTIFICATIONS_WAITING)
        .with_context(|| format!("{address}; choose another address with --notifications-addr"))?;
    Ok(Some(Arc::new(publisher)))
}

/// Counts what subscribers to notifications and to events have lost, and which of them were refused.
fn count_subscribers(losses: &mut Losses, publishers: &[Option<Arc<Publisher>>; 2]) {
    let lost = ["subscriber-slow", "event-subscriber-slow"];
    for (cause, publisher) in lost.into_iter().zip(publishers) {
        let packets = publisher.as_ref().map_or(0, |publisher| publisher.lost());
        losses
            .controllers
            .notifications
            .push(DropCount { cause, packets });
    }
    let sum = |of: fn(&Publisher) -> u64| publishers.iter().flatten().map(|it| of(it)).sum();
    losses.refusals.extend([
        RefusalCount {
            cause: "subscriber-not-admitted",
            count: sum(Publisher::not_admitted),
        },
        RefusalCount {
            cause: "subscribers-full",
            count: sum(Publisher::full),
        },
    ]);
}

/// The event log, if it is asked for. Scripts for simple_switch ask for one that nobody reads, so an address
/// that cannot be used does not keep the switch from starting.
fn events(options: &Options) -> Option<Events> {
    let address = options.nanolog.as_ref().filter(|_| !options.virtual_time)?;
    let listening = address
        .parse::<Address>()
        .map_err(anyhow::Error::from)
        .and_then(|address| Ok(Publisher::listen(&address, EVENTS_WAITING)?));
    match listening {
        Ok(publisher) => Some(Events {
            publisher: Arc::new(publisher),
            log: EventLog::new(options.device_id, options.cpu_port),
        }),
        Err(error) => {
            say(&format!(
                "pacing_switch: no event log: --nanolog {address}: {error:#}\n"
            ));
            None
        }
    }
}

/// The number of processors that this process may use. If one is for the pacing thread, this thread keeps
/// off it, and so do those that it starts.
fn processors(pacing_cpu: Option<usize>) -> anyhow::Result<usize> {
    let Some(processor) = pacing_cpu else {
        return Ok(std::thread::available_parallelism().map_or(1, NonZero::get));
    };
    let others = ports::scheduling::leave_processor(processor)
        .with_context(|| format!("--pacing-cpu {processor}"))?;
    Ok(others as usize + 1)
}

/// Gives this thread a real-time scheduling class if it is asked for. Returns whether it has one.
fn become_realtime(asked: Realtime, processors: usize) -> anyhow::Result<bool> {
    if asked == Realtime::Off || (asked == Realtime::Auto && processors < 2) {
        return Ok(false);
    }
    match ports::scheduling::become_realtime() {
        Ok(()) => {
            // For those that receive and send, which start when the privileges are gone.
            ports::scheduling::allow_realtime_threads();
            say("pacing_switch: the pacing thread has the real-time class SCHED_FIFO\n");
            Ok(true)
        }
        Err(_) if asked == Realtime::Auto => {
            say(
                "pacing_switch: no real-time scheduling class: other processes delay departures \
                 (needs CAP_SYS_NICE, or ulimit -r 1)\n",
            );
            Ok(false)
        }
        Err(error) => Err(error).context(
            "--realtime on: needs CAP_SYS_NICE (run as root), or a limit of real-time priorities \
             of at least 1 (ulimit -r, LimitRTPRIO=)",
        ),
    }
}

/// Opens the interfaces; returns them with their port numbers. `threads`: for threads that receive and
/// send.
fn open_ports(options: &Options, threads: bool) -> anyhow::Result<Vec<(u16, Interface)>> {
    let mut opened = Vec::new();
    for option in &options.ports {
        let port_options = PortOptions {
            driver: option.driver.unwrap_or(options.port_driver),
            kernel_departures: option.kernel_departures,
            rx_frames: option.ring_frames,
            offloads: option.offloads,
            ..PortOptions::default()
        };
        let open = |receive| {
            let port_options = PortOptions {
                receive,
                ..port_options.clone()
            };
            Port::open(&option.interface, &port_options)
                .with_context(|| format!("port {}", option.port))
        };
        let port = open(true)?;
        if port_options.driver != PortDriver::AfPacket {
            // The mode depends on the interface's driver.
            say(&format!(
                "pacing_switch: port {}: {}: {}\n",
                option.port,
                option.interface,
                port.mode()
            ));
        }
        let sends = threads.then(|| open(false)).transpose()?;
        let interface = Interface { port, sends };
        opened.push((option.port, interface));
    }
    let by_kernel = options.ports.iter().filter(|p| p.kernel_departures).count();
    if by_kernel > 0 && by_kernel < options.ports.len() {
        say(&format!(
            "pacing_switch: departures=kernel has no effect: {} of {} ports do not have it\n",
            options.ports.len() - by_kernel,
            options.ports.len()
        ));
    }
    Ok(opened)
}

/// The mappings of translated types in this file, if one is given.
fn mappings(path: Option<&Path>) -> anyhow::Result<Mappings> {
    let Some(path) = path else {
        return Ok(Mappings::default());
    };
    let json = read_limited(path, TRANSLATION_BYTES_MAX)?;
    Mappings::from_json(&json).with_context(|| format!("--translation {}", path.display()))
}

/// Says that the switch is ready, and where its gRPC server is.
fn say_ready(options: &Options, only_tls: bool, address: SocketAddr) {
    if options.program_at_start().is_none() {
        say("pacing_switch: dropping packets (no-program) until a controller installs a program\n");
    }
    say(&format!(
        "pacing_switch: ready, {} ports, gRPC {}at {address}\n",
        options.ports.len(),
        if only_tls { "with TLS " } else { "" },
    ));
}

/// Opens the interfaces, starts the control servers on threads of their own, and runs the
/// switch on this one until a signal ends it. Returns the switch and the counts of frames that were
/// lost or refused on the way from and to controllers. `program`: the one at the start; `holders`: the
/// users whose processes on this machine are trusted, `None`: all.
fn serve(
    switch: Switch,
    options: &Options,
    program: Option<Vec<u8>>,
    traces: Option<TraceWriter>,
    holders: Option<Vec<u32>>,
) -> anyhow::Result<(Switch, Losses)> {
    let processors = processors(options.pacing_cpu)?;
    let access = access(options)?;
    let mappings = mappings(options.translation.as_deref())?;
    let listener = p4runtime_server::listen(options.grpc_server_addr)?;
    let thrift_listener = options.thrift_port.map(listen_for_thrift).transpose()?;
    let publisher = publisher(options)?;
    let event_publisher = traces.as_ref().and_then(TraceWriter::publisher).cloned();
    let threads = options.has_threads(processors);
    let opened = open_ports(options, threads)?;
    let compiler = switch.compiler();
    let (controller_sender, controller_receiver) =
        controller_queues(PACKET_IN_QUEUE, NOTIFICATION_QUEUE);
    let counters = controller_receiver.counters();
    let mut executor = None;
    let heartbeat = Heartbeat::default();
    let mut driver = RealTime::new(
        switch,
        options.spin,
        |waker| {
            let (sender, jobs) =
                p4runtime_server::executor::channel(JOB_QUEUE, move || waker.wake());
            executor = Some(sender);
            jobs
        },
        controller_sender,
        heartbeat.clone(),
        threads,
    )?;
    for (number, interface) in opened {
        driver.add(number, interface, options.pcap.as_deref())?;
    }
    if let Some(publisher) = &publisher {
        driver.publish(Arc::clone(publisher), options.device_id);
    }

    let realtime = become_realtime(options.realtime, processors)?;
    if realtime {
        driver.share_processor();
    }
    let on_thread_start = on_control_thread_start(realtime);
    // Before other threads begin, because each has capabilities of its own.
    privileges::drop_all(options.user.as_ref())?;
    serve_subscribers(
        [&publisher, &event_publisher],
        holders.as_ref(),
        on_thread_start,
    )?;
    if let Some(traces) = traces {
        driver.write_traces(TraceThread::start(traces)?);
    }
    let control = control_runtime(on_thread_start)?;
    let executor = executor.context("no executor")?;
    let config = ServerConfig {
        device_id: options.device_id,
        cpu_port: options.cpu_port.map(u32::from),
        tls: access.tls,
        only_tls: access.only_tls,
        token: access.token,
        holders: holders.clone(),
        mappings,
        limits: p4runtime_server::ServerLimits::default(),
    };
    let in_runtime = control.enter();
    let server = p4runtime_server::bind(config, listener, executor, compiler, controller_receiver)?;
    drop(in_runtime);
    let refusals = server.refusals();
    let thrift_config = ThriftConfig {
        device_id: options.device_id,
        holders,
        program,
        notifications: publisher.as_ref().map(|it| it.address().to_string()),
        since_1970_ns: ports::clock::to_realtime_ns,
        on_thread_start,
        limits: ThriftLimits::default(),
    };
    let thrift = thrift_listener
        .map(|listener| start_thrift(thrift_config, listener, server.beside()))
        .transpose()?;
    say_ready(options, access.only_tls, server.local_addr());
    let (stop, stopped) = oneshot::channel::<()>();
    service_manager::ready();
    control.spawn(service_manager::watch(heartbeat));
    let serving = control.spawn(server.run(async {
        let _ = stopped.await;
    }));
    let switch = driver.run(options.pacing_cpu)?;
    service_manager::stopping();
    // The server limits how long clients may delay its end. An error at the end changes nothing.
    let _ = stop.send(());
    if let Ok(Err(error)) = control.block_on(serving) {
        tracing::warn!(%error, "control server");
    }
    if let Some(thrift) = thrift {
        thrift.stop();
    }
    let mut losses = Losses {
        controllers: counters.losses(),
        refusals: refusals.counts(),
    };
    count_subscribers(&mut losses, &[publisher, event_publisher]);
    Ok((switch, losses))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_controller_is_trusted_and_an_unknown_one_is_left_out() {
        let trusted = |arguments: &str| {
            let words = format!("pacing_switch --no-p4{arguments}");
            let matches = Options::command().get_matches_from(words.split(' '));
            trusted_users(&Options::from_arg_matches(&matches).expect("valid"))
        };
        let own = trusted("");
        assert_eq!(trusted(" --controller-user no-such-user-here"), own);
        let nobody = Identity::named("nobody").expect("every machine has it");
        let with_nobody = [own, vec![nobody.user()]].concat();
        assert_eq!(trusted(" --controller-user nobody"), with_nobody);
    }
}
