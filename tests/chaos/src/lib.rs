// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chaos: real processes of an array in network namespaces, with faults that a seed draws. Clients write down
//! what they saw, and a judge knows nothing else (`docs/chaos.md`).
//!
//! ```text
//!   conduct: SSDs, daemons, clients in namespaces --> faults of a round --> quiet --> healthy?
//!                            |                                               |
//!   client:  open, write, zero, read, delete, in turns           reads each copy by itself
//!                            v                                               v
//!   history:        one JSON line before each call, and one after it
//!                            v
//!   check:   durable, one writer, seen stays seen, no other bytes, copies equal, healthy, no failed I/O
//! ```
//! `check` reads no clock and no array. It judges the lines alone, so forged ones test it.

pub mod block;
pub mod check;
pub mod client;
pub mod conduct;
pub mod dice;
pub mod history;
