// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plays operations to the real firmware, or to the real map.

use crate::device::Device;
use crate::op::{MOST_FILLED, MOST_WORDS, Op, Out, block_of};
use gnstor_map::{BadImage, Map, MapWriter};
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::Vid;
use std::sync::Arc;

/// Kinds of answers to an operation, with the numbers of `gn_play.h`.
pub(crate) mod event {
    pub(crate) const COMPLETE: u8 = 1;
    pub(crate) const PAGES: u8 = 2;
    pub(crate) const WANTS: u8 = 3;
    pub(crate) const OUT: u8 = 4;
    pub(crate) const CLOSED: u8 = 5;
    pub(crate) const STATE: u8 = 6;
    pub(crate) const VALUE: u8 = 7;
    pub(crate) const WORDS: u8 = 8;
}

/// No page, and no place in the map.
const NO_PAGE: u32 = u32::MAX;
const FULL: u32 = u32::MAX - 1;

/// A map, its writer, and how many pages it has.
struct Filled {
    map: Arc<Map>,
    writer: MapWriter,
    pages: u64,
}

/// The SSD or the map of a script.
#[derive(Default)]
pub(crate) struct Player {
    device: Option<Device>,
    map: Option<Filled>,
}

impl Player {
    /// The answer.
    ///
    /// # Panics
    /// Where the script is none: an operation before its SSD or map.
    pub(crate) fn play(&mut self, op: &Op) -> Vec<u8> {
        if let &Op::Device { logical_pages, id, .. } = op {
            // Drop the old one first, because its memory is large.
            self.device = None;
            self.device = Some(Device::new(logical_pages, id));
            return Vec::new();
        }
        if let &Op::Map { entries, pages, seed } = op {
            let (map, writer) = Map::new(entries, pages, seed).expect("possible sizes");
            let words = map.words();
            self.map = Some(Filled { map, writer, pages });
            return values(&[words]);
        }
        match op {
            Op::Command { .. }
            | Op::Data { .. }
            | Op::Done { .. }
            | Op::Admin { .. }
            | Op::Tick { .. }
            | Op::Move { .. }
            | Op::State => self.device.as_mut().expect("a script begins with its SSD").play(op),
            &Op::Words { first, count } => {
                words(&self.map.as_ref().expect("a script begins with its map").map, first, count)
            }
            _ => values(&play_map(self.map.as_mut().expect("a script begins with its map"), op)),
        }
    }
}

fn values(values: &[u64]) -> Vec<u8> {
    let mut out = Out::default();
    for &value in values {
        out.u8(event::VALUE).u64(value);
    }
    out.0
}

fn words(map: &Map, first: u64, count: u32) -> Vec<u8> {
    let first = first.min(map.words());
    let count = (map.words() - first).min(count.min(MOST_WORDS).into());
    let mut words = vec![0; usize::try_from(count).expect("few")];
    map.read_words(first, &mut words);
    let mut out = Out::default();
    out.u8(event::WORDS).u16(u16::try_from(count).expect("few"));
    words.iter().for_each(|&word| {
        out.u64(word);
    });
    out.0
}

impl Filled {
    /// The page of a block's number.
    fn page_of(&self, number: u64) -> u32 {
        u32::try_from(number % self.pages).expect("pages have 32 bits")
    }

    /// Maps many blocks of a seed; how many had a place.
    fn fill(&mut self, first: u64, seed: u64, count: u32) -> u64 {
        let mut placed = 0;
        for number in (first..).take(count.min(MOST_FILLED) as usize) {
            let ((vid, vba), page) = (block_of(seed, number), self.page_of(number));
            placed += u64::from(self.writer.insert(vid_of(vid), vba, page, &mut |_, _| {}).is_ok());
        }
        placed
    }

    /// Counts the blocks whose page has their number.
    fn look(&self, first: u64, seed: u64, count: u32) -> u64 {
        let is_right = |&number: &u64| {
            let (vid, vba) = block_of(seed, number);
            self.map.get(vid_of(vid), vba) == Some(self.page_of(number))
        };
        (first..).take(count.min(MOST_FILLED) as usize).filter(is_right).count() as u64
    }
}

fn vid_of(raw: u16) -> Vid {
    Vid::new(raw).expect("scripts of maps name volumes")
}

/// Number of entries, entries in the stash, and the checksum of all words.
fn image_of(map: &Map) -> Vec<u64> {
    let mut words = vec![0; usize::try_from(map.words()).expect("a small map")];
    map.read_words(0, &mut words);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    vec![map.len(), map.stashed() as u64, crc32c::crc32c(&bytes).into()]
}

/// Number of entries that a scan finds, and a hash of them.
fn scan(map: &Map, first: u64, count: u64) -> Vec<u64> {
    let (mut found, mut hash) = (0, 0);
    for (vid, vba, page) in map.scan(first, count) {
        found += 1;
        let key = u64::from(vid.get()) << 32 | u64::from(vba);
        hash = mix64(hash ^ key).wrapping_add(page.into());
    }
    vec![found, hash]
}

fn play_map(filled: &mut Filled, op: &Op) -> Vec<u64> {
    let mut log = |_, _| {};
    if let Op::Fill { first, seed, count } = *op {
        return vec![filled.fill(first, seed, count)];
    }
    if let Op::Look { first, seed, count } = *op {
        return vec![filled.look(first, seed, count)];
    }
    let Filled { map, writer, .. } = filled;
    match *op {
        Op::Insert { vid, vba, page } => {
            let old = writer.insert(vid_of(vid), vba, page, &mut log);
            vec![old.map_or(FULL, |old| old.unwrap_or(NO_PAGE)).into()]
        }
        Op::Remove { vid, vba } => {
            vec![writer.remove(vid_of(vid), vba, &mut log).unwrap_or(NO_PAGE).into()]
        }
        Op::Replace { vid, vba, from, to } => {
            let probe = map.probe(vid_of(vid), vba);
            vec![writer.replace_at(&probe, from, to, &mut log).into()]
        }
        Op::Find { vid, vba } => vec![map.get(vid_of(vid), vba).unwrap_or(NO_PAGE).into()],
        Op::Sweep { vid, first, count } => {
            let found: Vec<u32> = map
                .scan(first, count)
                .filter(|(owner, ..)| owner.get() == vid)
                .map(|(_, vba, _)| vba)
                .collect();
            for &vba in &found {
                writer.remove(vid_of(vid), vba, &mut log);
            }
            vec![found.len() as u64]
        }
        Op::Image => image_of(map),
        Op::SetWord { index, value } => vec![writer.redo(index, value).is_ok().into()],
        Op::Check => match writer.finish_load(|_| {}) {
            Ok(()) => vec![0, 0],
            Err(BadImage::Beyond { .. }) => unreachable!("no word was beyond the image"),
            Err(BadImage::Word { index, .. }) => vec![1, index],
            Err(BadImage::Page { index, .. }) => vec![2, index],
            Err(BadImage::Key { index, .. }) => vec![3, index],
            Err(BadImage::Twice { index }) => vec![4, index],
        },
        Op::Clear => {
            writer.clear();
            vec![]
        }
        Op::Scan { first, count } => scan(map, first, count),
        _ => unreachable!("operations of an SSD go to the SSD"),
    }
}
