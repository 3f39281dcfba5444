//! The memory of machine code: executable, not writable, and freed with its owner.
//!
//! The code is written to a file in memory, which is then sealed and mapped. No memory of the process
//! is ever writable and executable, or becomes executable, so the switch runs where the system
//! forbids both.
#![expect(
    unsafe_code,
    reason = "generated code is mapped, and called through its address"
)]

use super::env::Env;
use super::part::{PARTS, Part};
use super::untranslated::{Result, Untranslated};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io::Write;
use std::ptr::{NonNull, null_mut};

/// A function of machine code. It works on what [`Env`] points to: the context, the state and the
/// callbacks must be those of the program that the code was made of.
pub(super) type Function = unsafe extern "C" fn(*mut Env) -> u64;

/// The code of functions, one after the other.
#[derive(Debug, Default)]
pub(super) struct Text {
    bytes: Vec<u8>,
    /// Where each function begins.
    starts: Vec<usize>,
}

impl Text {
    /// Adds the function of the next part, at a multiple of `align`. `code` depends on no address.
    pub fn add(&mut self, code: &[u8], align: usize) {
        let start = self.bytes.len().next_multiple_of(align.max(1));
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(code);
        self.starts.push(start);
    }

    /// Bytes of the code.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// The code of all parts.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<c_void>,
    bytes: usize,
    functions: [Function; PARTS.len()],
}

// SAFETY: the mapping belongs to this value alone, is not tied to a thread, and is never written.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes the functions executable.
    pub fn new(text: &Text) -> Result<Self> {
        let bytes = text.len();
        let file = sealed(&text.bytes)?;
        let executable = ProtFlags::READ | ProtFlags::EXEC;
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else is touched.
        let base = unsafe { mmap(null_mut(), bytes, executable, MapFlags::SHARED, file, 0) };
        let base = base.map_err(|error| refused("map", error))?;
        let base = NonNull::new(base).ok_or_else(|| Untranslated::missing("the memory"))?;
        let mut memory = Self {
            base,
            bytes,
            functions: [nothing; PARTS.len()],
        };
        if text.starts.len() != PARTS.len() {
            return Err(Untranslated::missing("a part"));
        }
        for (function, &start) in memory.functions.iter_mut().zip(&text.starts) {
            let code = base.as_ptr().cast_const().wrapping_byte_add(start);
            // SAFETY: a function that was translated with this signature begins there
            // (`signature`). It stays until `self` is dropped.
            *function = unsafe { std::mem::transmute::<*const c_void, Function>(code) };
        }
        Ok(memory)
    }

    /// The function of a part.
    #[inline]
    pub fn function(&self, part: Part) -> Function {
        self.functions[part as usize]
    }
}

/// A file in memory with these bytes, which nothing can change any more.
fn sealed(bytes: &[u8]) -> Result<File> {
    // No program can be started from it, which the system may demand. Before Linux 6.3 there is no such
    // flag.
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = memfd_create("v1model-code", flags | MemfdFlags::NOEXEC_SEAL);
    let made = match made {
        Err(Errno::INVAL) => memfd_create("v1model-code", flags),
        made => made,
    };
    let mut file = File::from(made.map_err(|error| refused("make", error))?);
    let written = file.write_all(bytes);
    written.map_err(|error| refused("write", error))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(|error| refused("seal", error))?;
    Ok(file)
}

/// The system does not let the memory of code be made.
fn refused(what: &str, error: impl std::fmt::Display) -> Untranslated {
    Untranslated(format!("cannot {what} the memory of code: {error}"))
}

/// In the place of a function that is not there yet.
unsafe extern "C" fn nothing(_: *mut Env) -> u64 {
    0
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`. No function of it runs: one runs only while its
        // caller borrows the owner of this memory. The addresses that others may still have must
        // not be called, as the contract of [`Function`] says: the program is gone.
        let freed = unsafe { munmap(self.base.as_ptr(), self.bytes) };
        debug_assert!(freed.is_ok(), "the memory of code is not unmapped");
    }
}
