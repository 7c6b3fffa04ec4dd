// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The map against a plain hash map, with its log replayed over images old and new.

use super::*;
use crate::{Batch, Full, MAX_CHANGES, Map, MapWriter};
use gnstor_proto::placement::mix64;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

const PAGES: u64 = 60_000;

/// All words.
pub(super) fn image(map: &Map) -> Vec<u64> {
    let mut words = vec![0; usize::try_from(map.words()).unwrap()];
    map.read_words(0, &mut words);
    words
}

/// A map, the expected contents, and the entries of its log.
struct Pair {
    map: Arc<Map>,
    writer: MapWriter,
    oracle: HashMap<(Vid, u32), u32>,
    log: Vec<(u64, u64)>,
    batch: Batch,
}

impl Pair {
    fn new(buckets: u64, seed: u64, plain: bool) -> Self {
        let new = if plain { Map::plain_with_buckets } else { Map::with_buckets };
        let (map, writer) = new(buckets, PAGES, seed).unwrap();
        Self { map, writer, oracle: HashMap::new(), log: Vec::new(), batch: Batch::default() }
    }

    /// Makes one random operation on both. Both must return the same.
    fn turn(&mut self, dice: u64, blocks: u64) -> Result<(), TestCaseError> {
        let (vid, vba) = block(dice >> 8 & 0xFFFF_FFFF, 3, blocks);
        let page = u32::try_from((dice >> 40) % PAGES).unwrap();
        let before = self.log.len();
        let log = &mut |index, value| self.log.push((index, value));
        let present = self.oracle.get(&(vid, vba)).copied();
        match dice % 16 {
            0..7 => match self.writer.insert(vid, vba, page, log) {
                Ok(old) => prop_assert_eq!(old, self.oracle.insert((vid, vba), page)),
                Err(Full) => {
                    prop_assert!(present.is_none() && self.map.stashed() == crate::stash::STASH);
                    prop_assert_eq!(self.log.len(), before);
                }
            },
            7..11 => prop_assert_eq!(self.writer.remove(vid, vba, log), self.oracle.remove(&(vid, vba))),
            11 => {
                let from = present.unwrap_or(page);
                prop_assert_eq!(
                    self.writer.replace_at(&self.map.probe(vid, vba), from, page, log),
                    present.is_some()
                );
                self.oracle.entry((vid, vba)).and_modify(|mapped| *mapped = page);
            }
            12 => {
                let from = present.unwrap_or(page) ^ 1;
                prop_assert!(!self.writer.replace_at(&self.map.probe(vid, vba), from, page, log));
                prop_assert_eq!(self.log.len(), before);
            }
            13 => {
                prop_assert_eq!(self.map.find(&self.map.probe(vid, vba)), present);
                prop_assert_eq!(self.map.find(&self.map.probe_first(vid, vba)), present);
            }
            14 => prop_assert_eq!(self.map.get(vid, vba), present),
            _ => self.batch(dice, blocks)?,
        }
        prop_assert!(self.log.len() - before <= MAX_CHANGES);
        prop_assert_eq!(self.map.len(), self.oracle.len() as u64);
        Ok(())
    }

    /// Looks for many random blocks at once, in each of the ways to do it.
    fn batch(&mut self, dice: u64, blocks: u64) -> Result<(), TestCaseError> {
        let count = mix64(!dice) % 70;
        let chosen: Vec<_> = (0..count).map(|nth| block(mix64(dice ^ nth) >> 8, 3, blocks)).collect();
        if dice >> 20 & 1 == 0 {
            self.map.probe_batch(chosen.iter().copied(), &mut self.batch);
            self.writer.announce(&self.batch);
        } else {
            self.map.probe_batch_first(chosen.iter().copied(), &mut self.batch);
        }
        if dice >> 21 & 1 == 0 {
            self.map.begin_find(&mut self.batch);
        }
        self.map.find_batch(&mut self.batch);
        prop_assert_eq!(self.batch.len(), chosen.len().min(Batch::MOST));
        prop_assert_eq!(self.batch.is_empty(), chosen.is_empty());
        for (at, block) in chosen.iter().enumerate().take(Batch::MOST) {
            let want = self.oracle.get(block).copied();
            prop_assert_eq!(self.batch.page(at), want);
            prop_assert_eq!(self.map.find(&self.batch.probe(at)), want);
        }
        Ok(())
    }

