//! The words of a port's settings: [units], and the egress queues with their scheduler and active queue
//! management.
//!
//! The command line, P4Runtime's side channel and the switch itself use the same words, so there is one
//! grammar. A port keeps the words that it was given ([`QueueSettings`]), so that a controller reads back
//! what it wrote.

mod aqm;
mod queue_number;
mod queues;
mod scheduler;
pub mod units;

pub use queues::{OneQueue, QueueOptions, QueueSettings, count};
