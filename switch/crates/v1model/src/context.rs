//! One packet's working memory.

use crate::api::CloneRequest;
use crate::program::Program;
use crate::unchanged::Unchanged;
use std::ops::Range;
use traffic_manager::hold::Hold;

/// Frames up to this long fit a new context; a longer one makes it grow, once. Memory for the
/// longest frame in every context would make holding a million packets cost ten times as much.
const ORDINARY_FRAME_BYTES: usize = 1_536;

/// Preserved metadata of a packet that is resubmitted or recirculated.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    pub active: bool,
    pub list: u16,
    pub words: Vec<u64>,
}

/// A packet with its parsed headers and metadata. Allocated once by
/// [`crate::Pipeline::new_context`] and reused for packet after packet; nothing below here
/// allocates while packets flow.
///
/// A context belongs to the pipeline that made it.
#[derive(Debug, Clone)]
pub struct Context {
    /// Fields, arguments, temporaries, constants.
    pub(crate) words: Vec<u64>,
    /// How many of `words` are headers and metadata.
    pub(crate) phv_words: usize,
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
    /// Frame length as it entered ingress: what counters and meters count.
    pub(crate) ingress_length: u64,
    /// Frame length plus headers added and minus headers removed since.
    pub(crate) packet_length: u64,
    pub(crate) truncate: u64,
    pub(crate) hold: Option<Hold>,
    pub(crate) clone: Option<CloneRequest>,
    pub(crate) resubmit: Option<u16>,
    pub(crate) recirculate: Option<u16>,
    pub(crate) digest: Option<u16>,
    /// Port the packet arrived on, for parsing it again.
    pub(crate) ingress_port: u16,
    pub(crate) kept: Kept,
    pub(crate) key: Vec<u64>,
    pub(crate) scratch: Vec<u8>,
    /// Headers as they lie in the frame.
    pub(crate) unchanged: Unchanged,
    /// What the parser ended with.
    pub(crate) parser_error: u64,
    /// A checksum was wrong.
    pub(crate) checksum_error: bool,
}

impl Context {
    pub(crate) fn new(program: &Program, max_frame_bytes: usize) -> Self {
        let constants = program.constant_base as usize;
        let mut words = vec![0; constants + program.constants.len()];
        words[constants..].copy_from_slice(&program.constants);
        let headroom = program.deparsed_bytes;
        Self {
            words,
            phv_words: program.phv_words as usize,
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
            hold: None,
            clone: None,
            resubmit: None,
            recirculate: None,
            digest: None,
            ingress_port: 0,
            kept: Kept {
                active: false,
                list: 0,
                words: Vec::with_capacity(program.kept_words),
            },
            key: vec![0; program.key_words],
            scratch: Vec::with_capacity(program.scratch_bytes),
            unchanged: Unchanged::new(program.deparse_order.len()),
            parser_error: program.errors.none,
            checksum_error: false,
        }
    }

    /// Makes the buffer hold a frame of `length` bytes; what it has grown to it keeps.
    fn make_room(&mut self, length: usize) {
        let wanted = self.headroom + length + self.headroom;
        if wanted > self.buffer.len() {
            self.buffer.resize(wanted, 0);
        }
    }

    /// Longest frame that [`Self::set_frame`] takes whole.
    pub fn capacity(&self) -> usize {
        self.max_frame_bytes
    }

    /// Puts a new frame (layer 2, without FCS) into the context, forgetting the packet before.
    /// Returns false, and keeps only the first [`Self::capacity`] bytes, if it is too long.
    pub fn set_frame(&mut self, frame: &[u8]) -> bool {
        let length = frame.len().min(self.max_frame_bytes);
        self.make_room(length);
        self.start = self.headroom;
        self.end = self.start + length;
        self.buffer[self.start..self.end].copy_from_slice(&frame[..length]);
        self.output = (self.end, self.end);
        self.parsed = 0;
        self.truncate = u64::MAX;
        self.kept.active = false;
        length == frame.len()
    }

    /// The frame as it entered ingress.
    ///
    /// The deparser writes over its parsed part, so after `egress` this is no longer the
    /// original.
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

    /// The packet as `egress` left it, in a buffer that the caller may keep in exchange for any
    /// other. This context then holds nothing until [`Self::set_frame`] is called.
    pub fn lend_output(&mut self) -> (&mut Vec<u8>, Range<usize>) {
        let output = self.output.0..self.output.1;
        (self.start, self.end, self.output) = (0, 0, (0, 0));
        (&mut self.buffer, output)
    }

    /// Makes this context a copy of `source` (which must come from the same pipeline): frame,
    /// headers and metadata, as replication needs.
    pub fn copy_from(&mut self, source: &Self) {
        let n = self.phv_words.min(source.phv_words);
        self.words[..n].copy_from_slice(&source.words[..n]);
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
        self.hold = source.hold;
        self.clone = source.clone;
        self.resubmit = source.resubmit;
        self.recirculate = source.recirculate;
        self.digest = source.digest;
        self.ingress_port = source.ingress_port;
        self.unchanged.copy_from(&source.unchanged);
        self.kept.active = source.kept.active;
        self.kept.list = source.kept.list;
        self.kept.words.clear();
        self.kept.words.extend_from_slice(&source.kept.words);
    }

    /// Cuts what will leave to `bytes`; 0 for no limit.
    pub fn truncate_to(&mut self, bytes: u32) {
        if bytes > 0 {
            self.truncate = self.truncate.min(u64::from(bytes));
        }
    }

    /// The part of the frame that no header was parsed from.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.buffer[(self.start + self.parsed).min(self.end)..self.end]
    }

    /// The same, as far as `truncate` leaves it.
    pub(crate) fn payload_to_leave(&self) -> &[u8] {
        let payload = self.payload();
        let most = usize::try_from(self.truncate).unwrap_or(usize::MAX);
        &payload[..payload.len().min(most)]
    }

    /// The port that the packet came in at; 0 for one that was recirculated.
    pub fn ingress_port(&self) -> u16 {
        self.ingress_port
    }

    /// Undoes `truncate()`, which does not outlive replication.
    pub fn clear_truncate(&mut self) {
        self.truncate = u64::MAX;
    }

    /// The part of the frame the parser has not reached, and the words, for extraction.
    pub(crate) fn unparsed(&mut self) -> (&[u8], &mut [u64]) {
        let from = (self.start + self.parsed).min(self.end);
        (&self.buffer[from..self.end], &mut self.words)
    }

    /// Room for `header_bytes` before the payload; sets the output to it and the payload.
    /// `None` if there is no such room (never: the headroom holds all headers).
    pub(crate) fn prepend(&mut self, header_bytes: usize) -> Option<(&mut [u8], &[u64])> {
        let payload = (self.start + self.parsed).min(self.end);
        let from = payload.checked_sub(header_bytes)?;
        self.output = (from, self.end);
        Some((&mut self.buffer[from..payload], &self.words))
    }

    /// Makes the frame the output; the frame, to write changed headers over, and the words.
    pub(crate) fn output_in_place(&mut self) -> (&mut [u8], &[u64]) {
        self.output = (self.start, self.end);
        (&mut self.buffer[self.start..self.end], &self.words)
    }

    /// Cuts the output to `length` bytes; true if that made a difference.
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

    /// No output.
    pub(crate) fn clear_output(&mut self) {
        self.output = (self.end, self.end);
    }

    /// Makes the output the frame, for recirculation. False if it had grown beyond the buffer
    /// (by more than all headers together) and was cut.
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

    /// Takes `source`'s frame (not its headers), as it entered ingress.
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
