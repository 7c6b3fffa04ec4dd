// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link between processes: the messages of RC connections as frames over one TCP stream. Nothing is
//! modelled on it.
//!
//! ```text
//!   frame = u32 length of the rest | u8 type | u32 connection | fields, little-endian | data
//!
//!   client's transport                                  array's transport
//!     executors --- remote: Wire, staging ==== TCP ==== peer: Wire, stands for the client's HCA --- targets
//! ```
//! At the array's end a [`PeerExecutor`] stands for the client's HCA. At the client's end the transport
//! carries out the array's requests on the executor that owns the queue pair, with data staged in host
//! memory.
//!
//! The table of requested transfers names each by its tag and its connection. A tag is valid once: a `Done`
//! that names anything else is dropped. The client sends the sum of its data with the data; the array
//! compares it with the sum of what arrives. What one connection may take is in [`limits`].
//!
//! The transport polls only the streams that are ready (`transport/ready.rs`).
//!
//! A link that breaks ends at once at both ends: the array closes the client's queues, the client's queue
//! pairs go into error. Its memory is given back when nothing moves through it any more.

mod alarm;
mod clients;
mod engine_load;
mod frame;
mod host;
pub mod limits;
mod notice;
mod peer;
mod places;
mod queue;
mod tls;
mod wire;

pub(crate) use alarm::Alarm;
pub use engine_load::{EngineLoad, StreamSlot};
pub use frame::{Frame, MAX_DATA, data_sum};
pub use peer::PeerExecutor;
pub(crate) use peer::Regions;
pub use places::{NoPlace, Place, Places};
pub use queue::lengthen_queue;
pub use tls::{Callers, ClientTls, ServerTls};
pub use wire::Wire;

#[cfg(test)]
mod tests;
