//! Capture files with nanosecond stamps: the input and output of virtual time, and `--pcap`.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};

/// Longest frame written whole.
const SNAP_BYTES: u32 = 65_535;

/// `stem_in.pcap` or `stem_out.pcap`, as simple_switch's `--use-files` names them.
pub fn path(stem: &Path, direction: Direction) -> PathBuf {
    let suffix = match direction {
        Direction::In => "_in.pcap",
        Direction::Out => "_out.pcap",
    };
    let mut name = stem.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Seen from the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// Data not yet written to a file, shared by the writer and [`CaptureWriter::flush`].
#[derive(Clone)]
struct Buffer(Rc<RefCell<BufWriter<File>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

/// Writes one capture file.
pub struct CaptureWriter {
    writer: PcapWriter<Buffer>,
    buffer: Buffer,
    /// The buffer may hold something.
    unwritten: bool,
}

impl CaptureWriter {
    /// Creates the file, over an existing one.
    ///
    /// # Errors
    /// Names the file.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let header = PcapHeader {
            ts_resolution: TsResolution::NanoSecond,
            datalink: DataLink::ETHERNET,
            endianness: Endianness::Little,
            snaplen: SNAP_BYTES,
            ..PcapHeader::default()
        };
        let file =
            File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        let buffer = Buffer(Rc::new(RefCell::new(BufWriter::new(file))));
        let writer = PcapWriter::with_header(buffer.clone(), header)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            writer,
            buffer,
            unwritten: true,
        })
    }

    /// Appends a frame with its time in nanoseconds.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, frame: &[u8], at_ns: u64) -> anyhow::Result<()> {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let packet = PcapPacket::new(Duration::from_nanos(at_ns), length, frame);
        self.unwritten = true;
        self.writer.write_packet(&packet)?;
        Ok(())
    }

    /// Writes the data in memory to the file, for readers of the growing file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> std::io::Result<()> {
        if std::mem::take(&mut self.unwritten) {
            self.buffer.flush()?;
        }
        Ok(())
    }
}

/// A capture that gets its name only when it is complete. Until then a file of that name stays as it
/// is.
pub struct WholeCapture {
    writer: CaptureWriter,
    part: PartFile,
    path: PathBuf,
}

/// A file that is deleted with its owner.
struct PartFile(PathBuf);

impl Drop for PartFile {
    fn drop(&mut self) {
        // A complete file has been renamed. An error of the removal cannot be handled here.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl WholeCapture {
    /// Begins the capture, in `PATH.part`.
    ///
    /// # Errors
    /// Names the file.
    pub fn create(path: PathBuf) -> anyhow::Result<Self> {
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let part = PartFile(PathBuf::from(part));
        let writer = CaptureWriter::create(&part.0)?;
        Ok(Self { writer, part, path })
    }

    /// Appends a frame, as [`CaptureWriter::write`].
    ///
    /// # Errors
    /// Names the file.
    pub fn write(&mut self, frame: &[u8], at_ns: u64) -> anyhow::Result<()> {
        self.writer
            .write(frame, at_ns)
            .with_context(|| format!("cannot write {}", self.part.0.display()))
    }

    /// Writes the data in memory to the file and gives the file its name.
    ///
    /// # Errors
    /// Names the file.
    pub fn finish(self) -> anyhow::Result<()> {
        let Self {
            mut writer,
            part,
            path,
        } = self;
        writer
            .flush()
            .and_then(|()| std::fs::rename(&part.0, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Reads one capture, frame by frame.
pub struct CaptureReader<R: Read> {
    reader: PcapReader<R>,
    name: String,
    last_ns: u64,
}

impl CaptureReader<BufReader<File>> {
    /// Opens a file; microsecond captures are read, too.
    ///
    /// # Errors
    /// Names the file; it is missing or no Ethernet capture.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
        Self::new(BufReader::new(file), name)
    }
}

impl<R: Read> CaptureReader<R> {
    /// Reads a capture's header. `name` stands in the errors.
    ///
    /// # Errors
    /// The bytes are no Ethernet capture.
    pub fn new(reader: R, name: String) -> anyhow::Result<Self> {
        let reader =
            PcapReader::new(reader).with_context(|| format!("{name} is not a pcap file"))?;
        anyhow::ensure!(
            reader.header().datalink == DataLink::ETHERNET,
            "{name} is not a capture of Ethernet frames"
        );
        Ok(Self {
            reader,
            name,
            last_ns: 0,
        })
    }

    /// The next frame with its time in nanoseconds.
    ///
    /// # Errors
    /// The file ends inside a packet, or its times run backwards.
    pub fn next_frame(&mut self) -> anyhow::Result<Option<(u64, Vec<u8>)>> {
        let Some(packet) = self.reader.next_packet() else {
            return Ok(None);
        };
        let packet = packet.with_context(|| self.name.clone())?;
        let at_ns = u64::try_from(packet.timestamp.as_nanos())
            .with_context(|| format!("{}: time out of range", self.name))?;
        anyhow::ensure!(
            at_ns >= self.last_ns,
            "{}: times run backwards at {at_ns} ns",
            self.name
        );
        self.last_ns = at_ns;
        Ok(Some((at_ns, packet.data.into_owned())))
    }
}
