// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stamp histories: the last writes of each volume, by block and stamp (protocol rule 6).
//!
//! A writer's outstanding sequences lie within [`HISTORY`]. So the last [`HISTORY`] blocks include every
//! write that an older one may still follow. That holds also where a block has been unmapped since and no
//! page has its stamp. An SSD that fills or settles also hears from its peer which TRIMs these lists have.
//! They survive power failures: the journal names every applied stamp, and the checkpoint holds the whole
//! histories.

use gnstor_durable::AppliedStamp;
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::{Stamp, Vid};

/// Blocks remembered for each volume.
pub const HISTORY: usize = 4096;

/// Chains of a history: twice as many as entries, so that most chains have at most one.
const CHAINS: usize = 2 * HISTORY;
/// The end of a chain.
const END: Link = Link(u32::MAX);

/// Names an entry: its place in the ring and the lap in which it was written. Also whether it is the last
/// of its chain, and some bits of its block's hash. So most lookups of an absent block touch one line, and
/// an overwritten entry is recognised.
///
/// ```text
///   31    17   16    15   14..12   11..0
///  +-------+------+------+------+---------+
///  |  tag  | last | zero |  lap |  place  |      all ones: the end
///  +-------+------+------+------+---------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Link(u32);

const LAP_SHIFT: u32 = 12;
/// Laps that a link distinguishes.
const LAPS: u32 = 8;
const LAST: u32 = 1 << 16;
/// Position of the hash's bits.
const TAG_SHIFT: u32 = 17;

const _: () = assert!(
    HISTORY == 1 << LAP_SHIFT && LAPS << LAP_SHIFT < LAST,
    "a link names every place, and the end is none"
);

impl Link {
    #[inline]
    fn new(at: usize, lap: u32, tag: u32, is_last: bool) -> Self {
        let place = u32::try_from(at).expect("below HISTORY");
        Self(place | (lap % LAPS) << LAP_SHIFT | tag | if is_last { LAST } else { 0 })
    }

    #[inline]
    fn at(self) -> usize {
        self.0 as usize % HISTORY
    }

    #[inline]
    fn lap(self) -> u32 {
        self.0 >> LAP_SHIFT & (LAPS - 1)
    }

    #[inline]
    fn tag(self) -> u32 {
        self.0 >> TAG_SHIFT << TAG_SHIFT
    }

    #[inline]
    fn is_last(self) -> bool {
        self.0 & LAST != 0
    }
}

/// The (vba, stamp) pairs applied last to one volume.
///
/// ```text
///   chains (hash of the block) -> newest entry -> older entry -> ...
///                                 ends at the last or at an overwritten entry
///   ring   | oldest ....................... newest | next to be overwritten
/// ```
/// No entry is ever removed from a chain: entries leave the ring oldest first, and the oldest are at the
/// chains' ends.
#[derive(Debug, Default)]
pub struct StampHistory {
    ring: Vec<AppliedStamp>,
    next: usize,
    /// Laps of the ring, compared modulo [`LAPS`].
    lap: u32,
    /// First entry of each chain; empty until something is remembered.
    chains: Vec<Link>,
    /// The entry behind each entry that is not the last of its chain.
    links: Vec<Link>,
}

/// A block's chain, and the tag of a link to it.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "halves of a hash")]
fn chain_of(vba: u32) -> (usize, u32) {
    let hash = mix64(vba.into());
    (hash as u32 as usize % CHAINS, (hash >> 32) as u32 >> TAG_SHIFT << TAG_SHIFT)
}

impl StampHistory {
    /// The stamp of a block that was applied last within the history.
    #[inline]
    pub fn held(&self, vba: u32) -> Option<Stamp> {
        self.entry(vba).map(|at| self.ring[at].stamp())
    }

    /// Prefetches for [`Self::held`] and [`Self::record`] of a block. Other blocks may be recorded before it.
    #[inline]
    fn touch(&self, vba: u32) {
        std::hint::black_box(self.chains.get(chain_of(vba).0).copied());
    }

    /// Remembers an applied change. A client's change has a stamp above the one held. A repair's may have a
    /// lower one.
    #[inline]
    pub fn record(&mut self, vba: u32, stamp: Stamp) {
        if self.chains.is_empty() {
            self.clear_chains();
        }
        let at = self.next;
        self.load(vba, stamp);
        self.link(vba, at);
    }

    /// Appends as [`Self::record`] does, for a restore: call [`Self::link_all`] before any lookup.
    fn load(&mut self, vba: u32, stamp: Stamp) {
        let entry = AppliedStamp::new(vba, stamp);
        if self.ring.len() < HISTORY {
            self.ring.push(entry);
        } else {
            self.ring[self.next] = entry;
        }
        self.next += 1;
        if self.next == HISTORY {
            (self.next, self.lap) = (0, self.lap.wrapping_add(1));
        }
    }

