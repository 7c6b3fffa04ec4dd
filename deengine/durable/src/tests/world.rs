// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small SSD that uses everything in this crate, beside a model of its content after any power cut.

use super::dump::{Page, lend, pages, write_dump};
use super::{Bench, Dice, SIZES, entry, vid};
use crate::{
    Checkpoint, DumpState, Durable, DurableError, Journal, Meta, Metadata, MetadataStore, Opened, Record,
    Replayed, Seq, State, Tombstone,
};

/// The intended content of a dump.
#[derive(Clone, Debug)]
struct Sealed {
    durable: Seq,
    last: Seq,
    pages: Vec<Page>,
}

struct Live {
    durable: Durable,
    journal: Journal,
    metadata: MetadataStore,
    words: Vec<u64>,
    checkpoint: Option<(Checkpoint, u64)>,
}

pub(crate) struct World {
    pub(crate) bench: Bench,
    dice: Dice,
    live: Option<Live>,
    /// Every transaction that may still be found, from number 1.
    history: Vec<Vec<Record>>,
    /// All transactions up to this one were reported durable.
    reported: Seq,
    metadata: Metadata,
    /// The metadata store after the operation in flight.
    metadata_next: Option<Metadata>,
    /// A dump that must exist.
    sealed: Option<Sealed>,
    /// A dump that may exist.
    attempted: Option<Sealed>,
    /// Whether the next open must (not) say that the shutdown was clean.
    clean: Option<bool>,
    generation: u32,
}

fn apply(words: &mut [u64], records: &[Record]) {
    for record in records {
        if let Record::Word { index, value } = *record {
            words[usize::try_from(index).unwrap()] = value;
        }
    }
}

impl World {
    /// A formatted store, not restored yet.
    pub(crate) fn new(seed: u64) -> Self {
        let bench = Bench::new();
        bench.format();
        Self {
            bench,
            dice: Dice(seed),
            live: None,
            history: Vec::new(),
            reported: 0,
            metadata: Metadata::default(),
            metadata_next: None,
            sealed: None,
            attempted: None,
            clean: None,
            generation: 0,
        }
    }

    /// Some steps of a script that the seed decides.
    ///
    /// # Errors
    /// The store's error; only a power cut causes one.
    pub(crate) fn run(&mut self, steps: u32) -> Result<(), DurableError> {
        for _ in 0..steps {
            if self.live.is_none() {
                self.restore()?;
            }
            match self.dice.below(32) {
                0..10 => self.commit(),
                10..19 => self.flush()?,
                19..24 => self.checkpoint()?,
                24..28 => self.change_metadata()?,
                28 => self.live = None,
                29 => self.shut_down()?,
                _ => self.lose_power()?,
            }
        }
        Ok(())
    }

    /// The power is back: only the store's content is left.
    pub(crate) fn after_power_cut(&mut self) {
        assert!(self.bench.power.is_cut(), "an error without a power cut");
        self.live = None;
        self.bench.power.restore();
        self.bench.ram.after_power_cut(self.dice.next());
    }

    fn live(&mut self) -> &mut Live {
        self.live.as_mut().expect("restored")
    }

    fn commit(&mut self) {
        for _ in 0..self.dice.below(6) {
            let records = self.dice.records();
            let bytes = records.len() as u64 * 24 + 8;
            if !self.live().journal.has_room(bytes) {
                return;
            }
            let live = self.live();
            apply(&mut live.words, &records);
            live.journal.begin();
            records.iter().for_each(|record| live.journal.add(*record));
            let seq = live.journal.commit();
            self.history.push(records);
            assert_eq!(seq, self.history.len() as u64);
        }
    }

