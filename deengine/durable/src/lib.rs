// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What survives a power cut: journal, checkpoint, dump and metadata store of an emulated SSD.
//!
//! ```text
//!   run     MetadataStore ------ written through, twice ---------------.
//!           Journal ----- pages behind their data --------------+--> Store (a range of a file, or RAM)
//!           Checkpoint -- words of the map, A and B in turn ----|
//!           DumpWriter -- tail and buffers, at a power failure -'
//!
//!   restore Durable::open -> metadata store, State
//!           checkpoint() -> for_each(words) -> replay(seq) -> read_dump()
//!           into_journal() -> adopt(dump) -> [dump's pages programmed, journal flushed]
//!             -> invalidate_dump() -> serve
//!           no checkpoint, or a damaged journal: [rebuild] -> fresh_journal() -> Checkpoint
//!             -> invalidate_dump() -> serve
//! ```
//!
//! This crate reads and writes bytes and decides nothing: the translation layer gives a record its meaning.
//! It takes no time, starts no thread and knows no clock. The crate checks length, checksum, identity and
//! range of everything that it reads from a store before it uses any of it. It refuses wrong content with a
//! reason, and allocates nothing by a length that it has not checked.
//!
//! Layout of the store: [`layout`]. Formats: [`header`], [`cell`], [`metadata`], [`page`], [`record`],
//! [`checkpoint`], [`meta`], [`dump`].

mod boots;
mod bytes;
pub mod cell;
mod changes;
pub mod checkpoint;
mod checkpoint_head;
mod contents;
mod counting;
pub mod dump;
mod dump_writer;
mod durable;
mod error;
mod format;
pub mod header;
mod journal;
pub mod layout;
pub mod meta;
pub mod metadata;
mod metadata_store;
mod open;
mod open_metadata;
pub mod page;
mod read_dump;
pub mod record;
mod replay;
mod restored;
mod setters;
pub mod smart_counters;
mod steps;
mod tail;
mod term_cell;

#[cfg(test)]
mod tests;

pub use bytes::COUNTER_MAX;
pub use checkpoint::{Checkpoint, Finishing};
pub use dump::{Dump, DumpPage, DumpState};
pub use dump_writer::DumpWriter;
pub use durable::Durable;
pub use error::{DurableError, Refused, Unusable};
pub use header::Header;
pub use journal::{Journal, JournalSyncs};
pub use layout::Sizes;
pub use meta::{AppliedStamp, HistoryMeta, Meta, SuperblockMeta, SuperblockState};
pub use metadata::{Grant, HeldMap, Metadata, SsdIdentity, Tombstone};
pub use metadata_store::MetadataStore;
pub use open::{Opened, State};
pub use open_metadata::EntryCell;
pub use read_dump::DumpIdentity;
pub use record::{Bounds, MAX_TRANSACTION_BYTES, Record, Seq};
pub use replay::{End, Replayed};
pub use restored::Restored;
pub use smart_counters::SmartCounters;
