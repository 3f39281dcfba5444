//! A packet in the engine: its frame, its headers and metadata, and the program's requests.

use crate::calculation::Calculation;
use crate::clone_request::CloneRequest;
use crate::header_io::HeaderIo;
use crate::program::Program;
use crate::unchanged::Unchanged;
use std::ops::Range;
use traffic_manager::hold::Hold;

/// Frames up to this length fit a new context; a longer frame makes it grow, once. A million held
/// packets would take ten times the memory if every context had room for the longest frame.
const ORDINARY_FRAME_BYTES: usize = 1_536;

/// Metadata that a field list preserves of a packet that is resubmitted or recirculated.
#[derive(Debug, Clone, Default)]
pub(crate) struct Preserved {
    /// Whether the packet has preserved metadata.
    pub active: bool,
    /// The field list's id.
    pub list: u16,
    /// The fields' words.
    pub words: Vec<u64>,
}

/// The requests of the program for a packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Requests {
    /// Its last `TrafficManager.hold`.
    pub hold: Option<Hold>,
    /// The egress queue that it chose last, by `EgressQueues.choose`.
    pub queue: Option<u8>,
    /// The clone that it requested last.
    pub clone: Option<CloneRequest>,
    /// Field list of a resubmission.
    pub resubmit: Option<u16>,
    /// Field list of a recirculation.
    pub recirculate: Option<u16>,
    /// Id of a digest.
    pub digest: Option<u16>,
}

/// A packet with its parsed headers and metadata. [`crate::Pipeline::new_context`] allocates it, and
/// packet after packet uses it: the engine allocates nothing while packets flow.
///
/// A context belongs to the pipeline that made it.
#[derive(Debug, Clone)]
pub struct Context {
    /// The packet header vector: headers and metadata, then action arguments, temporaries and
    /// constants.
    pub(crate) phv: Vec<u64>,
    /// The number of words of the PHV that are headers and metadata.
    pub(crate) field_words: usize,
    /// Headroom, then the frame.
    buffer: Vec<u8>,
    headroom: usize,
    max_frame_bytes: usize,
    start: usize,
    end: usize,
    /// Bytes of the frame consumed by the parser.
    pub(crate) parsed: usize,
    /// Bounds of the deparsed packet in `buffer`.
    output: (usize, usize),
    /// Length of the frame as it entered ingress, in bytes: counters and meters count it.
    pub(crate) ingress_length: u64,
    /// Frame length plus headers added and minus headers removed since.
    pub(crate) packet_length: u64,
    /// Most bytes of the packet that leave.
    pub(crate) truncate: u64,
    pub(crate) requests: Requests,
    /// Port the packet arrived on, for parsing it again.
    pub(crate) ingress_port: u16,
    /// Metadata that survives resubmission or recirculation.
    pub(crate) preserved: Preserved,
    /// Scratch for a table's key.
    pub(crate) key: Vec<u64>,
    /// Scratch for the bytes of a calculation.
    pub(crate) scratch: Vec<u8>,
    /// The headers that are unchanged in the frame.
    pub(crate) unchanged: Unchanged,
    /// The error that the parser ended with.
    pub(crate) parser_error: u64,
    /// A checksum was wrong.
    pub(crate) checksum_error: bool,
    /// An `assert` or `assume` failed, or a loop did not end.
    pub(crate) assertion_failed: bool,
    /// The engine met a case that cannot happen.
    pub(crate) internal_error: bool,
}

impl Context {
    pub(crate) fn new(program: &Program, max_frame_bytes: usize) -> Self {
        let constants = program.constant_base as usize;
        let mut phv = vec![0; constants + program.constants.len()];
        phv[constants..].copy_from_slice(&program.constants);
        let headroom = program.deparsed_bytes;
        Self {
            phv,
            field_words: program.field_words as usize,
            buffer: vec![0; headroom + max_frame_bytes.min(ORDINARY_FRAME_BYTES) + headroom],
            headroom,
            max_frame_bytes,
            start: headroom,
            end: headroom,
            parsed: 0,
            output: (headroom, headroom),
            ingress_length: 0,
            packet_length: 0,
            truncate: u64::MAX,
            requests: Requests::default(),
            ingress_port: 0,
            preserved: Preserved {
                active: false,
                list: 0,
                words: Vec::with_capacity(program.preserved_words),
            },
            key: vec![0; program.key_words],
            scratch: Vec::with_capacity(program.scratch_bytes),
            unchanged: Unchanged::new(program.deparse_order.len()),
            parser_error: program.errors.none,
            checksum_error: false,
            assertion_failed: false,
            internal_error: false,
        }
    }

