// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a block of a volume may hold, and what was read of it.

use crate::block::{Found, Life, Stamp};
use crate::history::Time;

/// A write or an unmapping of the block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) stamp: Stamp,
    pub(super) is_zeros: bool,
    pub(super) begin: Time,
    /// When its client was told of its success.
    pub(super) acked: Option<Time>,
    /// When a later read found an older value in its place for good.
    pub(super) gone: Option<Time>,
}

/// A value that a reader saw.
#[derive(Clone, Copy, Debug)]
struct Seen {
    stamp: Stamp,
    end: Time,
    /// Epoch of the reader's map before it read.
    epoch: u64,
}

#[derive(Default, Debug)]
pub(super) struct Block {
    versions: Vec<Version>,
    seen: Vec<Seen>,
}

/// A read of the block.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOf {
    pub(super) life: Life,
    pub(super) begin: Time,
    pub(super) end: Time,
    pub(super) is_writer: bool,
    pub(super) epoch: u64,
    /// The last epoch that took a place from an SSD, as the reader knew behind the read.
    pub(super) shrunk: u64,
    /// The newest write lease that was granted before the read.
    pub(super) lease: u32,
}

type Broken = (&'static str, String);

impl Block {
    /// Adds a version. The end of a call may come later than its begin was noted.
    pub(super) fn add(&mut self, version: Version) {
        match self.versions.iter_mut().find(|known| known.stamp == version.stamp) {
            Some(known) => known.acked = known.acked.or(version.acked),
            None => self.versions.push(version),
        }
    }

    /// The newest version that was acknowledged before this time.
    fn floor(&self, before: Time) -> Stamp {
        let acked = self.versions.iter().filter(|version| version.acked.is_some_and(|at| at < before));
        acked.map(|version| version.stamp).max().unwrap_or_default()
    }

    /// Judges what a read has found.
    pub(super) fn read(&mut self, read: &ReadOf, number: u32, found: &Found) -> Result<(), Broken> {
        let floor = self.floor(read.begin);
        let (least, most) = self.stamps_of(read, number, found, floor)?;
        if most < floor {
            let why = format!("it found {most:?}, and {floor:?} was acknowledged before");
            return Err(("an acknowledged write is durable (5a)", why));
        }
        let best = self.versions.iter().find(|version| version.stamp == most);
        if let Some(gone) = best.and_then(|version| version.gone).filter(|gone| *gone < read.begin) {
            let why = format!("it found {most:?}, which was gone at {gone}");
            return Err(("a value that vanished stays away (7a)", why));
        }
        if read.is_writer { Ok(()) } else { self.saw(read, least, most) }
    }

    /// The oldest and the newest stamp that the bytes can be of.
    fn stamps_of(
        &self,
        read: &ReadOf,
        number: u32,
        found: &Found,
        floor: Stamp,
    ) -> Result<(Stamp, Stamp), Broken> {
        let begun = self.versions.iter().filter(|version| version.begin < read.end);
        match found {
            Found::Mixed(how) => Err(("no block of two writes", format!("it found mixed bytes: {how}"))),
            Found::Of(life, block, ..) if (*life, *block) != (read.life, number) => {
                let why = format!("it found life {life:#x}, block {block}");
                Err(("no bytes of another place, volume or life (10)", why))
            }
            Found::Of(_, _, stamp, _) => {
                let is_known = begun.clone().any(|version| version.stamp == *stamp && !version.is_zeros);
                // Versions older than what was acknowledged long ago are forgotten.
                if !is_known && *stamp >= floor {
                    return Err(("each value is of a write", format!("no write {stamp:?} had begun")));
                }
                Ok((*stamp, *stamp))
            }
            Found::Zeros => {
                let zeros = begun.filter(|version| version.is_zeros).map(|version| version.stamp);
                let all = zeros.chain([Stamp::default()]);
                let may_be: Vec<Stamp> = all.clone().filter(|stamp| *stamp >= floor).collect();
                let most = may_be.iter().copied().max().or(all.max()).unwrap_or_default();
                Ok((may_be.into_iter().min().unwrap_or(most), most))
            }
        }
    }

    fn saw(&mut self, read: &ReadOf, least: Stamp, most: Stamp) -> Result<(), Broken> {
        // An epoch that took a place from an SSD may take what that SSD alone had shown.
        let newer = |seen: &&Seen| seen.end < read.begin && seen.stamp > most && seen.epoch >= read.shrunk;
        if let Some(seen) = self.seen.iter().find(newer) {
            let why = format!(
                "it found {most:?}; {:?} was read before, in epoch {} or later, and no SSD lost a place since \
                 epoch {}",
                seen.stamp, seen.epoch, read.shrunk
            );
            return Err(("a value that was read stays (7a)", why));
        }
        self.seen.push(Seen { stamp: least, end: read.end, epoch: read.epoch });
        // Between two leases the volume was settled: what is not there then is nowhere.
        for version in &mut self.versions {
            if version.stamp > most && version.stamp.0 < read.lease {
                version.gone.get_or_insert(read.end);
            }
        }
        Ok(())
    }

    /// Forgets what later reads cannot tell apart from older values. Each call until now has ended.
    pub(super) fn forget_older(&mut self) {
        let floor = self.floor(Time::MAX);
        self.versions.retain(|version| version.stamp >= floor);
        self.seen.sort_by_key(|seen| (seen.stamp, seen.epoch));
        let kept = self.seen.len().saturating_sub(4);
        self.seen.drain(..kept);
    }
}
