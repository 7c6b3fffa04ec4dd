// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The array in a box: the code that ships, under one virtual clock, in one thread, from one seed.
//!
//! ```text
//!   Agenda: (time, tie, actor) ----------------------------------------------+
//!      |                                                                     |
//!      v                                                                     v
//!   Client x N (modelled: the initiator as a host program)      SsdActor x M (real)
//!     slots, split, placement, stamps, gate --capsules-------> RcTransport: RC order, acks, link's time
//!            <------------------ responses, tokens of blocks--  Worker: firmware, translation layer, flash
//! ```
//! That is `gnstor sim scale`. It moves no data, only a token for each block. It has no daemon, unless an SSD
//! is to fail (`fleet`), and no other faults: [`survive`] has these, and real data. The time of the GPU
//! itself is not modelled.
//! `docs/simulator.md` says what that means for the figures.
//!
//! | module | what |
//! |---|---|
//! | [`agenda`], [`dice`], [`zipf`] | the clock and the random numbers |
//! | [`world`] | actors and how they meet |
//! | `ssd`, `port` | an SSD on its engine, and the clients' end of that |
//! | [`initiator`] | the twin of the device headers |
//! | `client`, [`load`] | the initiator's connections, and what it is to do |
//! | `fleet` | daemon, questions between SSDs, and maps, in the array of an SSD that fails |
//! | [`scale`] | `gnstor sim scale`: many worlds, one table |
//! | [`survive`] | `gnstor sim survive`: arrays with faults, and checkers |

pub mod agenda;
mod bound;
mod client;
pub mod dice;
pub(crate) mod fleet;
pub mod initiator;
pub mod load;
pub mod memory;
mod port;
pub mod scale;
mod ssd;
pub mod survive;
pub mod world;
pub mod zipf;

pub use fleet::Fail;
pub use ssd::WorldError;

/// What is wrong with the user's options: a sentence for a person.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);
