// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes that the disk did not take, where the sync of another user of the store was told.

use super::{ID, SIZES};
use crate::{Checkpoint, Durable, DurableError, Journal, Meta, Record};
use gnstor_flash::{Power, RamStore, Started, Store, SyncTicket};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

/// Loses one started write. Its syncs succeed, as they do once another user's sync was told.
#[derive(Debug)]
struct Losing {
    inner: RamStore,
    /// The started write to lose, counted down to zero.
    lose: AtomicU64,
    lost: AtomicU64,
}

impl Losing {
    fn lose(&self, nth: u64) {
        self.lose.store(nth, Ordering::Relaxed);
    }
}

impl Store for Losing {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(at, out)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(at, data)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn barrier(&self) -> io::Result<bool> {
        self.inner.barrier()
    }

    fn start_write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        let left = self.lose.load(Ordering::Relaxed);
        self.lose.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 1 {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.inner.write(at, data)
    }

    fn lost_writes(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn start_sync(&self) -> io::Result<Started> {
        self.inner.start_sync()
    }

    fn poll_sync(&self, ticket: SyncTicket) -> Poll<io::Result<()>> {
        self.inner.poll_sync(ticket)
    }
}

/// On a store whose syncs end at this poll; 0: at once.
fn start(polls: u32) -> (Arc<Losing>, Durable, Journal) {
    let inner = RamStore::new(SIZES.store_bytes(), Arc::new(Power::steady())).with_slow_syncs(polls);
    let store = Arc::new(Losing { inner, lose: AtomicU64::new(0), lost: AtomicU64::new(0) });
    let durable = Durable::format(Arc::clone(&store) as _, SIZES, ID).unwrap().durable;
    let replayed = durable.replay(0, |_, _| Ok::<_, DurableError>(())).unwrap();
    let journal = durable.into_journal(&replayed).unwrap();
    (store, durable, journal)
}

#[test]
fn a_flush_whose_page_is_lost_fails_and_the_next_one_writes_it_again() {
    let _deadline = crate::tests::deadline();
    for polls in [0, 3] {
        let (store, _, mut journal) = start(polls);
        journal.begin();
        journal.add(Record::Word { index: 1, value: 2 });
        journal.commit();
        let before = journal.durable();
        store.lose(1);
        assert!(journal.flush(u64::MAX, true).is_err(), "syncs of {polls} polls");
        assert_eq!((journal.durable(), store.lost_writes()), (before, 1));
        journal.flush(u64::MAX, true).unwrap();
        let durable = Durable::open(store, SIZES).unwrap().durable;
        let mut words = 0;
        let count = |_, records: &[Record]| {
            words += records.len();
            Ok::<_, DurableError>(())
        };
        durable.replay(0, count).unwrap();
        assert_eq!(words, 1, "the word is in the file");
    }
}

#[test]
fn a_checkpoint_of_which_a_piece_is_lost_never_counts() {
    let _deadline = crate::tests::deadline();
    for (polls, nth) in [(0, 1), (3, 1), (3, 3)] {
        let (store, durable, mut journal) = start(polls);
        let newest = durable.header().newest();
        let mut checkpoint = Checkpoint::begin(&durable, &journal, &Meta::empty(&SIZES)).unwrap();
        store.lose(nth);
        checkpoint.words(0, &[7; 5000]).unwrap();
        assert_eq!(store.lost_writes(), 1);
        journal.begin();
        journal.add(Record::Word { index: 1, value: 2 });
        journal.commit();
        journal.flush(u64::MAX, true).expect("the journal has lost nothing");
        assert!(checkpoint.finish(&mut journal).is_err(), "piece {nth}, syncs of {polls} polls");
        assert_eq!(durable.header().newest(), newest, "the checkpoint before is the newest");
    }
}

#[test]
fn a_cell_of_which_a_copy_is_lost_is_no_change() {
    let _deadline = crate::tests::deadline();
    for (polls, copy) in [(0, 1), (0, 2), (3, 1), (3, 2)] {
        let (store, durable, _journal) = start(polls);
        let dump = durable.header().dump;
        store.lose(copy);
        assert!(durable.invalidate_dump().is_err(), "copy {copy}, syncs of {polls} polls");
        assert_eq!(durable.header().dump, dump);
        durable.invalidate_dump().unwrap();
        assert_eq!(durable.header().dump, dump + 1);
    }
}
