// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors. Each message says what failed and at which offset.

use gnstor_flash::{Started, Store, SyncTicket};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::EntryError;
use std::io;
use std::task::Poll;
use thiserror::Error;

/// Why something durable could not be written or opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DurableError {
    /// The store refused.
    #[error("{what} at byte {at} of the system area: {source}")]
    Io {
        /// Operation.
        what: &'static str,
        /// Offset in the store.
        at: u64,
        /// Error of the store.
        source: io::Error,
    },
    /// The store is smaller than the layout.
    #[error("the system area has {has} bytes; these sizes need {needs}")]
    StoreTooSmall {
        /// Bytes of the store.
        has: u64,
        /// Bytes of the layout.
        needs: u64,
    },
    /// A size has no sense.
    #[error("the size `{field}` is {value}, which is not within {low} to {high}")]
    Size {
        /// Name of the size.
        field: &'static str,
        /// Value given.
        value: u64,
        /// Least.
        low: u64,
        /// Most.
        high: u64,
    },
    /// The store was formatted with other sizes.
    #[error("the system area was formatted with `{field}` = {found}, not {wanted}")]
    OtherSizes {
        /// Name of the size.
        field: &'static str,
        /// Value in the store.
        found: u64,
        /// Value given by the caller.
        wanted: u64,
    },
    /// Both copies of the header are unusable.
    #[error("the system area cannot be opened: {reason}; format the SSD anew, or put a copy of it back")]
    Header {
        /// Why.
        reason: String,
    },
    /// The bytes read are not valid.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// No checkpoint.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The ring has no free page: a restore needs all of them.
    #[error("the journal ring of {pages} pages is full: finish the running checkpoint first")]
    RingFull {
        /// Pages of the ring.
        pages: u64,
    },
    /// Replay reached a page that was durable once and cannot be read.
    #[error("the journal cannot go on after transaction {last}: {reason}; rebuild and start a fresh one")]
    JournalDamaged {
        /// The last transaction read.
        last: u64,
        /// Why no further.
        reason: String,
    },
    /// No checkpoint is at this transaction.
    #[error("no checkpoint in the header stands at transaction {seq}: replay starts only at one")]
    UnknownPosition {
        /// The requested transaction.
        seq: u64,
    },
    /// The checkpoint's words depend on transactions that are not durable.
    #[error(
        "the checkpoint holds changes of transaction {needed}; the journal is durable up to {durable}: \
         flush first"
    )]
    NotDurable {
        /// The transaction.
        needed: u64,
        /// Last durable transaction.
        durable: u64,
    },
    /// A checkpoint was finished too early.
    #[error("the checkpoint has {has} of {of} words")]
    Incomplete {
        /// Number of words in the call.
        has: u64,
        /// Words of the map.
        of: u64,
    },
    /// Words out of order, or beyond the map.
    #[error("the checkpoint expects words from {expected} on and got {count} words from {first}")]
    WordsOrder {
        /// The word that comes next.
        expected: u64,
        /// First word of the call.
        first: u64,
        /// Number of words.
        count: u64,
    },
    /// The content is larger than its place.
    #[error("{what}: {has} do not fit into {room}")]
    TooLarge {
        /// Content.
        what: &'static str,
        /// Size of the content.
        has: u64,
        /// Size of the place.
        room: u64,
    },
    /// A dump exists that may be the only copy of its content.
    #[error("the dump of an earlier power failure is still valid: restore it and invalidate it first")]
    DumpHeld,
    /// The dump's tail does not join the journal.
    #[error("the dump goes on after transaction {dump}, but replay reached only {reached}")]
    DumpGap {
        /// The last durable transaction when the dump was written.
        dump: u64,
        /// Replay reached this.
        reached: u64,
    },
    /// The bytes are not a permission entry of this volume.
    #[error("not a permission entry of {vid}: {why}")]
    Entry {
        /// The volume.
        vid: Vid,
        /// Why.
        why: EntryError,
    },
    /// This life of the volume id is over.
    #[error("generation {generation} of {vid} is not after its tombstone's, {buried}")]
    Buried {
        /// The volume.
        vid: Vid,
        /// The entry's generation.
        generation: u32,
        /// The tombstone's generation.
        buried: u32,
    },
    /// No slot is left.
    #[error("the metadata store has no free slot for {what}: all {slots} are used")]
    MetadataFull {
        /// Record that needs the place.
        what: &'static str,
        /// Number of slots.
        slots: u32,
    },
}

