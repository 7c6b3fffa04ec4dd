// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What flash does wrong: injected at run time by name, or drawn from a seed at a rate.
//!
//! With no fault injected the pages ask one flag and no more.

use crate::geometry::{Block, Ppa, Unit};
use gnstor_proto::placement::mix64;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The faults of one SSD's flash; shared with whoever injects them.
#[derive(Debug, Default)]
pub struct Faults {
    /// Whether anything below may say "fail".
    armed: AtomicBool,
    seed: u64,
    factory_bad_ppm: u32,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Unreadable pages; true: once only.
    reads: HashMap<Ppa, bool>,
    read_ppm: u32,
    program_ppm: u32,
    erase_ppm: u32,
    /// Draws so far, so that each has an outcome of its own.
    draws: u64,
    programs: u64,
    /// Programs that fail, by number from 1.
    program_numbers: HashSet<u64>,
    units: HashSet<Unit>,
    blocks: HashSet<Block>,
    slow: HashMap<u32, u32>,
    rot: HashMap<Ppa, Vec<u32>>,
}

const MILLION: u64 = 1_000_000;

impl Faults {
    /// Flash without a fault.
    pub fn none() -> Self {
        Self::default()
    }

    /// No fault yet; those at a rate are drawn from `seed`, and `factory_bad_ppm` in a million blocks are bad from the factory.
    pub fn seeded(seed: u64, factory_bad_ppm: u32) -> Self {
        Self { seed, factory_bad_ppm, ..Self::default() }
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

    /// From now on so many in a million reads, programs and erases fail, drawn from the seed.
    pub fn set_rates(&self, read_ppm: u32, program_ppm: u32, erase_ppm: u32) {
        self.inject(|inner| (inner.read_ppm, inner.program_ppm, inner.erase_ppm) = (read_ppm, program_ppm, erase_ppm));
    }

    /// Flips bit `bit` (below 32,768) of a page's data as soon as the page is programmed and read.
    pub fn rot(&self, page: Ppa, bit: u32) {
        self.inject(|inner| inner.rot.entry(page).or_default().push(bit % (crate::PAGE_BYTES * 8)));
    }

    /// A die takes `percent` of its time; 100 is healthy.
    pub fn set_slow(&self, die: u32, percent: u32) {
        let mut inner = self.lock();
        if percent == 100 {
            inner.slow.remove(&die);
        } else {
            inner.slow.insert(die, percent);
        }
    }

    /// Percent of its time that a die takes. Only kept here: time is not this crate's.
    pub fn slow_factor(&self, die: u32) -> u32 {
        self.lock().slow.get(&die).copied().unwrap_or(100)
    }

    /// Takes all injected faults back. Rot that reached data stays, as do bad blocks.
    pub fn clear(&self) {
        let mut inner = self.lock();
        *inner = Inner { draws: inner.draws, programs: inner.programs, ..Inner::default() };
        self.armed.store(false, Ordering::Release);
    }

    /// Whether a block left the factory bad.
    pub(crate) fn is_factory_bad(&self, block: Block) -> bool {
        self.factory_bad_ppm > 0
            && mix64(self.seed ^ mix64(u64::from(block.0) + 1)) % MILLION < u64::from(self.factory_bad_ppm)
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
                let ppm = inner.read_ppm;
                self.draw(&mut inner, ppm)
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
        let (number, ppm) = (inner.programs, inner.program_ppm);
        let by_number = inner.program_numbers.remove(&number);
        let by_unit = inner.units.remove(&unit);
        let by_rate = self.draw(&mut inner, ppm);
        by_number || by_unit || by_rate
    }

    /// A block is erased: whether that fails. Its pages' faults are gone in either case.
    pub(crate) fn erase_fails(&self, block: Block, is_inside: impl Fn(Ppa) -> bool) -> bool {
        if !self.is_armed() {
            return false;
        }
        let mut inner = self.lock();
        inner.reads.retain(|&page, _| !is_inside(page));
        inner.rot.retain(|&page, _| !is_inside(page));
        let ppm = inner.erase_ppm;
        inner.blocks.remove(&block) || self.draw(&mut inner, ppm)
    }

    /// Bits of a page that rotted since it was last asked.
    pub(crate) fn take_rot(&self, page: Ppa) -> Vec<u32> {
        if self.is_armed() { self.lock().rot.remove(&page).unwrap_or_default() } else { Vec::new() }
    }

    fn draw(&self, inner: &mut Inner, ppm: u32) -> bool {
        if ppm == 0 {
            return false;
        }
        inner.draws += 1;
        mix64(self.seed ^ mix64(inner.draws)) % MILLION < u64::from(ppm)
    }

    fn inject(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.armed.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
