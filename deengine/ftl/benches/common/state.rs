// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of an SSD after a power failure, made through the formats alone: no data is written.
//!
//! ```text
//!   superblocks   0 .. full, from the fill | written since the checkpoint, as the journal says
//!                 | one open: all its pages are in the dump | free
//! ```

use gnstor_durable::{
    AppliedStamp, Checkpoint, DumpPage, DumpWriter, Durable, DurableError, HistoryMeta, Journal,
    MAX_TRANSACTION_BYTES, Meta, Record, Sizes, SuperblockState, dump,
};
use gnstor_flash::{Geometry, Oob, Ppa, Store, Superblock};
use gnstor_map::{Map, MapWriter};
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::{Stamp, Vid};
use std::sync::Arc;

/// Plan of the state.
pub(crate) struct Plan {
    pub(crate) fill_percent: u64,
    /// Length of the journal; 0: as long as possible.
    pub(crate) journal_bytes: u64,
    /// Pages that collection moves for each that a host writes.
    pub(crate) moves: u64,
    pub(crate) volumes: u16,
    /// Superblocks that stay free: collection keeps them.
    pub(crate) free_superblocks: u32,
    /// At most; the energy budget may admit fewer.
    pub(crate) dump_pages: u32,
}

/// The state made.
pub(crate) struct Made {
    pub(crate) mapped: u64,
    pub(crate) last: u64,
    pub(crate) writes: u64,
    pub(crate) moved: u64,
    pub(crate) trims: u64,
    pub(crate) journal_bytes: u64,
    pub(crate) dump_pages: usize,
    pub(crate) dump_bytes: u64,
}

/// Distance at which buckets are prefetched.
const AHEAD: u64 = 16;
/// Most bytes of the tail in a full dump: a restore writes it to the ring.
const TAIL: u64 = 2 << 20;
/// The next transactions in bytes: a page, and a superblock that is closed and opened for it.
const LARGEST: u64 = 3 * MAX_TRANSACTION_BYTES as u64;
/// Length of a full stamp history (protocol rule 6).
const HISTORY: u64 = 4096;

struct Maker<'a> {
    writer: MapWriter,
    journal: Journal,
    geometry: &'a Geometry,
    volumes: u16,
    mapped: u64,
    /// Pages handed out.
    next: u32,
    dice: u64,
    opened: u64,
    sequence: u64,
}

pub(crate) fn make(
    store: Arc<dyn Store>,
    sizes: Sizes,
    geometry: &Geometry,
    logical: u64,
    plan: &Plan,
) -> Made {
    let durable = Durable::format(store, sizes, 1).expect("a new store").durable;
    let replayed = durable.replay(0, |_, _| Ok::<_, DurableError>(())).expect("an empty journal");
    let journal = durable.into_journal(&replayed).expect("an empty journal");
    durable.invalidate_dump().expect("there is none");
    let (map, writer) = Map::new(logical, geometry.pages(), 1).expect("memory for the map");
    let mapped = logical * plan.fill_percent / 100;
    let (volumes, next) = (plan.volumes, 0);
    let mut maker =
        Maker { writer, journal, geometry, volumes, mapped, next, dice: 0, opened: 0, sequence: HISTORY };
    maker.fill();
    maker.checkpoint(&durable, &map, &sizes);
    let (mut writes, mut moved) = (0, 0);
    // Pages of the dump are in superblocks of their own, and a restore writes them anew. Collection cannot
    // run for that, since no page has a record.
    let dumped = (sizes.dump_bytes / 4096).min(plan.dump_pages.into());
    let free = u64::from(plan.free_superblocks + 3) * u64::from(geometry.superblock_pages());
    let batch = 1000 * (plan.moves + 1) + 2 * dumped + free;
    let worst = (sizes.journal_bytes / 16 * 15).saturating_sub(TAIL);
    let journal_bytes = if plan.journal_bytes == 0 { worst } else { plan.journal_bytes };
    while maker.journal_bytes(&sizes) < journal_bytes && u64::from(maker.next) + batch < geometry.pages() {
        for _ in 0..1000 {
            maker.transaction(true);
            (0..plan.moves).for_each(|_| _ = maker.transaction(false));
        }
        writes += 1000;
        moved += 1000 * plan.moves;
        maker.journal.flush(maker.journal.last(), false).expect("room in the journal");
    }
    // No superblock is erased here. If the spare space ends before the journal is full, TRIMs of unmapped
    // blocks fill the journal.
    let mut trims = 0;
    while maker.journal_bytes(&sizes) < journal_bytes {
        (0..1000).for_each(|_| maker.trim());
        trims += 1000;
        maker.journal.flush(maker.journal.last(), false).expect("room in the journal");
    }
    // The last superblock begins anew, so that all of its pages are in the dump.
    while !maker.next.is_multiple_of(geometry.superblock_pages()) {
        maker.transaction(false);
        moved += 1;
    }
    maker.journal.flush(maker.journal.last(), true).expect("room in the journal");
    let made_bytes = maker.journal_bytes(&sizes);
    let (dump_pages, dump_bytes) = maker.dump(&durable, &sizes, plan.dump_pages as usize);
    let (mapped, last) = (map.len(), maker.journal.last());
    Made { mapped, last, writes, moved, trims, journal_bytes: made_bytes, dump_pages, dump_bytes }
}

