//! The common parts of the measuring tools: selecting frames, gaps between frames, making frames.
//!
//! The tools, all on AF_PACKET by way of the `ports` crate:
//!
//! * `forwarder`: moves frames between two interfaces and does nothing else; the baseline a switch
//!   is compared with.
//! * `gapmeter`: receives, and reports the gaps between frames by the kernel's receive stamps.
//! * `blaster`: sends equal UDP frames, at a rate or as fast as it goes.
//!
//! Each prints one JSON object on standard output when it ends, and words for people on standard
//! error.

pub mod frame;
pub mod gaps;
pub mod select;
