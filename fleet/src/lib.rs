// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fleet's rules as state machines: which SSDs serve, which daemon leads, what a repair copies.
//!
//! ```text
//!   daemon                          SSD as a voter                SSD as a server            client
//!   leader::Candidate --TERM TAKE-> voter::Voter                  lease::Ask, Lease          client::Request
//!   leader::Round     --MAP HOLD--> voter::Voter <--LEASE ASK---- serve::judge_read/write <- writes, reads
//!   map::Map (next epoch)           voter::Voter
//!   settle::Settle    --SETTLE----------------------------------> fill::Filling
//! ```
//! Daemon, firmware and client are to share these functions, and a model checks them
//! (`fleet/tests/model`). The daemon takes its term and judges maps by them
//! (`daemon/src/core/{term,epoch}.rs`). The firmware votes and asks for leases by them
//! (`deengine/src/admin/voting.rs`, `deengine/src/permission/asker.rs`), and judges blocks by [`fill`]
//! (`deengine/src/repair/apply.rs`). The rest is not used yet.
//! `docs/protocol-fleet.md` has the rules.
//!
//! No I/O, no clock, no unsafe. A time is a `u64` that the caller reads from its own monotonic clock; all
//! times of one machine have one unit.
//!
//! | module | rules | what |
//! |---|---|---|
//! | [`set`] | 3a | sets of SSDs, majorities, changes of voters |
//! | [`map`] | 1, 7a | the map of one epoch: SSDs, their incarnations, the rows of the groups |
//! | [`known`] | - | the map of the wire, seen so |
//! | [`change`] | 1a, 1b, 1c | from one map to the next |
//! | [`voter`] | 2a, 2b, 3, 3b | what an SSD grants: terms, maps, serving leases |
//! | [`leader`] | 2b, 3 | what a daemon does with the answers |
//! | [`goodbye`] | 2b | SSDs that are stopped in order |
//! | [`lease`] | 2, 2a | the serving lease of one SSD |
//! | [`opening`] | 2a | whether the content of an SSD was rolled back |
//! | [`serve`] | 1, 2, 7a, 8 | whether an SSD carries out a read or a write |
//! | [`repair`] | 13 | what is held of a block; a scrub |
//! | [`fill`] | 13, 14 | a block of a filling place: writes, and copies of the first |
//! | [`settle`] | 14 | from the end of a write lease to the next grant |
//! | [`client`] | 5, 5a | one write until it is acknowledged |
//! | [`space`] | 15 | full SSDs |
//! | [`identity`] | 16 | when a client gets its id back |
//! | [`salvage`] | 17 | copies of a group that are all lossy |
//! | [`wire`] | - | maps of the wire, as the rules look at them |
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;
#[cfg(test)]
#[path = "../../proto/testing/deadline.rs"]
mod deadline;

pub mod change;
pub mod client;
pub mod fill;
pub mod goodbye;
pub mod identity;
pub mod known;
pub mod leader;
pub mod lease;
pub mod map;
pub mod opening;
pub mod repair;
pub mod salvage;
pub mod serve;
pub mod set;
pub mod settle;
pub mod space;
pub mod voter;
pub mod wire;

/// Number of an SSD in its array, below 64: a channel reaches so many.
pub type SsdId = u16;
/// Number of a leadership. Each has at most one owner.
pub type Term = u64;
/// Which start of a daemon asks: drawn at random at each start, so it never repeats.
pub type Instance = u64;
/// Number of a map.
pub type Epoch = u64;
/// Fencing token of an SSD's content: counted up, durably, when the content may be incomplete.
pub type Incarnation = u32;
/// Number of times that an SSD was opened, stored in its content. An older image of it has a lower number.
pub type Opening = u32;
/// Name of an SSD for as long as it keeps its content.
pub type Uuid = [u8; 16];

/// The array to which an SSD, a map or a command belongs (rule 3b).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ArrayId(pub [u8; 16]);

/// Why a machine refuses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refused {
    /// The command belongs to another array.
    OtherArray,
    /// A higher term, or this term of another instance, was granted.
    StaleTerm,
    /// The map is not newer than the one that is known.
    StaleVersion,
    /// A map that is held or active has taken a place from the SSD that asks.
    Deprived,
    /// The SSD that asks had a higher number of openings before: its content is an older image.
    OlderImage,
    /// The command was placed by an older map.
    StaleMap,
    /// The command was placed by a newer map.
    MapBehind,
    /// The SSD has no lease, or the map's place is not for this incarnation.
    NotServing,
    /// The place is filling.
    NotHereYet,
    /// Until the volume is settled, readers other than its writer read the first.
    AskTheFirst,
    /// The group waits for an SSD that is absent, or has fewer copies than it may be written with.
    GroupWaits,
    /// The SSD has no place in the group.
    WrongTarget,
    /// The writer's lease is over.
    LeaseExpired,
    /// An SSD of the group is full and the block is not mapped.
    GroupFull,
}
