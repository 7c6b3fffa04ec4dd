// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Draws that came later. They have dice of their own, so that the earlier ones stay as they are.

use super::{LANES, Odds, Shape, VolumeShape};
use crate::dice::Dice;
use gnstor_base::time::Span;

pub(super) struct Later {
    odds: Odds,
    rots: bool,
    drift_ppm: u32,
    repeats: bool,
    follows: bool,
    witness: bool,
    /// Volumes of eight blocks, many zeroes, short ways and a slow kernel.
    is_tiny: bool,
    /// No other fault than this one, again and again: other faults spoil its schedule.
    only: Option<u32>,
    newest: Newest,
}

/// Draws that came after these.
struct Newest {
    /// An even number of SSDs.
    even: Option<Even>,
    leap: u32,
    rot: u32,
    /// Draws of another dice.
    stop: u32,
    rots_records: bool,
    late_deletes: bool,
    /// An SSD joins after this part of the time with faults, in thousandths.
    joins: Option<u32>,
    stops: bool,
    /// Only leaps while maps wait, or only tears.
    only: Option<u32>,
}

/// Which even number of SSDs.
#[derive(Clone, Copy)]
enum Even {
    TwoAlone,
    /// So many, and a witness.
    AndWitness(u16),
}

impl Newest {
    fn draw(seed: u64, ssds: u32) -> Self {
        let mut dice = Dice::new(seed, 10);
        let even = match dice.below(16) {
            0 | 1 => Some(Even::TwoAlone),
            2 => Some(Even::AndWitness(2)),
            3..=6 if ssds == 5 => Some(Even::AndWitness(4)),
            _ => None,
        };
        let mut odd = |one_in: u32, weight: u32| {
            let drawn = 1 + dice.below(weight);
            if dice.below(one_in) == 0 { drawn } else { 0 }
        };
        let (leap, rot) = (odd(2, 4), odd(3, 3));
        let only = match dice.below(40) {
            0 | 1 => Some(LEAPS),
            2 => Some(TEARS),
            _ => None,
        };
        let mut dice = Dice::new(seed, 11);
        let drawn = 1 + dice.below(4);
        let stop = if dice.below(3) == 0 { drawn } else { 0 };
        let rots_records = dice.below(2) == 0;
        let late_deletes = Dice::new(seed, 12).below(3) == 0;
        let mut dice = Dice::new(seed, 13);
        let drawn = dice.below(750);
        let joins = (dice.below(6) == 0).then_some(drawn);
        let stops = dice.below(4) == 0;
        Self { even, leap, rot, stop, rots_records, late_deletes, joins, stops, only }
    }

    fn change(self, shape: Shape) -> Shape {
        let Self { even, leap, rot, stop, rots_records, late_deletes, joins, stops, only } = self;
        let late_deletes = late_deletes && shape.repeats;
        let odds = Odds { leap, rot, stop, ..shape.odds };
        let mut shape = Shape { odds, leaps: leap > 0, rots_records, late_deletes, ..shape };
        if let Some(only) = only {
            let (leaps, tears) = (only == LEAPS, only == TEARS);
            shape = Shape { leaps, tears, witness: false, ..shape.with_only(only) };
        } else if let Some(even) = even {
            shape = shape.with_even(even);
        }
        if shape.leaps {
            shape.drift_ppm = shape.drift_ppm.min(BESIDE_LEAPS);
        }
        shape.stops = stops && shape.has_voters();
        if only.is_none() && shape.has_voters() && !shape.witness {
            let part = |thousandths: u32| Span::from_ps(shape.runs.as_ps() / 1_000 * u64::from(thousandths));
            shape.joins = joins.map(part);
        }
        shape
    }
}

impl Later {
    pub(super) fn draw(seed: u64, odds: Odds, ssds: u32) -> Self {
        let mut dice = Dice::new(seed, 8);
        let odds = odds.draw_aimed(&mut dice);
        let mut one_in = |n: u32| dice.below(n) == 0;
        let (rots, repeats, follows) = (one_in(3), one_in(2), !one_in(4));
        let (witness, is_tiny) = (one_in(4) && ssds == 3, one_in(6));
        let drift_ppm = [0, 50, 500, MOST_DRIFT][dice.below(4) as usize];
        let only = (dice.below(5) == 0).then(|| dice.below(5));
        let newest = Newest::draw(seed, ssds);
        Self { odds, rots, drift_ppm, repeats, follows, witness, is_tiny, only, newest }
    }

