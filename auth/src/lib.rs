// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proofs of identity: the secrets of an array, and NVMe in-band authentication with DH-HMAC-CHAP.
//!
//! ```text
//!   manager key (one for each array; SSDs and daemon have it)
//!      |  derive(host name with its serial)
//!      v
//!   host key  ---- DHHC-1 text ---->  client            Register returns it over gRPC
//!
//!   host                                   controller (SSD)
//!     | -- AUTH_Negotiate --------------------> |
//!     | <- DH-HMAC-CHAP_Challenge C1, [g^x] --- |
//!     | -- DH-HMAC-CHAP_Reply R1, C2, [g^y] --> |   R1 proves the host
//!     | <- DH-HMAC-CHAP_Success1 R2 ----------- |   R2 proves the controller
//!     | -- DH-HMAC-CHAP_Success2 -------------> |
//!     |        both have the session key        |
//!     | -- Connect of an I/O queue + proof ---> |   no further round trip
//! ```
//! Both ends are state machines without I/O: messages and random bytes go in, messages come out. An SSD
//! stores no key of a client: it derives the key from the manager key and the name that the host states.
//!
//! Source: NVM Express Base Specification 2.x, section 8.3.5 (in-band authentication); RFC 7919 for the
//! groups.
//!
//! What it does not do: it encrypts nothing. Confidentiality on the wire is TLS's task.
//!
//! | module | what |
//! |---|---|
//! | [`key`] | secrets, their text form, derivation |
//! | [`message`] | bytes of the messages |
//! | [`group`] | Diffie-Hellman groups |
//! | [`pair`] | key pairs that serve several runs |
//! | [`host`], [`controller`] | the two state machines |
//! | [`check_private`] | files with secrets that others cannot read |
//! | [`random`] | random bytes of the operating system |
//! | [`queue`] | proof that an I/O queue belongs to an authenticated controller |
//! | [`client_id`] | proof of a client's id to the daemon |

pub mod client_id;
pub mod controller;
pub mod group;
pub mod host;
pub mod key;
pub mod message;
pub mod pair;
mod private_file;
pub mod queue;
pub mod random;
mod response;

pub use client_id::{CLIENT_PROOF, ShownClient};
pub use controller::Controller;
pub use group::Group;
pub use host::Dice;
pub use host::Host;
pub use key::{KeyError, Secret};
pub use message::Failure;
pub use pair::{KeyPair, KeyPairs};
pub use private_file::check_private;
pub use queue::{QueueProof, SessionKey};
pub use response::Names;

#[cfg(test)]
#[path = "../../proto/testing/deadline.rs"]
mod deadline;
#[cfg(test)]
mod tests;