    /// Makes the buffer large enough for a frame of `length` bytes. It never shrinks.
    fn make_room(&mut self, length: usize) {
        let wanted = self.headroom + length + self.headroom;
        if wanted > self.buffer.len() {
            self.buffer.resize(wanted, 0);
        }
    }

    /// Length of the longest frame that [`Self::set_frame`] takes whole, in bytes.
    pub fn capacity(&self) -> usize {
        self.max_frame_bytes
    }

    /// Replaces the packet by a new frame (layer 2, without FCS). Returns false, and takes only the
    /// first [`Self::capacity`] bytes, if the frame is too long.
    pub fn set_frame(&mut self, frame: &[u8]) -> bool {
        let length = frame.len().min(self.max_frame_bytes);
        self.make_room(length);
        self.start = self.headroom;
        self.end = self.start + length;
        self.buffer[self.start..self.end].copy_from_slice(&frame[..length]);
        self.output = (self.end, self.end);
        self.parsed = 0;
        self.truncate = u64::MAX;
        self.preserved.active = false;
        length == frame.len()
    }

    /// The frame as it entered ingress. The deparser overwrites its parsed part, so after `egress` it
    /// is no longer the original.
    pub fn frame(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Length of the frame in bytes, without FCS.
    pub fn frame_len(&self) -> usize {
        self.end - self.start
    }

    /// The packet as `egress` left it; empty if it was dropped.
    pub fn output(&self) -> &[u8] {
        &self.buffer[self.output.0..self.output.1]
    }

    /// As [`Self::output`], for changes.
    pub fn output_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.output.0..self.output.1]
    }

    /// The packet as `egress` left it: a buffer, and the packet's bytes in it. The caller may take the
    /// buffer and leave any other instead. The context then holds no packet until
    /// [`Self::set_frame`] is called.
    pub fn lend_output(&mut self) -> (&mut Vec<u8>, Range<usize>) {
        let output = self.output.0..self.output.1;
        (self.start, self.end, self.output) = (0, 0, (0, 0));
        (&mut self.buffer, output)
    }

    /// Makes this context a copy of `source`: frame, headers and metadata. Both contexts belong to
    /// the same pipeline.
    pub fn copy_from(&mut self, source: &Self) {
        let n = self.field_words.min(source.field_words);
        self.phv[..n].copy_from_slice(&source.phv[..n]);
        self.start = source.start;
        self.end = source.end;
        self.parsed = source.parsed;
        self.output = source.output;
        let from = source.start.min(source.output.0);
        let to = source.end.max(source.output.1);
        self.make_room(to.saturating_sub(self.headroom));
        self.buffer[from..to].copy_from_slice(&source.buffer[from..to]);
        self.ingress_length = source.ingress_length;
        self.packet_length = source.packet_length;
        self.truncate = source.truncate;
        self.requests = source.requests;
        self.assertion_failed = source.assertion_failed;
        self.internal_error = source.internal_error;
        self.ingress_port = source.ingress_port;
        self.unchanged.copy_from(&source.unchanged);
        self.preserved.active = source.preserved.active;
        self.preserved.list = source.preserved.list;
        self.preserved.words.clear();
        self.preserved
            .words
            .extend_from_slice(&source.preserved.words);
    }

    /// Limits the packet that leaves to `bytes`; 0 sets no limit.
    pub fn truncate_to(&mut self, bytes: u32) {
        if bytes > 0 {
            self.truncate = self.truncate.min(u64::from(bytes));
        }
    }

    /// The value of a calculation over this packet. The payload is cut to the limit of `truncate`.
    #[inline]
    pub(crate) fn compute(&mut self, calculation: &Calculation, kinds: &[HeaderIo]) -> u64 {
        let payload = (self.start + self.parsed).min(self.end);
        let most = usize::try_from(self.truncate).unwrap_or(usize::MAX);
        let payload = &self.buffer[payload..self.end.min(payload.saturating_add(most))];
        calculation.compute(&self.phv, payload, kinds, &mut self.scratch)
    }

    /// The port that the packet arrived on; 0 for a recirculated packet.
    pub fn ingress_port(&self) -> u16 {
        self.ingress_port
    }

    /// Removes the limit of `truncate()`, which replication does not keep.
    pub fn clear_truncate(&mut self) {
        self.truncate = u64::MAX;
    }

    /// The part of the frame that is not parsed yet, and the PHV to extract it to.
    pub(crate) fn unparsed(&mut self) -> (&[u8], &mut [u64]) {
        let from = (self.start + self.parsed).min(self.end);
        (&self.buffer[from..self.end], &mut self.phv)
    }

    /// Whether it has the words, keys and places that the program works with.
    #[inline]
    pub(crate) fn fits(&self, program: &Program) -> bool {
        self.phv.len() == program.constant_base as usize + program.constants.len()
            && self.key.len() == program.key_words
            && self.unchanged.positions() == program.deparse_order.len()
    }

    /// The address of the frame, for machine code.
    pub(crate) fn frame_address(&mut self) -> *mut u8 {
        self.buffer.as_mut_ptr().wrapping_add(self.start)
    }

    /// Makes the output `header_bytes` bytes of headers and the payload; returns the bytes for the
    /// headers, and the PHV. `None` if they do not fit, which cannot happen: the headroom holds
    /// all headers.
    pub(crate) fn prepend(&mut self, header_bytes: usize) -> Option<(&mut [u8], &[u64])> {
        let payload = (self.start + self.parsed).min(self.end);
        let from = payload.checked_sub(header_bytes)?;
        self.output = (from, self.end);
        Some((&mut self.buffer[from..payload], &self.phv))
    }

    /// Makes the frame the output.
    pub(crate) fn output_in_place(&mut self) {
        self.output = (self.start, self.end);
    }

    /// The frame, to overwrite changed headers, and the PHV.
    pub(crate) fn parts(&mut self) -> (&mut [u8], &[u64]) {
        (&mut self.buffer[self.start..self.end], &self.phv)
    }

    /// Cuts the output to `length` bytes; true if it was longer.
    pub(crate) fn cut_output(&mut self, length: u64) -> bool {
        let have = self.output.1 - self.output.0;
        match usize::try_from(length) {
            Ok(length) if length < have => {
                self.output.1 = self.output.0 + length;
                true
            }
            _ => false,
        }
    }

    /// Empties the output.
    pub(crate) fn clear_output(&mut self) {
        self.output = (self.end, self.end);
    }

    /// Makes the output the frame, for recirculation. Returns false if the output was too long (by
    /// more than all headers together) and has been cut.
    pub(crate) fn output_to_frame(&mut self) -> bool {
        let (from, to) = self.output;
        let length = (to - from).min(self.max_frame_bytes + self.headroom);
        self.make_room(length);
        self.buffer.copy_within(from..from + length, self.headroom);
        self.start = self.headroom;
        self.end = self.headroom + length;
        self.output = (self.end, self.end);
        self.parsed = 0;
        length == to - from
    }

    /// Copies the frame of `source` as it entered ingress, without its headers.
    pub(crate) fn copy_frame(&mut self, source: &Self) {
        let length = source.frame_len().min(self.max_frame_bytes + self.headroom);
        self.make_room(length);
        self.set_frame(&[]);
        self.end = self.start + length;
        self.buffer[self.start..self.end].copy_from_slice(&source.frame()[..length]);
        self.truncate = source.truncate;
        self.ingress_port = source.ingress_port;
        self.ingress_length = source.ingress_length;
    }
}
