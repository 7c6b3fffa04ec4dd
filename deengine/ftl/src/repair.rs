// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a repair asks of the layer (rules 13 and 14 of the fleet). It asks what is held of a block, and gives
//! the block another content whatever the stamps are.
//!
//! In a place that fills, a block is *current* once a client has changed it, or it was compared with the
//! group's first. What is not current is of an earlier life of the SSD. Nothing of this outlives a restart.

use crate::collect::journal_bytes;
use crate::current::Current;
use crate::layer::{Ftl, Inner};
use crate::types::{CommitError, NewBlock, Target};
use crate::write::{Change, Commits};
use gnstor_base::time::Time;
use gnstor_durable::{Record, Seq};
use gnstor_flash::Ppa;
use gnstor_map::Batch;
use gnstor_proto::pull::{Kind, LEAF, Row};
use gnstor_proto::slba::{Stamp, Vid};

const _: () = assert!(LEAF as usize <= Batch::MOST, "a digest's blocks are looked up together");

/// State of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// No block, and no TRIM that is still known.
    Nothing,
    /// A block.
    Block {
        /// Stamp of the block.
        stamp: Stamp,
        /// Block sum.
        sum: u32,
    },
    /// The block was trimmed with this stamp.
    Tombstone {
        /// The stamp.
        stamp: Stamp,
    },
}

impl Ftl {
    /// Forgets which blocks are current, but for the ones that `keep` names by volume, generation and block.
    pub fn retain_current(&self, keep: impl Fn(u16, u32, u32) -> bool) {
        self.lock().stamps.current.retain(keep);
    }

    /// No block is current.
    pub fn forget_current(&self) {
        self.lock().stamps.current = Current::default();
    }

    /// What is held of a block. If the record of its page has rotted, it is a block with the lowest stamp, so
    /// that another copy is taken for newer. A digest does without that check.
    fn kept(&self, inner: &Inner, (vid, generation, vba): (Vid, u32, u32), checks: bool) -> Kept {
        let page = self.map.find(&self.map.probe(vid, vba)).map(Ppa);
        let oob = page.and_then(|page| self.flash.oob(page)).unwrap_or_default();
        let is_of_block = (oob.vid, oob.vba) == (vid.get(), vba);
        let same = is_of_block && oob.generation == generation;
        if let Some(page) = page.filter(|_| !same || checks)
            && (!is_of_block || !self.flash.is_sound(page))
        {
            return Kept::Block { stamp: Stamp::default(), sum: oob.sum };
        }
        if page.is_some() && same {
            return Kept::Block { stamp: oob.stamp, sum: oob.sum };
        }
        let trimmed = inner.stamps.held(vid, vba).filter(|stamp| *stamp != Stamp::default());
        trimmed.map_or(Kept::Nothing, |stamp| Kept::Tombstone { stamp })
    }
}

impl Kept {
    fn row(self, block: u32) -> Row {
        let (kind, stamp) = match self {
            Self::Nothing => (Kind::Nothing, Stamp::default()),
            Self::Block { stamp, sum } => (Kind::Block { sum }, stamp),
            Self::Tombstone { stamp } => (Kind::Tombstone, stamp),
        };
        Row { block, kind, stamp }
    }
}

impl Ftl {
    /// Asks for the records of these blocks, ahead of [`Commits::digest`]: at most [`LEAF`] of them.
    pub fn announce_rows(&self, vid: Vid, blocks: &[u32]) {
        self.announce(blocks.iter().map(|vba| (vid, *vba)), &mut Batch::default());
    }
}

impl Commits<'_> {
    /// What is held of a block now. Nothing changes while the lock is held.
    pub fn kept(&self, vid: Vid, generation: u32, vba: u32) -> Kept {
        self.ftl.kept(&self.inner, (vid, generation, vba), true)
    }

    /// The digest of the current content of these blocks.
    pub fn digest(&self, vid: Vid, generation: u32, blocks: &[u32]) -> u64 {
        let kept = |vba: u32| self.ftl.kept(&self.inner, (vid, generation, vba), false);
        let row = |vba: &u32| kept(*vba).row(*vba).digest();
        blocks.iter().map(row).fold(0, u64::wrapping_add)
    }

    /// Whether the stamp of this block of a filling place counts.
    pub fn is_current(&self, vid: Vid, generation: u32, vba: u32) -> bool {
        self.inner.stamps.current.has(vid, generation, vba)
    }

    /// The block was compared with the first of its group.
    pub fn mark_current(&mut self, vid: Vid, generation: u32, vba: u32) {
        self.inner.stamps.current.mark(vid, generation, vba);
    }

    /// The block gets this content, whatever the stamps are; `None`: nothing. The transaction, and when the
    /// write buffer has the data.
    ///
    /// # Errors
    /// [`CommitError`]; then nothing has changed, and the frame is still the caller's.
    pub fn replace(
        &mut self,
        now: Time,
        target: &Target,
        block: Option<NewBlock>,
    ) -> Result<(Seq, Time), CommitError> {
        let inner = &mut *self.inner;
        let change = Change { now, target, by_force: true };
        let replaced = match block {
            Some(block) => {
                let committed = self.ftl.commit_locked(inner, &change, now, &[block])?;
                (committed.seq, committed.done)
            }
            None => (self.ftl.trim_locked(inner, &change, 1)?.seq, now),
        };
        self.applied += 1;
        Ok(replaced)
    }

    /// The target's block, which is not mapped, has the target's stamp from now on; the zero stamp: none.
    /// Returns the transaction, if the block had another stamp. The SSD that gave the stamp may lose its
    /// place, and a late write may still come. So a restart does not forget it.
    ///
    /// # Errors
    /// [`CommitError::Stalled`] where the journal has no room for now; then nothing has changed.
    pub fn note_stamp(&mut self, now: Time, target: &Target) -> Result<Option<Seq>, CommitError> {
        let inner = &mut *self.inner;
        let &Target { vid, vba, stamp, .. } = target;
        if inner.stamps.held(vid, vba).unwrap_or_default() == stamp {
            return Ok(None);
        }
        self.ftl.make_journal_room(inner, now, journal_bytes(1))?;
        inner.journal.begin();
        inner.journal.add(Record::Applied { vid, vba, stamp });
        let seq = inner.journal.commit();
        inner.stamps.histories.record(vid, vba, stamp);
        self.applied += 1;
        Ok(Some(seq))
    }
}