/// Bytes that are not valid. None of them is used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{what}: {why}")]
pub struct Refused {
    /// Structure that was read.
    pub what: &'static str,
    /// Reason.
    pub why: String,
}

impl Refused {
    pub(crate) fn new(what: &'static str, why: impl Into<String>) -> Self {
        Self { what, why: why.into() }
    }
}

/// No checkpoint, or not this one, can be used: the caller rebuilds the map from the pages' records.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the checkpoint cannot be used: {reason}")]
pub struct Unusable {
    /// Why.
    pub reason: String,
}

impl From<DurableError> for Unusable {
    fn from(error: DurableError) -> Self {
        Self { reason: error.to_string() }
    }
}

impl From<Refused> for Unusable {
    fn from(refused: Refused) -> Self {
        Self { reason: refused.to_string() }
    }
}

pub(crate) fn read(
    store: &dyn Store,
    at: u64,
    out: &mut [u8],
    what: &'static str,
) -> Result<(), DurableError> {
    store.read(at, out).map_err(|source| DurableError::Io { what, at, source })
}

pub(crate) fn write(store: &dyn Store, at: u64, data: &[u8], what: &'static str) -> Result<(), DurableError> {
    store.write(at, data).map_err(|source| DurableError::Io { what, at, source })
}

/// As [`write`], but does not wait for the medium.
pub(crate) fn start_write(
    store: &dyn Store,
    at: u64,
    data: &[u8],
    what: &'static str,
) -> Result<(), DurableError> {
    store.start_write(at, data).map_err(|source| DurableError::Io { what, at, source })
}

/// Makes programs of the flash durable before a write names their pages. Returns whether that took a sync.
pub(crate) fn barrier(store: &dyn Store, what: &'static str) -> Result<bool, DurableError> {
    store.barrier().map_err(|source| DurableError::Io { what, at: 0, source })
}

/// As [`barrier`], but does not wait for the medium.
pub(crate) fn start_barrier(store: &dyn Store, what: &'static str) -> Result<Started, DurableError> {
    store.start_barrier().map_err(|source| DurableError::Io { what, at: 0, source })
}

pub(crate) fn sync(store: &dyn Store, what: &'static str) -> Result<(), DurableError> {
    store.sync().map_err(|source| DurableError::Io { what, at: 0, source })
}

/// A sync that runs, of writes that were started before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub(crate) ticket: SyncTicket,
    /// [`Store::lost_writes`] before the first of these writes.
    pub(crate) lost_before: u64,
}

/// As [`sync`], without waiting for the medium; the sync where it runs. `lost_before` is the number of lost
/// writes before the caller's first one.
pub(crate) fn start_sync(
    store: &dyn Store,
    lost_before: u64,
    what: &'static str,
) -> Result<Option<Running>, DurableError> {
    match store.start_sync() {
        Ok(Started::Running(ticket)) => Ok(Some(Running { ticket, lost_before })),
        Ok(Started::Ended | Started::NotNeeded) => check_lost(store, lost_before, what).map(|()| None),
        Err(source) => Err(DurableError::Io { what, at: 0, source }),
    }
}

/// Another user's sync may have been told of a lost write of this caller.
fn check_lost(store: &dyn Store, lost_before: u64, what: &'static str) -> Result<(), DurableError> {
    if store.lost_writes() == lost_before {
        return Ok(());
    }
    let source = std::io::Error::other("the disk did not take a write before this sync");
    Err(DurableError::Io { what, at: 0, source })
}

/// Whether a caller waits for the medium: only at a start, a shutdown and a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// The call polls.
    None,
    /// The call blocks.
    Blocks,
}

/// The end of a sync.
pub(crate) fn end_sync(
    store: &dyn Store,
    Running { ticket, lost_before }: Running,
    patience: Patience,
    what: &'static str,
) -> Result<Poll<()>, DurableError> {
    let ended = match patience {
        Patience::None => store.poll_sync(ticket),
        Patience::Blocks => Poll::Ready(store.wait_sync(ticket)),
    };
    match ended {
        Poll::Pending => Ok(Poll::Pending),
        Poll::Ready(Ok(())) => check_lost(store, lost_before, what).map(Poll::Ready),
        Poll::Ready(Err(source)) => Err(DurableError::Io { what, at: 0, source }),
    }
}