    fn flush(&mut self) -> Result<(), DurableError> {
        let (durable, last) = (self.live().journal.durable(), self.live().journal.last());
        let (upto, force) = (durable + self.dice.below(last - durable + 1), self.dice.below(2) == 0);
        if force && !self.live().journal.has_room(8192) {
            return self.checkpoint();
        }
        if last > durable {
            // This may write a page, which removes a clean mark.
            self.clean = if self.clean == Some(false) { Some(false) } else { None };
        }
        let journal = &mut self.live().journal;
        journal.flush(upto, force)?;
        let durable = journal.durable();
        assert!(durable >= self.reported && durable <= upto && (!force || durable == upto));
        self.reported = durable;
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), DurableError> {
        let take = 1 + self.dice.below(SIZES.map_words);
        let last = self.history.len() as u64;
        let live = self.live();
        let (mut checkpoint, next) = match live.checkpoint.take() {
            Some(running) => running,
            None => {
                let meta = Meta { page_seq: last, ..Meta::empty(&SIZES) };
                (Checkpoint::begin(&live.durable, &live.journal, &meta)?, 0)
            }
        };
        let end = (next + take).min(SIZES.map_words);
        checkpoint.words(next, &live.words[usize::try_from(next).unwrap()..usize::try_from(end).unwrap()])?;
        if end < SIZES.map_words {
            live.checkpoint = Some((checkpoint, end));
            return Ok(());
        }
        live.journal.flush(checkpoint.needs(), true)?;
        let durable = live.journal.durable();
        checkpoint.finish(&mut live.journal)?;
        self.reported = durable;
        self.clean = if self.clean == Some(false) { Some(false) } else { None };
        Ok(())
    }

    fn change_metadata(&mut self) -> Result<(), DurableError> {
        let (kind, raw) = (self.dice.below(6), u16::try_from(1 + self.dice.below(4)).unwrap());
        let (vid, value) = (vid(raw), self.dice.next());
        self.generation += 1;
        let generation = self.generation;
        let mut next = self.metadata.clone();
        let live = self.live.as_mut().expect("restored");
        match kind {
            0 => next.term = value,
            1 => next.map = Some(value.to_le_bytes().repeat(usize::try_from(value % 700).unwrap())),
            2 | 3 => {
                let ids = vec![([7; 16], value)];
                next.tombstones
                    .insert(vid, Tombstone { generation, ids, buried_at: value, ..Tombstone::default() });
                next.entries.remove(&vid);
            }
            _ => {
                next.entries.insert(vid, entry(vid, generation, value));
            }
        }
        self.metadata_next = Some(next.clone());
        match kind {
            0 => live.metadata.set_term(value)?,
            1 => live.metadata.set_map(next.map.as_ref().unwrap())?,
            2 | 3 => live.metadata.bury(vid, next.tombstones[&vid].clone())?,
            _ => live.metadata.put_entry(vid, &next.entries[&vid])?,
        }
        assert_eq!(live.metadata.contents(), &next);
        self.metadata = next;
        // A burial may have been cut after its tombstone: then the contents are right and the power is gone.
        self.metadata_next = None;
        Ok(())
    }

    fn shut_down(&mut self) -> Result<(), DurableError> {
        let live = self.live();
        live.journal.flush(u64::MAX, true)?;
        let durable = live.journal.durable();
        self.reported = durable;
        self.clean = None;
        let live = self.live();
        live.durable.mark_clean(&live.journal)?;
        self.clean = Some(true);
        self.live = None;
        Ok(())
    }

    /// A power failure with enough energy for a dump.
    fn lose_power(&mut self) -> Result<(), DurableError> {
        let pages = {
            let count = self.dice.below(20);
            pages(&mut self.dice, count)
        };
        let live = self.live();
        let (durable, last) = (live.journal.durable(), live.journal.last());
        if crate::dump::bytes_for(live.journal.tail_bytes(), pages.len() as u64) > SIZES.dump_bytes {
            return Ok(());
        }
        let sealed = Sealed { durable, last, pages };
        self.attempted = Some(sealed.clone());
        let live = self.live.as_ref().expect("restored");
        write_dump(&live.durable, &live.journal, lend(&sealed.pages))?;
        self.sealed = Some(sealed);
        self.live = None;
        self.bench.ram.after_power_cut(self.dice.next());
        Ok(())
    }