impl Maker<'_> {
    /// Makes a dump of so many pages or fewer, as the budget allows: pages and bytes.
    fn dump(&mut self, durable: &Durable, sizes: &Sizes, most: usize) -> (usize, u64) {
        let mut buffered: Vec<(Ppa, Oob)> = Vec::new();
        while buffered.len() < most
            && dump::bytes_for(self.journal.tail_bytes() + LARGEST, buffered.len() as u64 + 1)
                <= sizes.dump_bytes
        {
            buffered.push(self.transaction(true));
        }
        let dump_pages = buffered.len();
        let mut dump = DumpWriter::begin(durable, &self.journal).expect("within the budget");
        for (page, oob) in buffered {
            dump.page(DumpPage { page, oob, data: Some(&[0; 4096]) }).expect("within the budget");
        }
        let bytes = dump.finish().expect("the store");
        (dump_pages, bytes)
    }

    fn key(&self, number: u64) -> (Vid, u32) {
        let volumes = u64::from(self.volumes);
        let vid =
            Vid::new(1 + u16::try_from(number % volumes).expect("below their number")).expect("not reserved");
        (vid, u32::try_from(number / volumes).expect("a volume's size"))
    }

    /// Maps everything once, in order.
    fn fill(&mut self) {
        let mut probes: Vec<_> = (0..AHEAD)
            .map(|number| self.writer.map().probe(self.key(number).0, self.key(number).1))
            .collect();
        for number in 0..self.mapped {
            let (vid, vba) = self.key(number + AHEAD);
            let nth = usize::try_from(number % AHEAD).expect("a few");
            let probe = std::mem::replace(&mut probes[nth], self.writer.map().probe(vid, vba));
            self.writer.insert_at(&probe, self.next, &mut |_, _| {}).expect("the map is sized for it");
            self.next += 1;
        }
        self.next = self.next.next_multiple_of(self.geometry.superblock_pages());
        self.opened = u64::from(self.next / self.geometry.superblock_pages());
    }

    fn checkpoint(&mut self, durable: &Durable, map: &Map, sizes: &Sizes) {
        let mut meta = Meta::empty(sizes);
        for (order, superblock) in (1..=self.opened).zip(&mut meta.superblocks) {
            (superblock.state, superblock.order) = (SuperblockState::Closed, order);
        }
        (meta.next_order, meta.page_seq) = (self.opened, self.mapped);
        let in_volume = |volume: u64| {
            let stamps = 1..=HISTORY.min(self.mapped / u64::from(self.volumes));
            let pair = |sequence| {
                AppliedStamp::new(
                    self.key(volume + (sequence - 1) * u64::from(self.volumes)).1,
                    stamp(sequence),
                )
            };
            HistoryMeta { vid: self.key(volume).0, ahead: 0, stamps: stamps.map(pair).collect() }
        };
        meta.histories = (0..u64::from(self.volumes)).map(in_volume).collect();
        meta.histories.sort_by_key(|history| history.vid);
        let mut checkpoint = Checkpoint::begin(durable, &self.journal, &meta).expect("room");
        let mut words = vec![0; 1 << 17];
        for first in (0..sizes.map_words).step_by(words.len()) {
            let count =
                usize::try_from(sizes.map_words - first).map_or(words.len(), |left| left.min(words.len()));
            map.read_words(first, &mut words[..count]);
            checkpoint.words(first, &words[..count]).expect("the next ones");
        }
        checkpoint.finish(&mut self.journal).expect("nothing is before it");
    }

    fn journal_bytes(&self, sizes: &Sizes) -> u64 {
        sizes.journal_bytes * u64::from(self.journal.fill_permille()) / 1000
    }

    /// A random block goes to the next page: written by its host, or moved by collection.
    fn transaction(&mut self, by_host: bool) -> (Ppa, Oob) {
        let superblock = Superblock(self.next / self.geometry.superblock_pages());
        if self.next.is_multiple_of(self.geometry.superblock_pages()) {
            assert!(
                u64::from(self.next) < self.geometry.pages(),
                "the journal is longer than the spare space: --fill less"
            );
            if u64::from(superblock.0) > self.opened {
                self.note(Record::Closed { superblock: Superblock(superblock.0 - 1) });
            }
            let order = u64::from(superblock.0) + 1;
            self.note(Record::Opened { superblock, stream: 0, order });
        }
        self.dice += 1;
        let (vid, vba) = self.key(mix64(self.dice) % self.mapped);
        self.sequence += 1;
        let stamp = stamp(self.sequence);
        self.journal.begin();
        if by_host {
            self.journal.add(Record::Applied { vid, vba, stamp });
        }
        let (journal, page) = (&mut self.journal, self.next);
        let log = &mut |index, value| journal.add(Record::Word { index, value });
        self.writer.insert(vid, vba, page, log).expect("it is there");
        self.journal.commit();
        self.next += 1;
        (Ppa(page), Oob { vid: vid.get(), generation: 1, vba, stamp, sum: 0, seq: self.mapped + self.dice })
    }

    fn trim(&mut self) {
        self.dice += 1;
        let (vid, vba) = self.key(self.mapped + mix64(self.dice) % self.mapped);
        self.sequence += 1;
        self.note(Record::Applied { vid, vba, stamp: stamp(self.sequence) });
    }

    fn note(&mut self, record: Record) {
        self.journal.begin();
        self.journal.add(record);
        self.journal.commit();
    }
}

fn stamp(sequence: u64) -> Stamp {
    Stamp { lease_epoch: 1, sequence }
}
