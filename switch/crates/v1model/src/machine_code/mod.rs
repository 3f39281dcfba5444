//! Programs as machine code: Cranelift translates the compiled program when it is loaded.
//!
//! Each stage of a packet is one function: parser with checksums to verify, ingress, egress, and
//! checksums to update with the deparser. Headers, conditions and operations on words become loads,
//! shifts and stores. For everything else the code calls the interpreter's own function
//! ([`Callbacks`]), so all programs can be translated, and the results are the same.
//!
//! Slots are checked here, when the code is made; the code itself does not check them. Memory of
//! programs is not writable once it can be executed.

mod bytes;
mod call;
mod checksums;
mod control;
mod deparser;
mod emitter;
mod env;
mod given;
mod headers;
mod memory;
mod ops;
mod parser;
mod part;
mod source;
mod untranslated;
mod words;

pub(crate) use call::{Call, Input};
use cranelift_codegen::Context as Compilation;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, Signature, types};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use emitter::Emitter;
pub(crate) use env::{Applied, Callbacks, Env, Status};
pub(crate) use given::CLEARED_WORDS_MAX;
use memory::{Memory, Text};
use part::{PARTS, Part};
pub(crate) use source::Source;
use untranslated::Result;
pub(crate) use untranslated::Untranslated;

/// Most bytes of machine code of a program.
const MAX_CODE_BYTES: usize = 16 << 20;

/// A program's machine code.
#[derive(Debug)]
pub(crate) struct MachineCode {
    memory: Memory,
    bytes: usize,
}

impl MachineCode {
    /// Translates a program.
    ///
    /// # Errors
    /// There is no translator for this processor, or the code exceeds a limit.
    pub fn new(source: &Source<'_>) -> Result<Self> {
        let text = translate(&*processor()?, source)?;
        Ok(Self {
            memory: Memory::new(&text)?,
            bytes: text.len(),
        })
    }

    /// Bytes of machine code.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A call of the part that takes `input`.
    #[inline]
    pub fn call<'a>(&self, input: Input<'a>) -> Call<'a> {
        Call::new(&self.memory, input)
    }
}

/// The translator for this processor.
fn processor() -> Result<OwnedTargetIsa> {
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", "speed"),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        (
            "enable_verifier",
            if cfg!(any(debug_assertions, test)) {
                "true"
            } else {
                "false"
            },
        ),
        ("unwind_info", "false"),
        // A large stack frame calls no function of a library.
        ("probestack_strategy", "inline"),
    ] {
        flags.set(name, value).map_err(Untranslated::new)?;
    }
    if !cfg!(target_pointer_width = "64") {
        return Err(Untranslated::new("addresses have no 64 bits"));
    }
    let builder = cranelift_native::builder().map_err(Untranslated::new)?;
    let flags = settings::Flags::new(flags);
    builder.finish(flags).map_err(Untranslated::new)
}

/// Translates all parts.
fn translate(processor: &dyn TargetIsa, source: &Source<'_>) -> Result<Text> {
    let mut frontend = FunctionBuilderContext::new();
    let mut text = Text::default();
    for part in PARTS {
        let mut compilation = Compilation::new();
        compilation.func.signature = signature(processor);
        let builder = FunctionBuilder::new(&mut compilation.func, &mut frontend);
        Emitter::new(builder, source)?.part(part)?;
        let mut control = ControlPlane::default();
        let compiled = compilation.compile(processor, &mut control);
        let compiled = compiled.map_err(|error| Untranslated(format!("{:?}", error.inner)))?;
        text.add(compiled.code_buffer(), compiled.buffer.alignment as usize);
        if text.len() > MAX_CODE_BYTES {
            return Err(Untranslated(format!(
                "the machine code exceeds {MAX_CODE_BYTES} bytes"
            )));
        }
        if !compiled.buffer.relocs().is_empty() {
            return Err(Untranslated::new("the machine code needs a symbol"));
        }
    }
    Ok(text)
}

/// The signature of [`memory::Function`].
fn signature(processor: &dyn TargetIsa) -> Signature {
    let mut signature = Signature::new(processor.default_call_conv());
    signature.params.push(AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I64));
    signature
}

impl Emitter<'_, '_> {
    /// Writes a part, and completes the function.
    fn part(mut self, part: Part) -> Result<()> {
        let program = self.source.program;
        match part {
            Part::Parser => self.parser()?,
            Part::Ingress => self.control(program.ingress)?,
            Part::Egress => {
                self.enter_egress()?;
                self.control(program.egress)?;
            }
            Part::Deparser => self.deparser()?,
        }
        self.complete();
        Ok(())
    }
}