    /// Checks a dump against the model and replays its tail over the words. Returns its last transaction.
    fn check_dump(&mut self, dump: &DumpState, last: Seq, words: &mut [u64]) -> Result<Seq, DurableError> {
        let mut after = last;
        let DumpState::Intact(dump) = dump else {
            assert!(self.sealed.is_none(), "{dump:?}, and {:?} was finished", self.sealed);
            return Ok(after);
        };
        let sealed = self.sealed.as_ref().or(self.attempted.as_ref()).expect("a dump was written");
        assert_eq!((dump.durable(), dump.last()), (sealed.durable, sealed.last));
        assert_eq!(dump.pages().collect::<Vec<_>>(), lend(&sealed.pages).collect::<Vec<_>>());
        dump.replay(last, |seq, records| {
            after += 1;
            assert_eq!((seq, records), (after, &self.history[usize::try_from(seq - 1).unwrap()][..]));
            apply(words, records);
            Ok::<_, DurableError>(())
        })?;
        assert_eq!(after, last.max(sealed.last));
        self.sealed = Some(sealed.clone());
        Ok(after)
    }

    /// Reads the newest checkpoint, replays the journal after it, and compares each transaction with the
    /// model.
    fn replay(&self, durable: &Durable) -> Result<(Vec<u64>, Replayed), DurableError> {
        let mut words = vec![0; usize::try_from(SIZES.map_words).unwrap()];
        let mut restored = durable.checkpoint()?;
        restored.for_each(|first, chunk| {
            let first = usize::try_from(first).unwrap();
            words[first..first + chunk.len()].copy_from_slice(chunk);
            Ok::<_, DurableError>(())
        })?;
        assert_eq!(restored.meta, Meta { page_seq: restored.seq, ..Meta::empty(&SIZES) });
        let mut expected = restored.seq;
        let replayed = durable.replay(restored.seq, |seq, records| {
            expected += 1;
            assert_eq!((seq, records), (expected, &self.history[usize::try_from(seq - 1).unwrap()][..]));
            apply(&mut words, records);
            Ok::<_, DurableError>(())
        })?;
        assert_eq!(replayed.last, expected);
        Ok((words, replayed))
    }

    /// Opens a store, checks everything found against the model, and continues from it.
    pub(crate) fn restore(&mut self) -> Result<(), DurableError> {
        let opened = Durable::open(self.bench.store(), SIZES)?;
        if let Some(clean) = self.clean {
            assert_eq!(opened.state == State::Clean, clean);
        }
        let found = opened.metadata.contents();
        assert!(
            *found == self.metadata || Some(found) == self.metadata_next.as_ref(),
            "{found:?} is neither {:?} nor {:?}",
            self.metadata,
            self.metadata_next
        );
        assert!(opened.metadata.lost().is_empty(), "{:?}", opened.metadata.damaged());
        self.metadata = found.clone();
        self.metadata_next = None;

        let Opened { durable, metadata, .. } = opened;
        let (mut words, replayed) = self.replay(&durable)?;
        let last = replayed.last;
        assert!(replayed.is_whole(), "{:?}", replayed.end);
        assert!(last >= self.reported, "{last}, and {} was reported", self.reported);
        assert!(self.clean != Some(true) || last == self.history.len() as u64);
        // Opening has made it stable: from now on a restore that finds less has lost something.
        self.reported = last;

        let dump = durable.read_dump();
        let after = self.check_dump(&dump, last, &mut words)?;
        self.attempted = None;
        self.history.truncate(usize::try_from(after).unwrap());
        let mut exact = vec![0; words.len()];
        self.history.iter().for_each(|records| apply(&mut exact, records));
        assert!(words == exact, "the words are not those after transaction {after}");

        self.clean = None;
        let mut journal = durable.into_journal(&replayed)?;
        self.clean = Some(false);
        if let DumpState::Intact(dump) = &dump {
            journal.adopt(dump)?;
            assert_eq!((journal.last(), journal.durable()), (after, last));
            journal.flush(u64::MAX, true)?;
        }
        self.reported = journal.durable();
        self.attempted = self.sealed.take();
        durable.invalidate_dump()?;
        self.attempted = None;
        self.live = Some(Live { durable, journal, metadata, words, checkpoint: None });
        Ok(())
    }
}
