//! Packet traces to a file (`--packet-trace`), to the log (`--log-level trace`) and to subscribers to
//! BMv2's event log (`--nanolog`).

mod file;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use notifications::Publisher;
use packet_trace::{EventLog, to_delimited, to_lines};
use switch::Switch;
use switch::trace::PacketTrace;
use traffic_manager::DropCount;

use file::TraceFile;

/// Traces that may wait for the thread that writes them.
const WAITING_MAX: usize = 4_096;

/// Ending of a file that has messages, and not JSON.
const MESSAGES: &str = "binpb";

/// Least time between two writes of the thread that writes traces: a burst wakes it once.
const WRITE_INTERVAL: Duration = Duration::from_millis(1);

/// Time between two attempts to write to a file that took no more, while no trace comes.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Whether the log has the steps of packets.
pub fn logs_packets() -> bool {
    tracing::enabled!(target: "packet", tracing::Level::TRACE)
}

/// The event log, and the socket of those that subscribe to it.
pub struct Events {
    pub publisher: Arc<Publisher>,
    pub log: EventLog,
}

/// Writes traces: each as a line of JSON or as a message, as lines of the log, and as events.
pub struct TraceWriter {
    file: Option<TraceFile>,
    /// Whether the file has messages, each with its length in front.
    messages: bool,
    name: String,
    log: bool,
    events: Option<Events>,
}

impl TraceWriter {
    /// A writer to a file, over an existing one, to the log if it has level `trace`, and to subscribers;
    /// `None`: there is none of these.
    ///
    /// # Errors
    /// Names the file.
    pub fn create(path: Option<&Path>, events: Option<Events>) -> anyhow::Result<Option<Self>> {
        let log = logs_packets();
        if path.is_none() && !log && events.is_none() {
            return Ok(None);
        }
        let name = path.map_or_else(String::new, |path| path.display().to_string());
        let file = path
            .map(TraceFile::create)
            .transpose()
            .with_context(|| format!("cannot create {name}"))?;
        let messages = path.is_some_and(|path| path.extension().is_some_and(|end| end == MESSAGES));
        Ok(Some(Self {
            file,
            messages,
            name,
            log,
            events,
        }))
    }

    /// Whether all packets must be traced, also while nobody has subscribed.
    pub fn takes_all(&self) -> bool {
        self.file.is_some() || self.log
    }

    /// The socket of subscribers to events.
    pub fn publisher(&self) -> Option<&Arc<Publisher>> {
        self.events.as_ref().map(|events| &events.publisher)
    }

    /// Writes the traces of a switch that are complete.
    ///
    /// # Errors
    /// The file takes no more; the text names it.
    pub fn write_all(&mut self, switch: &mut Switch) -> anyhow::Result<()> {
        while let Some(trace) = switch.take_trace() {
            if self.write(&trace) {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes a trace to the log and to subscribers, and to the memory for the file. Returns whether a
    /// whole block waits there.
    fn write(&mut self, trace: &PacketTrace) -> bool {
        if self.log {
            for line in to_lines(trace) {
                tracing::trace!(target: "packet", "{line}");
            }
        }
        if let Some(Events { publisher, log }) = &mut self.events
            && publisher.has_subscribers()
        {
            log.put(trace, |message| publisher.publish(message));
        }
        let Some(file) = &mut self.file else {
            return false;
        };
        file.put(|block| {
            if self.messages {
                to_delimited(trace, block);
            } else {
                trace.to_json(block);
                block.push(b'\n');
            }
        });
        file.has_block()
    }

    /// Writes what is still in memory.
    ///
    /// # Errors
    /// The file takes no more; the text names it.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        let flushed = self.file.as_mut().map_or(Ok(()), TraceFile::flush);
        flushed.with_context(|| format!("cannot write {}", self.name))
    }

    /// As [`flush`](Self::flush), for a switch that goes on without the file: says when the file takes no
    /// more traces, and when it does again.
    fn flush_or_say(&mut self) {
        let was_behind = self.is_behind();
        match self.flush() {
            Err(error) if !was_behind => {
                tracing::warn!("packet traces are lost until there is room for them: {error:#}");
            }
            Ok(()) if was_behind => {
                let (lost, name) = (self.lost(), &self.name);
                tracing::warn!(lost, "packet traces are written again to {name}");
            }
            _ => {}
        }
    }

    /// Whether the file took no more at the last attempt.
    fn is_behind(&self) -> bool {
        self.file.as_ref().is_some_and(TraceFile::is_behind)
    }

    /// Traces that are not in the file, and never will be.
    fn lost(&self) -> u64 {
        self.file.as_ref().map_or(0, TraceFile::lost)
    }
}

/// Takes traces from the thread that owns the switch, which must not wait for a disk, to one that
/// writes them.
pub struct TraceThread {
    sender: SyncSender<PacketTrace>,
    thread: JoinHandle<()>,
    /// Traces that found no room on their way to the thread.
    slow: u64,
    /// Traces that are not in the file and never will be, as of the last time that the thread wrote.
    not_written: Arc<AtomicU64>,
    /// See [`TraceWriter::takes_all`].
    takes_all: bool,
    publisher: Option<Arc<Publisher>>,
    /// Packets are traced.
    traces: bool,
}

impl TraceThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// There are too many threads.
    pub fn start(writer: TraceWriter) -> anyhow::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let takes_all = writer.takes_all();
        let publisher = writer.publisher().cloned();
        let not_written = Arc::new(AtomicU64::new(0));
        let thread = std::thread::Builder::new()
            .name("traces".into())
            .spawn({
                let not_written = Arc::clone(&not_written);
                move || write_until_end(writer, &receiver, &not_written)
            })
            .context("cannot start the thread that writes traces")?;
        Ok(Self {
            sender,
            thread,
            slow: 0,
            not_written,
            takes_all,
            publisher,
            traces: takes_all,
        })
    }

