//! The parts of a packet's way.

/// A part of a packet's way that is one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The standard metadata of a packet that comes in, the parser, and the checksums to verify. Writes
    /// the parser error, and whether a checksum was wrong, to the context, too.
    Parser,
    Ingress,
    /// The standard metadata of a packet that comes to egress, and the control.
    Egress,
    /// The checksums to update, the deparser's code, and the headers. Returns 1 if the packet leaves
    /// where it lies in the frame.
    Deparser,
}

/// All parts, in the order of their numbers.
pub(super) const PARTS: [Part; 4] = [Part::Parser, Part::Ingress, Part::Egress, Part::Deparser];
