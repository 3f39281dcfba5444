//! The log in a file (`--log-file`), as simple_switch writes it: in `FILE.txt`, which becomes `FILE.1.txt` when it is
//! full.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use crate::say::say;

/// Most older files.
const OLDER_MAX: i64 = 1_000;

/// The options of the file.
#[derive(Args, Debug, Clone)]
pub struct LogFileOptions {
    /// Log at level debug, to FILE.txt instead of standard error. Messages are written at once, behind those
    /// that are there already.
    #[arg(long, value_name = "FILE", conflicts_with = "log_console")]
    log_file: Option<PathBuf>,

    /// Most bytes of FILE.txt. When it is full it becomes FILE.1.txt, FILE.1.txt becomes FILE.2.txt, and so on.
    #[arg(long, default_value_t = 5 << 20, value_name = "BYTES",
          value_parser = clap::value_parser!(u64).range(1..))]
    log_file_max_size: u64,

    /// Most files beside FILE.txt (0 to 1000). The oldest one is deleted.
    #[arg(long, default_value_t = 3, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=OLDER_MAX))]
    log_file_max_files: u32,

    /// Accepted for scripts of simple_switch_grpc: each message is written at once without it, too.
    #[arg(long)]
    log_flush: bool,
}

impl LogFileOptions {
    /// Whether the log goes to a file.
    pub fn is_given(&self) -> bool {
        self.log_file.is_some()
    }

    /// Opens the file, if one is given.
    ///
    /// # Errors
    /// Names the file.
    pub fn open(&self) -> anyhow::Result<Option<LogFile>> {
        let Some(stem) = &self.log_file else {
            return Ok(None);
        };
        let path = path(stem, 0);
        let opened = LogFile::open(stem, self.log_file_max_size, self.log_file_max_files);
        let file =
            opened.with_context(|| format!("--log-file: cannot write {}", path.display()))?;
        Ok(Some(file))
    }
}

/// The file of a number: 0 is the one that is written, 1 the one before.
fn path(stem: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(stem);
    if number > 0 {
        name.push(format!(".{number}"));
    }
    name.push(".txt");
    name.into()
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// A file of messages. Each call of `write` is one message. A message that the disk does not take is lost, and the
/// switch goes on. Standard error has the first error; in the file, a line in front of the next message has the number
/// of those that are lost.
pub struct LogFile {
    stem: PathBuf,
    bytes_max: u64,
    older_max: u32,
    file: File,
    bytes: u64,
    /// Messages lost since the last one that is in the file.
    lost: u64,
    /// The first error has been said.
    said: bool,
}

impl LogFile {
    fn open(stem: &Path, bytes_max: u64, older_max: u32) -> io::Result<Self> {
        let file = open(&path(stem, 0))?;
        Ok(Self {
            stem: stem.to_owned(),
            bytes_max,
            older_max,
            bytes: file.metadata()?.len(),
            file,
            lost: 0,
            said: false,
        })
    }

    fn put(&mut self, message: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes.saturating_add(message.len() as u64) > self.bytes_max {
            self.begin_anew()?;
        }
        if self.lost > 0 {
            let note = format!(
                "pacing_switch: {} messages before this are lost\n",
                self.lost
            );
            self.append(note.as_bytes())?;
            self.lost = 0;
        }
        self.append(message)
    }

    /// Gives each file the next number, and begins a new one.
    fn begin_anew(&mut self) -> io::Result<()> {
        // It does not exist after an attempt that could not create the new file.
        if path(&self.stem, 0).try_exists()? {
            for number in (0..self.older_max).rev() {
                match fs::rename(path(&self.stem, number), path(&self.stem, number + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        self.file = open(&path(&self.stem, 0))?;
        // With no older files, it is the same one.
        self.file.set_len(0)?;
        self.bytes = 0;
        Ok(())
    }

    /// Appends all of a text or nothing.
    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(text);
        if written.is_ok() {
            self.bytes += text.len() as u64;
        } else {
            // A device cannot be cut, and has no messages that are cut.
            let _ = self.file.set_len(self.bytes);
        }
        written
    }
}

impl Write for LogFile {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.put(message) {
            self.lost += 1;
            if !self.said {
                self.said = true;
                say(&format!(
                    "pacing_switch: messages of the log are lost: cannot write {}: {error}\n",
                    path(&self.stem, 0).display()
                ));
            }
        }
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is gone after the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("log-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a folder");
            Self(folder)
        }

        /// The files by name, with their text.
        fn files(&self) -> Vec<(String, String)> {
            let entries = fs::read_dir(&self.0).expect("own folder");
            let mut files: Vec<_> = entries
                .map(|entry| {
                    let entry = entry.expect("own folder");
                    let text = fs::read_to_string(entry.path()).expect("own file");
                    (entry.file_name().into_string().expect("a text"), text)
                })
                .collect();
            files.sort();
            files
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn named(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        files.iter().map(owned).collect()
    }

    #[test]
    fn a_full_file_gets_a_number_and_the_oldest_one_is_deleted() {
        let folder = Folder::new("full");
        let mut log = LogFile::open(&folder.0.join("s1"), 8, 2).expect("opened");
        for message in [
            "one\n",
            "two\n",
            "three\n",
            "four\n",
            "a message of more bytes\n",
            "six\n",
        ] {
            log.write_all(message.as_bytes()).expect("never an error");
        }
        let long = "a message of more bytes\n";
        let files = [
            ("s1.1.txt", long),
            ("s1.2.txt", "four\n"),
            ("s1.txt", "six\n"),
        ];
        assert_eq!(folder.files(), named(&files));
        // Another switch goes on behind the last message.
        let mut log = LogFile::open(&folder.0.join("s1"), 8, 0).expect("opened");
        log.write_all(b"ten\n").expect("never an error");
        assert_eq!(folder.files()[2].1, "six\nten\n");
        log.write_all(b"end\n").expect("never an error");
        assert_eq!(folder.files()[2].1, "end\n");
    }

    #[test]
    fn messages_that_are_lost_are_counted_in_front_of_the_next_one() {
        let folder = Folder::new("lost");
        let mut log = LogFile::open(&folder.0.join("s1"), 1_000, 3).expect("opened");
        log.write_all(b"one\n").expect("never an error");
        let disk = std::mem::replace(&mut log.file, open(Path::new("/dev/full")).expect("Linux"));
        for _ in 0..2 {
            log.write_all(b"lost\n").expect("never an error");
        }
        log.file = disk;
        log.write_all(b"two\n").expect("never an error");
        let text = "one\npacing_switch: 2 messages before this are lost\ntwo\n";
        assert_eq!(folder.files(), named(&[("s1.txt", text)]));
    }

    #[test]
    fn a_file_that_cannot_be_renamed_loses_messages_until_it_can() {
        let folder = Folder::new("renamed");
        let mut log = LogFile::open(&folder.0.join("s1"), 4, 1).expect("opened");
        // A file does not replace a folder.
        fs::create_dir(folder.0.join("s1.1.txt")).expect("own folder");
        for message in ["one\n", "two\n", "six\n"] {
            log.write_all(message.as_bytes()).expect("never an error");
        }
        assert_eq!(log.lost, 2);
        fs::remove_dir(folder.0.join("s1.1.txt")).expect("own folder");
        log.write_all(b"ten\n").expect("never an error");
        let lost = "pacing_switch: 2 messages before this are lost\nten\n";
        assert_eq!(
            folder.files(),
            named(&[("s1.1.txt", "one\n"), ("s1.txt", lost)])
        );
    }
}