    /// Has a switch trace packets for as long as anybody takes the traces.
    pub fn trace_if_wanted(&mut self, switch: &mut Switch) {
        let publisher = self.publisher.as_ref();
        let wanted = self.takes_all || publisher.is_some_and(|it| it.has_subscribers());
        if wanted != self.traces {
            self.traces = wanted;
            switch.set_tracing(wanted);
        }
    }

    /// Hands over the traces of a switch that are complete. Traces that find no room are lost.
    pub fn hand_over(&mut self, switch: &mut Switch) {
        while let Some(trace) = switch.take_trace() {
            self.slow += u64::from(self.sender.try_send(trace).is_err());
        }
    }

    /// The traces that were lost, by cause.
    pub fn lost(&self) -> Vec<DropCount> {
        lost(self.slow, &self.not_written)
    }

    /// Waits until everything is written. Returns the traces that were lost, by cause.
    pub fn finish(self) -> Vec<DropCount> {
        drop(self.sender);
        if self.thread.join().is_err() {
            tracing::error!("the thread that writes traces has failed");
        }
        lost(self.slow, &self.not_written)
    }
}

/// Traces that were lost, by cause.
fn lost(slow: u64, not_written: &AtomicU64) -> Vec<DropCount> {
    let not_written = not_written.load(Ordering::Relaxed);
    [
        ("trace-writer-slow", slow),
        ("trace-not-written", not_written),
    ]
    .map(|(cause, packets)| DropCount { cause, packets })
    .to_vec()
}

/// Writes traces until there is nobody to send more, and flushes whenever none waits. A file that takes no
/// more is tried again. `not_written` gets the number of traces that are not in it.
fn write_until_end(
    mut writer: TraceWriter,
    receiver: &Receiver<PacketTrace>,
    not_written: &AtomicU64,
) {
    loop {
        let next = if writer.is_behind() {
            receiver.recv_timeout(RETRY_INTERVAL)
        } else {
            receiver.recv().map_err(RecvTimeoutError::from)
        };
        match next {
            Ok(trace) => {
                for trace in std::iter::once(trace).chain(receiver.try_iter()) {
                    // A file that is behind loses what it has no room for.
                    if writer.write(&trace) && !writer.is_behind() {
                        writer.flush_or_say();
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        writer.flush_or_say();
        not_written.store(writer.lost(), Ordering::Relaxed);
        std::thread::sleep(WRITE_INTERVAL);
    }
    let lost = writer.file.take().map_or(0, TraceFile::close);
    not_written.store(lost, Ordering::Relaxed);
}
