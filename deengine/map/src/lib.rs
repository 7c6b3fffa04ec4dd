// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The merged map of an SSD, `[VID,VBA] -> page`: an exact quotient cuckoo table that readers use without
//! locks.
//!
//! ```text
//!   key (48) --keyed permutation--> p      first = p mod m  rem = p div m    second = (H(rem) - first) mod m
//!
//!   slot    63    62                                                                      0
//!         +-----+-----+-----------+-----------------------------+-------------------------+
//!         |valid|which|   zeros   |              rem            |          page           |
//!         +-----+-----+-----------+-----------------------------+-------------------------+
//!
//!   image   | m buckets of 8 slots, one cache line each                     | stash |
//!             0                                                         8 m   8 m + 64      words of 64 bits
//! ```
//! The permutation is reversible: bucket, `which` and `rem` give `p` back. So no key is stored, and no lookup
//! ever matches falsely. A slot moves between its two buckets without a read of flash, and a scan of the
//! table lists every mapped block. A bucket is a cache line, most keys are in their first bucket, and so most
//! lookups touch one line.
//!
//! A key for which no chain of moves makes room goes to a small stash. A table sized for [`MAX_LOAD`] never
//! gets so full.
//!
//! There is one [`MapWriter`]. It reports every word that it changes to a log. This log is the whole redo log
//! of the map, and [`MapWriter::redo`] takes it. Readers ([`Map`]) take no lock; `map.rs` says why that is
//! correct.
//!
//! A caller with many blocks looks them up together, in a [`Batch`], which prefetches memory. Processors with
//! AVX-512 compute eight places at once.
//!
//! The image depends on seed, sizes and the functions in `shape.rs`. A change of any of them is a new format.
//! The crate knows nothing of flash, and of volumes only their ids.

mod batch;
mod batches;
mod build;
mod counter;
mod load;
mod map;
mod memory;
mod search;
mod shape;
mod stash;
mod table;
#[cfg(target_arch = "x86_64")]
mod vector;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_vector.rs"]
mod vector;
mod ways;
mod word;
mod writer;

#[cfg(test)]
mod tests;

pub use batch::Batch;
pub use load::BadImage;
pub use map::Map;
pub use table::Probe;
pub use writer::{Full, MapWriter};

/// The load a table is sized for, in percent.
pub const MAX_LOAD: u64 = 93;

/// Most words that one call of a [`MapWriter`] changes and reports to its log.
pub const MAX_CHANGES: usize = search::MAX_MOVES + 4;

/// Number of slots in a bucket, which is one cache line.
const SLOTS: usize = 8;

/// Names the moments between two steps at which another thread may run, so that tests can act there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// A reader has looked into a bucket without success.
    Missed,
    /// A reader has looked into the table and not yet into the stash.
    TableMissed,
    /// The writer has changed a word or counted a move.
    Changed,
}

#[cfg(not(test))]
#[inline]
fn step(_: Step) {}

#[cfg(test)]
use tests::step;