    /// Builds the index once, not anew for each of the millions of entries that a journal names. Of a block's
    /// entries the last one counts, also with a lower stamp than an earlier one: a repair gave it that stamp.
    fn link_all(&mut self) {
        self.clear_chains();
        let oldest = if self.ring.len() < HISTORY { 0 } else { self.next };
        (oldest..self.ring.len()).chain(0..oldest).for_each(|at| self.link(self.ring[at].vba(), at));
    }

    /// Every remembered pair, oldest first; a block may come up more than once.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Stamp)> + '_ {
        self.parts().into_iter().flatten().map(|entry| (entry.vba(), entry.stamp()))
    }

    /// The ring in its two parts, the older one first.
    pub(crate) fn parts(&self) -> [&[AppliedStamp]; 2] {
        let (newer, older) = self.ring.split_at(if self.ring.len() < HISTORY { 0 } else { self.next });
        [older, newer]
    }

    fn clear_chains(&mut self) {
        self.chains.clear();
        self.chains.resize(CHAINS, END);
        self.links.resize(HISTORY, END);
    }

    /// The newest entry of a block.
    #[inline]
    fn entry(&self, vba: u32) -> Option<usize> {
        let (chain, tag) = chain_of(vba);
        let mut link = *self.chains.get(chain)?;
        // A link names an older entry than its own, if any, so this ends.
        while self.is_there(link) {
            if link.tag() == tag && self.ring[link.at()].vba() == vba {
                return Some(link.at());
            }
            link = if link.is_last() { END } else { self.links[link.at()] };
        }
        None
    }

    /// Whether the entry that the link names has not been overwritten, as far as its bits tell. A chain that
    /// was not used for [`LAPS`] laps may seem to continue with entries of another chain, which are of other
    /// blocks.
    #[inline]
    fn is_there(&self, link: Link) -> bool {
        link != END && link.lap() == self.lap_of(link.at()) % LAPS
    }

    /// The lap in which the entry at this place was written.
    #[inline]
    fn lap_of(&self, at: usize) -> u32 {
        if at < self.next { self.lap } else { self.lap.wrapping_sub(1) }
    }

    /// Inserts the entry at the front of its chain.
    #[inline]
    fn link(&mut self, vba: u32, at: usize) {
        let (chain, tag) = chain_of(vba);
        let behind = self.chains[chain];
        // A link to this very place is several laps old, so its bits do not matter. An overwritten entry must
        // not stay as a successor, because other chains may pass through it.
        let is_last = !self.is_there(behind) || behind.at() == at;
        self.chains[chain] = Link::new(at, self.lap_of(at), tag, is_last);
        self.links[at] = if is_last { END } else { behind };
    }
}

/// The histories of all volumes, by their ids.
#[derive(Debug, Default)]
pub(crate) struct StampHistories(Vec<Option<Box<StampHistory>>>);

impl StampHistories {
    #[inline]
    pub(crate) fn get(&self, vid: Vid) -> Option<&StampHistory> {
        self.0.get(usize::from(vid.get()))?.as_deref()
    }

    #[inline]
    pub(crate) fn held(&self, vid: Vid, vba: u32) -> Option<Stamp> {
        self.get(vid)?.held(vba)
    }

    #[inline]
    pub(crate) fn touch(&self, vid: Vid, vba: u32) {
        if let Some(history) = self.get(vid) {
            history.touch(vba);
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, vid: Vid, vba: u32, stamp: Stamp) {
        self.of(vid).record(vba, stamp);
    }

    /// Remembers during a restore; [`Self::link_all`] ends it.
    pub(crate) fn load(&mut self, vid: Vid, vba: u32, stamp: Stamp) {
        self.of(vid).load(vba, stamp);
    }

    /// Builds the index of all entries that a restore found.
    pub(crate) fn link_all(&mut self) {
        self.0.iter_mut().flatten().for_each(|history| history.link_all());
    }

    /// The volume is deleted. A later volume with its id starts without stamps.
    pub(crate) fn remove(&mut self, vid: Vid) {
        if let Some(history) = self.0.get_mut(usize::from(vid.get())) {
            *history = None;
        }
    }

    /// Ascending by the volumes' ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Vid, &StampHistory)> {
        self.iter_from(Vid::MIN)
    }

    /// As [`Self::iter`], from this volume on.
    pub(crate) fn iter_from(&self, from: Vid) -> impl Iterator<Item = (Vid, &StampHistory)> {
        let rest = self.0.get(usize::from(from.get())..).unwrap_or_default();
        (from.get()..=u16::MAX)
            .zip(rest)
            .filter_map(|(vid, history)| Some((Vid::new(vid)?, history.as_deref()?)))
    }

    #[inline]
    fn of(&mut self, vid: Vid) -> &mut StampHistory {
        let at = usize::from(vid.get());
        if at >= self.0.len() {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at].get_or_insert_default()
    }
}

#[cfg(test)]
#[path = "tests/stamp_history.rs"]
mod tests;
