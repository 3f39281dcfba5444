//! Packet traces to a file (`--packet-trace`), to the log (`--log-level trace`) and to subscribers to
//! BMv2's event log (`--nanolog`).

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use notifications::Publisher;
use packet_trace::{EventLog, to_delimited, to_lines};
use switch::Switch;
use switch::trace::PacketTrace;

/// Traces that may wait for the thread that writes them.
const WAITING_MAX: usize = 4_096;

/// Ending of a file that has messages, and not JSON.
const MESSAGES: &str = "binpb";

/// Bytes that are written to the file at once, or a few more.
const BLOCK_BYTES: usize = 1 << 20;

/// Least time between two writes of the thread that writes traces: a burst wakes it once.
const WRITE_INTERVAL: Duration = Duration::from_millis(1);

/// The event log, and the socket of those that subscribe to it.
pub struct Events {
    pub publisher: Arc<Publisher>,
    pub log: EventLog,
}

/// Writes traces: each as a line of JSON or as a message, as lines of the log, and as events.
pub struct TraceWriter {
    file: Option<File>,
    /// Whether the file has messages, each with its length in front.
    messages: bool,
    /// The bytes that go to the file next.
    block: Vec<u8>,
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
        let log = tracing::enabled!(target: "packet", tracing::Level::TRACE);
        if path.is_none() && !log && events.is_none() {
            return Ok(None);
        }
        let name = path.map_or_else(String::new, |path| path.display().to_string());
        let file = path
            .map(File::create)
            .transpose()
            .with_context(|| format!("cannot create {name}"))?;
        let messages = path.is_some_and(|path| path.extension().is_some_and(|end| end == MESSAGES));
        Ok(Some(Self {
            file,
            messages,
            block: Vec::new(),
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
    /// Names the file.
    pub fn write_all(&mut self, switch: &mut Switch) -> anyhow::Result<()> {
        while let Some(trace) = switch.take_trace() {
            self.write(&trace)?;
        }
        Ok(())
    }

    fn write(&mut self, trace: &PacketTrace) -> anyhow::Result<()> {
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
        if self.file.is_some() {
            if self.messages {
                to_delimited(trace, &mut self.block);
            } else {
                trace.to_json(&mut self.block);
                self.block.push(b'\n');
            }
        }
        if self.block.len() < BLOCK_BYTES {
            return Ok(());
        }
        self.flush()
    }

    /// Writes what is still in memory.
    ///
    /// # Errors
    /// Names the file.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        if let Some(file) = &mut self.file {
            let written = file.write_all(&self.block);
            self.block.clear();
            written.with_context(|| format!("cannot write {}", self.name))?;
        }
        Ok(())
    }
}

impl Drop for TraceWriter {
    /// The traces of a run that fails are in the file, too.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

/// Takes traces from the thread that owns the switch, which must not wait for a disk, to one that
/// writes them.
pub struct TraceThread {
    sender: SyncSender<PacketTrace>,
    thread: JoinHandle<anyhow::Result<()>>,
    lost: u64,
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
        let thread = std::thread::Builder::new()
            .name("traces".into())
            .spawn(move || write_until_end(writer, &receiver))
            .context("cannot start the thread that writes traces")?;
        Ok(Self {
            sender,
            thread,
            lost: 0,
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
            self.lost += u64::from(self.sender.try_send(trace).is_err());
        }
    }

    /// Waits until everything is written. Returns how many traces were lost.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn finish(self) -> anyhow::Result<u64> {
        drop(self.sender);
        match self.thread.join() {
            Ok(written) => written.map(|()| self.lost),
            Err(_) => anyhow::bail!("the thread that writes traces has failed"),
        }
    }
}

/// Writes traces until there is nobody to send more, and flushes whenever none waits.
fn write_until_end(
    mut writer: TraceWriter,
    receiver: &Receiver<PacketTrace>,
) -> anyhow::Result<()> {
    while let Ok(trace) = receiver.recv() {
        writer.write(&trace)?;
        for trace in receiver.try_iter() {
            writer.write(&trace)?;
        }
        writer.flush()?;
        std::thread::sleep(WRITE_INTERVAL);
    }
    Ok(())
}