    pub(super) fn change(self, shape: Shape) -> Shape {
        let Self { odds, rots, drift_ppm, repeats, follows, witness, is_tiny, only, newest } = self;
        let mut shape = Shape { odds, rots, drift_ppm, repeats, follows, witness, ..shape };
        if witness {
            shape.volumes.iter_mut().for_each(|volume| volume.replicas = volume.replicas.min(2));
        }
        if is_tiny {
            for volume in &mut shape.volumes {
                (volume.blocks, volume.chunk_shift) = (8, 0);
            }
            shape.mix = [80, 30, 0];
            shape.lanes = LANES;
            shape.pass = shape.pass.max(Span::from_ns(200_000));
            shape.delays.usual = shape.delays.usual.min(Span::from_ns(50_000));
            shape.pause = Span::from_ms(1);
        }
        match only {
            Some(only) => shape.with_only(only),
            None => newest.change(shape),
        }
    }
}

/// Numbers of [`Odds::only`]: leaps while maps wait for leases, and voters that die while maps become active.
const LEAPS: u32 = 5;
const TEARS: u32 = 6;

impl Odds {
    fn only(number: u32) -> Self {
        let none = Self::default();
        match number {
            0 => Self { late_data: 1, ..none },
            1 => Self { hand_on: 1, ..none },
            2 => Self { overtaken: 1, ..none },
            3 => Self { stall: 1, ..none },
            LEAPS => Self { apart: 1, ..none },
            TEARS => Self { kill: 1, ..none },
            _ => Self { last_lost: 1, ..none },
        }
    }
}

/// Two clocks that run off by so much, each its way, are 9 ms apart after a lease of 300 ms. The rules allow
/// 10 ms.
const MOST_DRIFT: u32 = 15_000;
/// A clock that leaps may seem 9 ms faster to a daemon that waits. 500 millionths take up some more of the 10
/// ms.
const BESIDE_LEAPS: u32 = 500;

impl Shape {
    /// Two SSDs alone lose no writes, and none leaves: their map keeps its places.
    fn with_even(self, even: Even) -> Self {
        let (ssds, witness) = match even {
            Even::TwoAlone => (2, false),
            Even::AndWitness(others) => (others + 1, true),
        };
        let mut shape = Self { ssds, witness, ..self };
        let most = u8::try_from(shape.with_blocks()).unwrap_or(u8::MAX);
        shape.volumes.iter_mut().for_each(|volume| volume.replicas = volume.replicas.min(most));
        if !shape.has_voters() {
            shape.odds = Odds { power: 0, drain: 0, last_lost: 0, rot: 0, ..shape.odds };
            (shape.tears, shape.swaps, shape.rots) = (false, false, false);
        }
        shape
    }

    /// One small volume of two copies on three SSDs that many clients use, and one kind of fault.
    fn with_only(self, number: u32) -> Self {
        let mut delays = self.delays;
        (delays.late_1_of, delays.usual) = (0, delays.usual.min(Span::from_ns(50_000)));
        let volume = VolumeShape { blocks: 8, replicas: 2, chunk_shift: 0 };
        Self {
            ssds: 3,
            clients: self.clients.max(4),
            lanes: LANES,
            groups: self.groups.min(4),
            volumes: vec![volume],
            lease_ms: if number == 1 { 1_000 } else { self.lease_ms.max(2_000) },
            mix: [70, if number == 2 { 40 } else { 10 }, 0],
            pause: Span::from_ms(1),
            pass: Span::from_ns(200_000),
            requests: 400,
            deletes_permille: 0,
            delays,
            runs: Span::from_ms(9_000),
            every: Span::from_ms(1_600),
            odds: Odds::only(number),
            depth: 32,
            both: false,
            aims: false,
            early: false,
            pairs: false,
            tears: false,
            ..self
        }
    }
}
