// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the cores of an SSD and the rest of its firmware see of each other without a lock: counts of reads in flight
//! ([`super::flight`]), counters, and the notes that the firmware leaves.

use super::flight::{Flight, Seen, Version};
use crate::permission::{MAX_VOLUMES, Rules};
use gnstor_fabric::controller::Effect;
use gnstor_fabric::time::{Span, Time};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What the firmware has for a core to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Note {
    /// To be carried out; the queue by its name within the SSD.
    Effect(Effect),
    /// A fence is past its deadline: close the queues of the reads of the volume in this slot that hold it up.
    CloseOlder(u16),
}

/// One core's part.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Share {
    /// By the volume's slot.
    flights: Vec<Flight>,
    volume_reads: Vec<AtomicU64>,
    seen: Seen,
    entered: AtomicU64,
    left: AtomicU64,
    reads: AtomicU64,
    unmapped: AtomicU64,
    forfeited: AtomicU64,
    busy_ps: AtomicU64,
    mail: Mutex<VecDeque<Note>>,
    has_mail: AtomicBool,
}

/// Adds to a counter that only its core writes.
#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl Share {
    fn new() -> Self {
        Self {
            flights: (0..MAX_VOLUMES).map(|_| Flight::default()).collect(),
            volume_reads: (0..MAX_VOLUMES).map(|_| AtomicU64::new(0)).collect(),
            ..Self::default()
        }
    }

    /// The reads of the volume in this slot.
    #[inline]
    pub(super) fn flight(&self, slot: u16) -> &Flight {
        &self.flights[usize::from(slot)]
    }

    /// A read has begun.
    #[inline]
    pub(super) fn entered(&self) {
        add(&self.entered, 1);
    }

    /// A read has ended, well or not.
    #[inline]
    pub(super) fn left(&self) {
        add(&self.left, 1);
    }

    /// A read has succeeded.
    #[inline]
    pub(super) fn count(&self, slot: u16, is_mapped: bool) {
        add(&self.volume_reads[usize::from(slot)], 1);
        add(&self.reads, 1);
        if !is_mapped {
            add(&self.unmapped, 1);
        }
    }

    /// The queue of a read has gone.
    pub(super) fn forfeit(&self) {
        add(&self.forfeited, 1);
    }

    /// The firmware was busy for so long.
    pub(super) fn work(&self, span: Span) {
        add(&self.busy_ps, span.as_ps());
    }

    /// The core judges by `new` from now on; it judged by `old`.
    pub(super) fn see(&self, old: &Rules, new: &Rules, version: u64) {
        for slot in (0..old.slots()).filter(|&slot| old.serial(slot) != new.serial(slot)) {
            self.flight(slot).age();
        }
        self.seen.set(version);
    }

    /// Whether the firmware has left something.
    #[inline]
    pub(super) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Relaxed)
    }

    /// Takes what the firmware has left into an empty list.
    pub(super) fn take_mail(&self, into: &mut VecDeque<Note>) {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_mail.store(false, Ordering::Relaxed);
        std::mem::swap(&mut *mail, into);
    }

    fn post(&self, note: Note) {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        mail.push_back(note);
        self.has_mail.store(true, Ordering::Relaxed);
    }
}

/// Counters of all cores together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// Reads begun.
    pub(crate) entered: u64,
    /// Reads ended, well or not.
    pub(crate) left: u64,
    /// Reads that succeeded.
    pub(crate) reads: u64,
    /// Of these, reads of blocks that are not mapped.
    pub(crate) unmapped: u64,
    /// Reads whose queue went away.
    pub(crate) forfeited: u64,
    /// Time of the modelled firmware.
    pub(crate) busy: Span,
}

/// The cores of an SSD; none where one thread has it all.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    version: Version,
    /// In picoseconds.
    alarm: AtomicU64,
    /// Commands wait for the modelled firmware: whoever comes now is not the next.
    waiting: AtomicBool,
    /// Somebody waits for reads in flight.
    fencing: AtomicBool,
    shares: Vec<Share>,
}

impl Roster {
    pub(super) fn new(cores: usize) -> Self {
        Self { shares: (0..cores).map(|_| Share::new()).collect(), ..Self::default() }
    }

    pub(super) fn share(&self, core: usize) -> &Share {
        &self.shares[core]
    }

    /// Whether reads can be in flight that the table does not count.
    pub(crate) fn has_cores(&self) -> bool {
        !self.shares.is_empty()
    }

    /// The rules are about to change.
    pub(crate) fn change(&self) {
        self.version.change();
    }

    /// Counts a read in flight that was judged by the rules of version `mine`; `false` where those are old.
    #[inline]
    pub(super) fn enter(&self, core: usize, slot: u16, mine: u64) -> bool {
        self.share(core).flight(slot).enter(&self.version, mine)
    }

    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.get()
    }

    /// Whether no core has a read in flight that was judged by an entry of the volume in this slot older than that of
    /// version `version`.
    pub(crate) fn is_fenced(&self, slot: u16, version: u64) -> bool {
        self.shares.iter().all(|share| share.flight(slot).is_over(&share.seen, version))
    }

    /// Blocks that the cores have read of the volumes that this slot ever had.
    pub(crate) fn reads_of(&self, slot: u16) -> u64 {
        self.shares.iter().map(|share| share.volume_reads[usize::from(slot)].load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn tally(&self) -> Tally {
        self.shares.iter().fold(Tally::default(), |sum, share| {
            let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            Tally {
                entered: sum.entered + of(&share.entered),
                left: sum.left + of(&share.left),
                reads: sum.reads + of(&share.reads),
                unmapped: sum.unmapped + of(&share.unmapped),
                forfeited: sum.forfeited + of(&share.forfeited),
                busy: sum.busy + Span::from_ps(of(&share.busy_ps)),
            }
        })
    }

    /// Every core closes the queues of its reads that hold up a fence of the volume in this slot.
    pub(crate) fn close_older(&self, slot: u16) {
        for share in &self.shares {
            share.post(Note::CloseOlder(slot));
        }
    }

    /// Leaves effects with the cores whose queues they are for.
    pub(super) fn post(&self, effects: &mut VecDeque<Effect>) {
        for effect in effects.drain(..) {
            let (Effect::Pull { queue, .. }
            | Effect::Push { queue, .. }
            | Effect::Complete { queue, .. }
            | Effect::Close { queue }) = effect;
            self.shares[super::port::core_of(queue)].post(Note::Effect(effect));
        }
    }

    /// What the cores need to know of the firmware's state.
    pub(super) fn publish(&self, alarm: Time, waiting: bool, fencing: bool) {
        self.alarm.store(alarm.as_ps(), Ordering::Relaxed);
        self.waiting.store(waiting, Ordering::Relaxed);
        self.fencing.store(fencing, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn alarm(&self) -> Time {
        Time::ZERO + Span::from_ps(self.alarm.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_fencing(&self) -> bool {
        self.fencing.load(Ordering::Relaxed)
    }
}
