//! Runs machine code, and the functions that it calls back: the interpreter's own.
#![expect(unsafe_code, reason = "generated code is called, and calls back")]

use super::Pipeline;
use crate::api::Externs;
use crate::context::Context;
use crate::engine::{Chosen, Machine, Outcome, fault, hold as hold_packet, to_index};
use crate::machine_code::{Applied, Call, Callbacks, Env, Input, Status};
use crate::ops::{Code, Op};
use crate::slot::Slot;
use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The data of callbacks. They make a [`Machine`] of it, since most parts call none.
struct Work<'a, E> {
    pipeline: &'a mut Pipeline,
    externs: &'a E,
    now_ns: u64,
    /// A panic of a callback. It must not unwind through machine code, so it goes on after it.
    panic: Option<Box<dyn Any + Send>>,
}

/// The callbacks of a caller's [`Externs`].
struct CallbacksFor<E>(E);

impl<E: Externs> CallbacksFor<E> {
    const ALL: &'static Callbacks = &Callbacks {
        step: step::<E>,
        run: run::<E>,
        apply: apply::<E>,
        hold: hold::<E>,
        backlog: backlog::<E>,
        value_set: value_set::<E>,
        compute: compute::<E>,
        write_header: write_header::<E>,
        write_headers: write_headers::<E>,
    };
}

impl Pipeline {
    /// A call of the part of the machine code that takes `input`, if packets go through it. Steps are
    /// the interpreter's.
    #[inline]
    pub(super) fn compiled<'a, E: Externs>(&self, input: Input<'a>) -> Option<Call<'a>> {
        if E::STEPS {
            return None;
        }
        self.machine_code.as_ref().map(|code| code.call(input))
    }

    /// Runs a part of the machine code ([`Self::compiled`]) on a packet.
    #[inline]
    pub(super) fn run_part<E: Externs>(
        &mut self,
        call: Call<'_>,
        ctx: &mut Context,
        (externs, now_ns): (&E, u64),
    ) -> u64 {
        if !ctx.fits(&self.program) {
            debug_assert!(false, "the context is of another pipeline");
            ctx.internal_error = true;
            return 0;
        }
        let cells = self.state.cells.first_word();
        let mut work = Work {
            pipeline: self,
            externs,
            now_ns,
            panic: None,
        };
        let mut env = Env {
            phv: ctx.phv.as_mut_ptr(),
            places: ctx.unchanged.places(),
            key: ctx.key.as_mut_ptr(),
            frame: ctx.frame_address(),
            length: ctx.frame_len(),
            given: call.given(),
            cells,
            now_ns,
            error: 0,
            callbacks: CallbacksFor::<E>::ALL,
            ctx,
            machine: (&raw mut work).cast::<c_void>(),
        };
        // SAFETY: the machine code and the state are of the program (`Pipeline::load`), and the
        // context fits it, as was checked above. The frame is where the context says, and the input is
        // the one that `call` has for its function. None of what `env` points to moves or is freed before
        // the call ends, and `self` and `ctx` are borrowed for as long. The callbacks are those of `E`.
        let answer = unsafe { call.function()(&raw mut env) };
        if let Some(panic) = work.panic {
            resume_unwind(panic);
        }
        answer
    }
}

/// Executes one operation.
fn one<E: Externs>(
    machine: &mut Machine<'_, E>,
    ctx: &mut Context,
    at: u32,
) -> Result<Status, Outcome> {
    let Some(op) = machine.program.ops.get(at as usize) else {
        return Err(Outcome::Fault);
    };
    if matches!(
        op,
        Op::RegisterRead { .. } | Op::Meter { .. } | Op::Random { .. }
    ) {
        let mut next = at + 1;
        return match machine.step_state(ctx, op, &mut next) {
            Outcome::Done if next != at + 1 => Ok(Status::Skipped),
            Outcome::Done => Ok(Status::Done),
            outcome => Err(outcome),
        };
    }
    let code = Code {
        start: at,
        end: at + 1,
        changes: 0,
    };
    match machine.run(ctx, code) {
        Outcome::Done => Ok(Status::Done),
        outcome => Err(outcome),
    }
}