    fn check_scan(&self) -> Result<(), TestCaseError> {
        let listed: Vec<_> =
            self.map.scan(0, self.map.buckets()).map(|(v, b, page)| ((v, b), page)).collect();
        prop_assert_eq!(listed.len(), self.oracle.len());
        prop_assert_eq!(&listed.iter().copied().collect::<HashMap<_, _>>(), &self.oracle);
        // A scan in pieces returns the same.
        let step = 1 + self.map.buckets() / 3;
        let pieces = (0..self.map.buckets()).step_by(usize::try_from(step).unwrap());
        let pieces: HashMap<_, _> =
            pieces.flat_map(|at| self.map.scan(at, step)).map(|(v, b, p)| ((v, b), p)).collect();
        prop_assert_eq!(&pieces, &self.oracle);
        prop_assert_eq!(self.map.scan(0, 0).count() + self.map.scan(u64::MAX, u64::MAX).count(), 0);
        Ok(())
    }
}

/// Loads an image and replays a log over it. Returns the writer, and the pages that it reported.
fn restore(like: &Pair, seed: u64, words: &[u64], log: &[(u64, u64)]) -> (MapWriter, Vec<u32>) {
    let (_, mut writer) = Map::with_buckets(like.map.buckets(), PAGES, seed).unwrap();
    for (at, chunk) in words.chunks(100).enumerate() {
        writer.load_words(at as u64 * 100, chunk).unwrap();
    }
    for &(index, value) in log {
        writer.redo(index, value).unwrap();
    }
    let mut pages = Vec::new();
    writer.finish_load(|page| pages.push(page)).unwrap();
    (writer, pages)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Few buckets and many blocks: the stash is in use and sometimes full.
    #[test]
    fn the_map_does_what_a_hash_map_does(seed: u64, plain: bool, buckets in 8u64..300, crowd in 1u64..5) {
        let _deadline = crate::tests::deadline();
        let mut pair = Pair::new(buckets, seed, plain);
        for turn in 0..6_000 {
            pair.turn(mix64(seed ^ turn), buckets * crowd)?;
        }
        pair.check_scan()?;
        let (other, mut pages) = restore(&pair, seed, &[], &pair.log);
        prop_assert_eq!(image(other.map()), image(&pair.map));
        let mut want: Vec<_> = pair.oracle.values().copied().collect();
        want.sort_unstable();
        pages.sort_unstable();
        prop_assert_eq!(pages, want);
        // The restored map behaves like the old one.
        prop_assert_eq!((other.map().len(), other.map().stashed()), (pair.map.len(), pair.map.stashed()));
        (pair.map, pair.writer) = (other.map().clone(), other);
        for turn in 6_000..7_000 {
            pair.turn(mix64(seed ^ turn), buckets * crowd)?;
        }
        pair.check_scan()?;
        pair.writer.clear();
        prop_assert!(pair.map.is_empty() && pair.map.stashed() == 0);
        prop_assert!(image(&pair.map).iter().all(|&word| word == 0));
    }

    /// A copy made piece by piece between changes, and the changes since it began: the exact image.
    #[test]
    fn a_fuzzy_copy_and_the_log_make_the_image(
        seed: u64,
        plain: bool,
        buckets in 8u64..100,
        piece in 1usize..200,
    ) {
        let _deadline = crate::tests::deadline();
        let mut pair = Pair::new(buckets, seed, plain);
        for turn in 0..3_000 {
            pair.turn(mix64(seed ^ turn), buckets * 3)?;
        }
        pair.log.clear();
        let mut copy = vec![0; usize::try_from(pair.map.words()).unwrap()];
        for (at, words) in copy.chunks_mut(piece).enumerate() {
            pair.map.read_words((at * piece) as u64, words);
            for turn in 0..7 {
                pair.turn(mix64(!seed ^ (at as u64 * 7 + turn)), buckets * 3)?;
            }
        }
        let (other, _) = restore(&pair, seed, &copy, &pair.log);
        prop_assert_eq!(image(other.map()), image(&pair.map));
        prop_assert_eq!(other.map().len(), pair.oracle.len() as u64);
        for (&(vid, vba), &page) in &pair.oracle {
            prop_assert_eq!(other.map().get(vid, vba), Some(page));
        }
    }
}
