// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults of the flash: injected at run time, or drawn from a seed at a rate.
//!
//! Without faults each access costs one check of a flag.

use crate::geometry::{Block, Ppa, Unit};
use gnstor_proto::placement::mix64;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The faults of one SSD's flash. The SSD and the test that injects faults share it.
#[derive(Debug, Default)]
pub struct Faults {
    /// Whether anything below may say "fail".
    armed: AtomicBool,
    seed: u64,
    factory_bad: f64,
    inner: Mutex<Inner>,
}

/// How often something goes wrong by itself: chances from 0 (never) to 1 (always).
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Chances {
    /// A read of a page cannot be corrected; the next read of it may be.
    pub read: f64,
    /// The program of a unit fails.
    pub program: f64,
    /// The erase of a block fails.
    pub erase: f64,
    /// A page that is read has lost a bit since it was programmed, for good.
    pub rot: f64,
}

#[derive(Debug, Default)]
struct Inner {
    /// Unreadable pages; true: once only.
    reads: HashMap<Ppa, bool>,
    chances: Chances,
    /// Number of random draws so far. It makes the outcome of each draw different.
    draws: u64,
    programs: u64,
    /// Programs that fail, by number from 1.
    program_numbers: HashSet<u64>,
    units: HashSet<Unit>,
    blocks: HashSet<Block>,
    slow: HashMap<u32, u32>,
    rot: HashMap<Ppa, Vec<u32>>,
}

const MILLION: f64 = 1e6;

impl Faults {
    /// Flash without a fault.
    pub fn none() -> Self {
        Self::default()
    }

    /// No fault yet. Faults at a rate are drawn from `seed`. Of a million blocks, `factory_bad_ppm` are bad
    /// from the factory.
    pub fn seeded(seed: u64, factory_bad_ppm: u32) -> Self {
        Self::drawn(seed, f64::from(factory_bad_ppm) / MILLION)
    }

    /// As [`Self::seeded`], with the share of blocks that are bad from the factory: 0 to 1.
    pub fn drawn(seed: u64, factory_bad: f64) -> Self {
        Self { seed, factory_bad, ..Self::default() }
    }

    /// The next read of a page, or every one until its block is erased, cannot be corrected.
    pub fn unreadable(&self, page: Ppa, once: bool) {
        self.inject(|inner| _ = inner.reads.insert(page, once));
    }

    /// The `n`-th program from now on fails; 1 is the next.
    pub fn fail_program(&self, n: u64) {
        self.inject(|inner| _ = inner.program_numbers.insert(inner.programs + n));
    }

    /// The next program of a unit fails.
    pub fn fail_unit(&self, unit: Unit) {
        self.inject(|inner| _ = inner.units.insert(unit));
    }

    /// The next erase of a block fails.
    pub fn fail_erase(&self, block: Block) {
        self.inject(|inner| _ = inner.blocks.insert(block));
    }

    /// From now on this many of a million reads, programs and erases fail, drawn from the seed.
    pub fn set_rates(&self, read_ppm: u32, program_ppm: u32, erase_ppm: u32) {
        let [read, program, erase] = [read_ppm, program_ppm, erase_ppm].map(|ppm| f64::from(ppm) / MILLION);
        self.set_chances(Chances { read, program, erase, rot: 0.0 });
    }

    /// From now on faults happen with these chances, drawn from the seed.
    pub fn set_chances(&self, chances: Chances) {
        self.inject(|inner| inner.chances = chances);
    }

    /// Flips bit `bit` (below 32,768) of a page's data as soon as the page is programmed and read.
    pub fn rot(&self, page: Ppa, bit: u32) {
        self.inject(|inner| inner.rot.entry(page).or_default().push(bit % (crate::PAGE_BYTES * 8)));
    }

    /// Sets the speed of a die: it takes `percent` of the normal time; 100 is healthy.
    pub fn set_slow(&self, die: u32, percent: u32) {
        let mut inner = self.lock();
        if percent == 100 {
            inner.slow.remove(&die);
        } else {
            inner.slow.insert(die, percent);
        }
    }

    /// The percentage of the normal time that a die takes. This crate only stores it; `gnstor-model` uses it.
    pub fn slow_factor(&self, die: u32) -> u32 {
        self.lock().slow.get(&die).copied().unwrap_or(100)
    }

    /// Ends all injected faults. Bad blocks and data that has rotted stay.
    pub fn clear(&self) {
        let mut inner = self.lock();
        *inner = Inner { draws: inner.draws, programs: inner.programs, ..Inner::default() };
        self.armed.store(false, Ordering::Release);
    }

    /// Whether a block left the factory bad.
    pub(crate) fn is_factory_bad(&self, block: Block) -> bool {
        hits(mix64(self.seed ^ mix64(u64::from(block.0) + 1)), self.factory_bad)
    }

    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// A page is read: whether it cannot be.
    pub(crate) fn read_fails(&self, page: Ppa) -> bool {
        if !self.is_armed() {
            return false;
        }
        let mut inner = self.lock();
        match inner.reads.get(&page) {
            Some(true) => inner.reads.remove(&page).is_some(),
            Some(false) => true,
            None => {
                let chance = inner.chances.read;
                self.draw(&mut inner, chance).is_some()
            }
        }
    }

    /// A unit is programmed: whether it fails.
    pub(crate) fn program_fails(&self, unit: Unit) -> bool {
        if !self.is_armed() {
            return false;
        }
        let mut inner = self.lock();
        inner.programs += 1;
        let (number, chance) = (inner.programs, inner.chances.program);
        let by_number = inner.program_numbers.remove(&number);
        let by_unit = inner.units.remove(&unit);
        let by_rate = self.draw(&mut inner, chance).is_some();
        by_number || by_unit || by_rate
    }

    /// Whether the erase of a block fails. The faults of its pages end in either case.
    pub(crate) fn erase_fails(&self, block: Block, is_inside: impl Fn(Ppa) -> bool) -> bool {
        if !self.is_armed() {
            return false;
        }
        let mut inner = self.lock();
        inner.reads.retain(|&page, _| !is_inside(page));
        inner.rot.retain(|&page, _| !is_inside(page));
        let chance = inner.chances.erase;
        inner.blocks.remove(&block) || self.draw(&mut inner, chance).is_some()
    }

    /// Bits of a page that rotted since it was last asked.
    pub(crate) fn take_rot(&self, page: Ppa) -> Vec<u32> {
        if !self.is_armed() {
            return Vec::new();
        }
        let mut inner = self.lock();
        let mut bits = inner.rot.remove(&page).unwrap_or_default();
        let chance = inner.chances.rot;
        bits.extend(self.draw(&mut inner, chance).map(|drawn| drawn % (crate::PAGE_BYTES * 8)));
        bits
    }

    /// Draws once. Returns a random number if a fault with this chance happens.
    fn draw(&self, inner: &mut Inner, chance: f64) -> Option<u32> {
        if chance == 0.0 {
            return None;
        }
        inner.draws += 1;
        let drawn = mix64(self.seed ^ mix64(inner.draws));
        hits(drawn, chance).then(|| (mix64(drawn) >> 32) as u32)
    }

    fn inject(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.armed.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one of 2^53 equally likely numbers is below `chance`.
fn hits(drawn: u64, chance: f64) -> bool {
    const ALL: u64 = 1 << 53;
    #[expect(clippy::cast_precision_loss, reason = "both are at most 2^53, which a double holds")]
    let (drawn, all) = ((drawn >> 11) as f64, ALL as f64);
    drawn < chance * all
}
