//! The file of traces, which may take no more for a while: a full disk, a quota, a pipe whose reader has gone.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Bytes that are written to the file at once, or a few more; also what waits for a file that takes no more.
const BLOCK_BYTES: usize = 1 << 20;

/// A file of traces. Bytes that it does not take wait in memory, up to a block, until it takes more.
/// Traces beyond that are lost. No trace is cut, unless the process is killed.
pub(super) struct TraceFile {
    file: File,
    block: Block,
    /// The file took no more at the last attempt.
    behind: bool,
    lost: u64,
}

impl TraceFile {
    /// A new file, over an existing one.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::create(path)?,
            block: Block::default(),
            behind: false,
            lost: 0,
        })
    }

    /// Appends the trace that `write` writes to the end of a buffer.
    pub(super) fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.behind && self.has_block() {
            self.lost += 1;
        } else {
            self.block.put(write);
        }
    }

    /// Whether as much waits as is written at once.
    pub(super) fn has_block(&self) -> bool {
        self.block.bytes.len() >= BLOCK_BYTES
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let written = self.block.write_to(&mut self.file);
        self.behind = written.is_err();
        written
    }

    /// Whether the file took no more at the last attempt.
    pub(super) fn is_behind(&self) -> bool {
        self.behind
    }

    /// Traces lost.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Writes what waits, and returns the traces lost, with those that the file does not take.
    pub(super) fn close(mut self) -> u64 {
        self.end();
        self.lost
    }

    /// Writes what waits. Of the last trace in the file there is all or nothing.
    fn end(&mut self) {
        if self.flush().is_ok() {
            return;
        }
        let Block { ends, begun, .. } = std::mem::take(&mut self.block);
        self.lost += ends.len() as u64;
        // A pipe cannot be cut. Where the kernel refuses to cut a file, nobody is there to handle that.
        if let Ok(data) = self.file.metadata()
            && data.is_file()
        {
            let _ = self.file.set_len(data.len().saturating_sub(begun));
        }
    }
}

impl Drop for TraceFile {
    /// The traces of a run that fails are in the file, too.
    fn drop(&mut self) {
        self.end();
    }
}

/// Traces that wait to be written, one after the other.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    /// Where each trace ends in the bytes.
    ends: Vec<usize>,
    /// Bytes of the first trace that are written already.
    begun: u64,
}

impl Block {
    fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Writes the bytes until there are no more, or `out` takes no more. Those that are written are removed.
    fn write_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        let mut rest = self.bytes.as_slice();
        let written = loop {
            if rest.is_empty() {
                break Ok(());
            }
            match out.write(rest) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => rest = rest.get(bytes..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let bytes = self.bytes.len() - rest.len();
        self.remove(bytes);
        written
    }

    /// Removes bytes that are written.
    fn remove(&mut self, bytes: usize) {
        let whole = self.ends.partition_point(|end| *end <= bytes);
        let last_end = self.ends.drain(..whole).next_back();
        let of_next = bytes - last_end.unwrap_or(0);
        let before = if last_end.is_some() { 0 } else { self.begun };
        self.begun = before + of_next as u64;
        self.bytes.drain(..bytes);
        for end in &mut self.ends {
            *end -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for some bytes.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room - self.bytes.len());
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.bytes.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn put(block: &mut Block, text: &str) {
        block.put(|bytes| bytes.extend_from_slice(text.as_bytes()));
    }

    #[test]
    fn what_a_full_disk_does_not_take_follows_when_there_is_room() {
        for room in 0..12 {
            let mut disk = Disk {
                bytes: Vec::new(),
                room,
            };
            let mut block = Block::default();
            for text in ["one\n", "two\n", "six\n"] {
                put(&mut block, text);
            }
            assert!(block.write_to(&mut disk).is_err());
            assert_eq!(block.ends.len(), 3 - room / 4, "room {room}");
            assert_eq!(block.begun, room as u64 % 4, "room {room}");
            // A second attempt without room changes nothing.
            assert!(block.write_to(&mut disk).is_err());
            assert_eq!(block.begun, room as u64 % 4, "room {room}");
            put(&mut block, "ten\n");
            disk.room = 16;
            assert!(block.write_to(&mut disk).is_ok());
            assert_eq!(disk.bytes, b"one\ntwo\nsix\nten\n");
            assert_eq!((block.ends.len(), block.begun), (0, 0));
        }
    }

    #[test]
    fn a_trace_that_is_written_in_three_parts_is_begun_until_the_last() {
        let mut disk = Disk {
            bytes: Vec::new(),
            room: 2,
        };
        let mut block = Block::default();
        put(&mut block, "seven\n");
        assert!(block.write_to(&mut disk).is_err());
        disk.room = 4;
        assert!(block.write_to(&mut disk).is_err());
        assert_eq!((block.ends.len(), block.begun), (1, 4));
        disk.room = 6;
        assert!(block.write_to(&mut disk).is_ok());
        assert_eq!((block.ends.len(), block.begun), (0, 0));
    }

    #[test]
    fn no_more_than_a_block_waits_for_a_full_disk() {
        let mut file = TraceFile::create(Path::new("/dev/full")).expect("Linux has it");
        let trace = |block: &mut Vec<u8>| block.resize(block.len() + BLOCK_BYTES / 4, b'.');
        for _ in 0..3 {
            file.put(trace);
        }
        assert!(file.flush().is_err());
        assert!(file.is_behind());
        for _ in 0..5 {
            file.put(trace);
        }
        assert_eq!(file.lost(), 4);
        // Those that wait are lost, too.
        assert_eq!(file.close(), 8);
    }
}