/// Lets `work` work with what a callback was called with. After a panic the answer is `failed`.
///
/// # Safety
/// Only callbacks of [`CallbacksFor`] the same `E` call it, with their `env`.
#[inline(always)]
unsafe fn with<E: Externs>(
    env: *mut Env,
    failed: u64,
    work: impl FnOnce(&mut Machine<'_, E>, &mut Context, &mut u64) -> u64,
) -> u64 {
    // SAFETY: machine code passes on the `env` that `run_part` gave it, with callbacks of the same
    // type `E`. `run_part` has exclusive references to the pipeline and the context and uses neither
    // before the machine code returns; the machine code itself holds none and waits for the answer.
    let (env, all, ctx) = unsafe {
        let env = &mut *env;
        let all = &mut *env.machine.cast::<Work<'_, E>>();
        (&mut env.error, all, &mut *env.ctx)
    };
    let mut machine = all.pipeline.machine(all.externs, all.now_ns);
    match catch_unwind(AssertUnwindSafe(|| work(&mut machine, ctx, env))) {
        Ok(answer) => answer,
        Err(panic) => {
            all.panic = Some(panic);
            failed
        }
    }
}

/// An end of code as a status, with the parser error.
fn status(outcome: Outcome, error: &mut u64) -> u64 {
    let status = match outcome {
        Outcome::Done => Status::Done,
        Outcome::Exit => Status::Exit,
        Outcome::Asserted => Status::Asserted,
        Outcome::Fault => Status::Fault,
        Outcome::Error(code) => {
            *error = code;
            Status::Error
        }
    };
    status as u64
}

unsafe extern "C" fn step<E: Externs>(env: *mut Env, at: u64) -> u64 {
    // SAFETY: this is a callback for `E`.
    unsafe {
        with::<E>(env, Status::Fault as u64, |machine, ctx, error| {
            match one(machine, ctx, at as u32) {
                Ok(done) => done as u64,
                Err(outcome) => status(outcome, error),
            }
        })
    }
}

unsafe extern "C" fn run<E: Externs>(env: *mut Env, code: u64) -> u64 {
    // SAFETY: this is a callback for `E`.
    unsafe {
        with::<E>(env, Status::Fault as u64, |machine, ctx, error| {
            let code = Code {
                start: code as u32,
                end: (code >> 32) as u32,
                changes: 0,
            };
            status(machine.run(ctx, code), error)
        })
    }
}

unsafe extern "C" fn apply<E: Externs>(env: *mut Env, table: u64) -> u64 {
    // SAFETY: this is a callback for `E`.
    unsafe {
        with::<E>(env, u64::MAX, |machine, ctx, _| {
            let table = to_index(table);
            let Some(found) = machine.tables.get(table) else {
                return u64::MAX;
            };
            let key = ctx.key.get(..found.spec.key_words);
            let hit = key.and_then(|key| found.find_key(key));
            let actions = found.spec.actions.len();
            let choice = match machine.choose(ctx, table, hit) {
                Chosen::Action(local) => local,
                Chosen::Nothing => actions,
                Chosen::Fault => {
                    fault();
                    actions + 1
                }
            };
            Applied::encode(choice, hit.is_some())
        })
    }
}

unsafe extern "C" fn hold<E: Externs>(env: *mut Env, args: u64) -> u64 {
    // SAFETY: this is a callback for `E`.
    unsafe {
        with::<E>(env, 0, |_, ctx, _| {
            hold_packet(ctx, args as Slot);
            0
        })
    }
}

unsafe extern "C" fn backlog<E: Externs>(env: *mut Env, class: u64) -> u64 {
    // SAFETY: this is a callback for `E`.
    unsafe { with::<E>(env, 0, |machine, _, _| machine.backlog(class)) }
}

unsafe extern "C" fn value_set<E: Externs>(env: *mut Env, place: u64) -> u64 {
    // SAFETY: this is a callback for `E`.
    unsafe {
        with::<E>(env, 0, |machine, ctx, _| {
            u64::from(machine.value_sets.contains(place as u16, &ctx.phv))
        })
    }
}

unsafe extern "C" fn compute<E: Externs>(env: *mut Env, calculation: u64) -> u64 {
    // SAFETY: this is a callback for `E`.
    unsafe {
        with::<E>(env, 0, |machine, ctx, _| {
            let program = machine.program;
            let calculation = program.calculations.get(to_index(calculation));
            calculation.map_or(0, |calculation| ctx.compute(calculation, &program.kinds))
        })
    }
}

unsafe extern "C" fn write_header<E: Externs>(env: *mut Env, position: u64) -> u64 {
    // SAFETY: this is a callback for `E`.
    unsafe {
        with::<E>(env, 0, |machine, ctx, _| {
            machine.rewrite_header(ctx, to_index(position));
            0
        })
    }
}

unsafe extern "C" fn write_headers<E: Externs>(env: *mut Env, _: u64) -> u64 {
    // SAFETY: this is a callback for `E`.
    unsafe {
        with::<E>(env, 0, |machine, ctx, _| {
            machine.write_all(ctx).note(ctx);
            0
        })
    }
}
