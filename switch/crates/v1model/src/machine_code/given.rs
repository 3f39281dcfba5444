//! Standard metadata as instructions: the switch writes it to a packet's words before the program runs,
//! from [`Env::given`].

use super::emitter::{Emitter, given};
use super::env::Env;
use super::untranslated::Result;
use crate::api::{EgressInput, IngressInput, InstanceType};
use crate::context::Context;
use crate::layout::Field;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};
use std::mem::offset_of;

/// Most words of headers and metadata that the parser's code clears. Of more, the caller clears all
/// before: a call of `memset` is faster.
pub(crate) const CLEARED_WORDS_MAX: u32 = 128;

/// A field of an input: its type, and where it is.
macro_rules! of {
    ($input:ident . $field:ident: $kind:ident) => {
        (types::$kind, offset_of!($input, $field))
    };
}

impl Emitter<'_, '_> {
    /// Writes the beginning of the parser: clears headers and metadata, if they are few, and sets the
    /// standard metadata of a packet that comes in; nothing of it if the caller has.
    pub fn enter_parser(&mut self) -> Result<()> {
        let program = self.source.program;
        let input = self.env_word(offset_of!(Env, given));
        let (fresh, ready) = (self.b.create_block(), self.b.create_block());
        self.branch(input, fresh, ready);
        self.begin(fresh);
        if program.field_words <= CLEARED_WORDS_MAX {
            self.clear(program.field_words)?;
        }
        let one = self.number(1);
        for &slot in &program.metadata {
            self.set_word(slot, one)?;
        }
        let i = &program.intrinsics;
        let port = self.given(input, of!(IngressInput.port: I16));
        self.set_field(i.ingress_port, port)?;
        if let Some(field) = i.ingress_global_timestamp {
            let now_us = self.given_us(input, of!(IngressInput.now_ns: I64));
            self.set_field(field, now_us)?;
        }
        self.set_length()?;
        let kind = self.given(input, of!(IngressInput.instance_type: I32));
        self.set_field(i.instance_type, kind)?;
        self.join(ready);
        self.begin_frame();
        Ok(())
    }

    /// Writes the beginning of egress: the standard metadata.
    pub fn enter_egress(&mut self) -> Result<()> {
        let i = &self.source.program.intrinsics;
        let input = self.env_word(offset_of!(Env, given));
        let port = self.given(input, of!(EgressInput.port: I16));
        self.set_field(i.egress_port, port)?;
        let kind = self.given(input, of!(EgressInput.instance_type: I32));
        self.set_field(i.instance_type, kind)?;
        // Anything but the drop port, as in simple_switch.
        let other = self.number(self.source.drop_port.wrapping_add(1));
        self.set_field(i.egress_spec, other)?;
        self.set_length()?;
        if let Some(field) = i.egress_rid {
            // In a packet that is not replicated it may have a value of ingress.
            let (copied, done) = (self.b.create_block(), self.b.create_block());
            let normal = self.compare(IntCC::Equal, kind, InstanceType::Normal as u64);
            self.branch(normal, done, copied);
            self.begin(copied);
            let rid = self.given(input, of!(EgressInput.rid: I16));
            self.set_field(field, rid)?;
            self.join(done);
        }
        let (now, enqueued) = (
            of!(EgressInput.now_ns: I64),
            of!(EgressInput.enqueued_ns: I64),
        );
        if let Some(field) = i.egress_global_timestamp {
            let now_us = self.given_us(input, now);
            self.set_field(field, now_us)?;
        }
        if let Some(field) = i.enq_timestamp {
            let enqueued_us = self.given_us(input, enqueued);
            self.set_field(field, enqueued_us)?;
        }
        if let Some(field) = i.deq_timedelta {
            let (now_us, enqueued_us) = (self.given_us(input, now), self.given_us(input, enqueued));
            let earliest = self.b.ins().umin(now_us, enqueued_us);
            let waited_us = self.b.ins().isub(now_us, earliest);
            self.set_field(field, waited_us)?;
        }
        for (field, from) in [
            (i.enq_qdepth, of!(EgressInput.enq_qdepth: I32)),
            (i.deq_qdepth, of!(EgressInput.deq_qdepth: I32)),
            (i.qid, of!(EgressInput.qid: I8)),
        ] {
            if let Some(field) = field {
                let value = self.given(input, from);
                self.set_field(field, value)?;
            }
        }
        Ok(())
    }

    /// Sets a field to what a part has found, if the program has the field.
    pub fn tell(&mut self, field: Option<Field>, value: Value) -> Result<()> {
        match field {
            Some(field) => self.set_field(field, value),
            None => Ok(()),
        }
    }

    fn set_length(&mut self) -> Result<()> {
        let length = self.context_word(offset_of!(Context, packet_length));
        self.set_field(self.source.program.intrinsics.packet_length, length)
    }

    /// A field of the input, without its sign.
    fn given(&mut self, input: Value, (kind, at): (Type, usize)) -> Value {
        let value = self.b.ins().load(kind, given(), input, at as i32);
        match kind {
            types::I64 => value,
            _ => self.b.ins().uextend(types::I64, value),
        }
    }

    /// A time of the input in us.
    fn given_us(&mut self, input: Value, at: (Type, usize)) -> Value {
        let ns = self.given(input, at);
        self.b.ins().udiv_imm(ns, 1_000)
    }
}
