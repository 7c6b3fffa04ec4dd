// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The draws of a seed before anything happens (swarm): topology, sizes, load, and the odds of each fault,
//! many of them zero.

use crate::dice::Dice;
use crate::survive::wire::Delays;
use gnstor_base::time::Span;
use gnstor_deengine::{Preset, SsdConfig, SsdMedia};
use gnstor_flash::Shape as FlashShape;

mod later;

use later::Later;

/// Channels and dies of an SSD.
const CHANNELS: u32 = 2;
pub(super) const DIES: u32 = 4;
/// Lanes of a client, at most.
pub(super) const LANES: usize = 8;

/// A volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct VolumeShape {
    pub(super) blocks: u32,
    pub(super) replicas: u8,
    pub(super) chunk_shift: u8,
}

/// Draws one of these values.
fn of(dice: &mut Dice, list: &[u32]) -> u32 {
    list[dice.below(u32::try_from(list.len()).expect("few")) as usize]
}

impl VolumeShape {
    fn draw(dice: &mut Dice) -> Self {
        Self {
            blocks: of(dice, &[8, 16, 32, 64]),
            replicas: u8::try_from(of(dice, &[1, 2, 2, 3, 3])).expect("small"),
            chunk_shift: u8::try_from(dice.below(4)).expect("small"),
        }
    }
}

/// How often a fault is drawn, beside the others; 0: never.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Odds {
    pub(super) reset: u32,
    pub(super) still: u32,
    pub(super) kill: u32,
    pub(super) power: u32,
    pub(super) cut: u32,
    pub(super) daemon: u32,
    pub(super) client: u32,
    pub(super) media: u32,
    pub(super) stall: u32,
    pub(super) apart: u32,
    pub(super) storm: u32,
    pub(super) late_data: u32,
    pub(super) hand_on: u32,
    pub(super) overtaken: u32,
    pub(super) drain: u32,
    pub(super) last_lost: u32,
    pub(super) leap: u32,
    pub(super) rot: u32,
    pub(super) stop: u32,
}

impl Odds {
    /// The odds of single faults. Each is 0 in half of the worlds.
    fn draw(dice: &mut Dice) -> Self {
        let mut odd = |weight: u32| if dice.below(2) == 0 { 0 } else { 1 + dice.below(weight) };
        Self {
            reset: odd(8),
            still: odd(6),
            kill: odd(6),
            power: odd(6),
            cut: odd(4),
            daemon: odd(4),
            client: odd(3),
            media: odd(3),
            ..Self::default()
        }
    }

    /// All kinds, by their numbers. Faults that are drawn where something happens have the odds 0.
    pub(super) fn all(&self) -> [u32; 22] {
        let Self { reset, still, kill, power, cut, daemon, client, media, stall, apart, storm, .. } = *self;
        let Self { late_data, hand_on, overtaken, drain, last_lost, leap, rot, stop, .. } = *self;
        [
            reset, still, kill, power, cut, daemon, client, media, stall, apart, storm, late_data, hand_on,
            overtaken, drain, last_lost, 0, leap, rot, 0, stop, 0,
        ]
    }

    /// The odds of faults that are aimed at one schedule each. The last one loses copies: no further block is
    /// judged then.
    fn draw_aimed(self, dice: &mut Dice) -> Self {
        let mut odd = |one_in: u32, weight: u32| {
            let drawn = 1 + dice.below(weight);
            if dice.below(one_in) == 0 { drawn } else { 0 }
        };
        Self {
            late_data: odd(3, 6),
            hand_on: odd(4, 4),
            overtaken: odd(4, 6),
            drain: odd(3, 4),
            last_lost: odd(12, 3),
            ..self
        }
    }
}

/// A world's parameters.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) ssds: u16,
    pub(super) clients: usize,
    pub(super) lanes: usize,
    pub(super) groups: u32,
    pub(super) volumes: Vec<VolumeShape>,
    pub(super) lease_ms: u32,
    /// Percentage of writes among a writer's requests, and of zeroes and of FUA among the writes.
    pub(super) mix: [u32; 3],
    pub(super) pause: Span,
    /// Duration of a pass of a client's kernel that does something. Maps may come between two passes.
    pub(super) pass: Span,
    /// Requests between Open and Release, at most.
    pub(super) requests: u32,
    pub(super) deletes_permille: u32,
    pub(super) delays: Delays,
    /// Virtual time with load and faults.
    pub(super) runs: Span,
    /// Mean time between two faults.
    pub(super) every: Span,
    pub(super) odds: Odds,
    pub(super) timed: bool,
    /// Commands of a client in flight to one SSD, and one more.
    pub(super) depth: u32,
    /// While an SSD lacks writes no other fault happens.
    pub(super) one_loss: bool,
    /// The daemon may be killed together with an SSD that loses its power.
    pub(super) both: bool,
    /// Faults happen when the map changes and when a daemon starts, beside those at any time.
    pub(super) aims: bool,
    /// Faults happen from the start on, also before the array serves.
    pub(super) early: bool,
    /// Voters and the daemon die while a map becomes active.
    pub(super) tears: bool,
    /// Two faults happen together.
    pub(super) pairs: bool,
    /// Clients ask places that fill for blocks, which no client of the product does.
    pub(super) probes: bool,
    /// When all is whole, a daemon starts while one SSD is slow and another one is killed.
    pub(super) drills: bool,
    /// When all is whole, an SSD is stopped in order while clients read.
    pub(super) stops: bool,
    /// When all is whole, an SSD is exchanged for an empty one.
    pub(super) swaps: bool,
    /// When all is whole, bits of stored blocks flip, and the operator orders a scrub.
    pub(super) rots: bool,
    /// Where bits flip, some are of the record beside a page.
    pub(super) rots_records: bool,
    /// Clocks of SSDs and daemons run off by so many millionths, at most.
    pub(super) drift_ppm: u32,
    /// Calls with a request id are sent twice.
    pub(super) repeats: bool,
    /// A Delete is sent again late, and the daemon may be killed when it has carried one out.
    pub(super) late_deletes: bool,
    /// Clients say that they follow a map in which SSDs come in.
    pub(super) follows: bool,
    /// The last SSD votes and holds no blocks: the array has an even number of others.
    pub(super) witness: bool,
    /// So long after the first fault the operator adds an SSD. It has the number behind the others.
    pub(super) joins: Option<Span>,
    /// Clocks leap ahead, also while a map waits for leases.
    pub(super) leaps: bool,
}

impl Shape {
    pub(super) fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 1);
        let ssds = of(&mut dice, &[3, 3, 3, 4, 4, 5, 5, 6, 8]);
        let clients = 1 + dice.below(6);
        let volumes = (0..=dice.below(3)).map(|_| VolumeShape::draw(&mut dice)).collect();
        let odds = Odds::draw(&mut dice);
        // Draws of their own, so that the others stay as they are.
        let mut more = Dice::new(seed, 7);
        let depth = of(&mut more, &[2, 3, 32, 32]);
        let mut one_in = |n: u32| more.below(n) == 0;
        let (both, aims, probes, drills) = (one_in(2), one_in(3), one_in(2), one_in(4));
        let (swaps, pairs, tears, early) = (one_in(4), one_in(3), one_in(4), one_in(4));
        let pass = Span::from_ns(1_000 * u64::from(of(&mut more, &[0, 0, 20, 200, 2_000])));
        let mut odd = |weight: u32| if more.below(2) == 0 { 0 } else { 1 + more.below(weight) };
        let odds = Odds { stall: odd(6), apart: odd(6), storm: odd(3), ..odds };
        let later = Later::draw(seed, odds, ssds);
        let late_1_of = of(&mut dice, &[0, 0, 3000, 300, 60]);
        let shape = Self {
            ssds: u16::try_from(ssds).expect("few"),
            clients: clients as usize,
            lanes: 1 + dice.below(u32::try_from(LANES).expect("few")) as usize,
            groups: of(&mut dice, &[1, 4, 16]),
            volumes,
            lease_ms: of(&mut dice, &[1_000, 2_000, 5_000]),
            mix: [of(&mut dice, &[20, 50, 80]), of(&mut dice, &[0, 10, 30]), of(&mut dice, &[0, 0, 20])],
            pause: Span::from_ms(of(&mut dice, &[1, 5, 20]).into()),
            requests: of(&mut dice, &[20, 100, 400]),
            deletes_permille: of(&mut dice, &[0, 0, 20, 100]),
            delays: Delays {
                usual: Span::from_ns(of(&mut dice, &[5_000, 50_000, 500_000]).into()),
                late_1_of,
                late_by: Span::from_ms(of(&mut dice, &[20, 400, 3_000]).into()),
            },
            runs: Span::from_ms(u64::from(2 + dice.below(9)) * 1_000),
            every: Span::from_ms(of(&mut dice, &[100, 400, 1_500]).into()),
            odds,
            timed: dice.below(3) == 0,
            depth,
            one_loss: dice.below(2) == 0,
            both,
            aims,
            pass,
            pairs,
            tears,
            early,
            probes,
            drills,
            swaps,
            rots: false,
            rots_records: false,
            drift_ppm: 0,
            repeats: false,
            late_deletes: false,
            follows: true,
            witness: false,
            joins: None,
            stops: false,
            leaps: false,
        };
        later.change(shape)
    }

    /// The SSDs that hold blocks are those below this number.
    pub(super) fn with_blocks(&self) -> u16 {
        self.ssds - u16::from(self.witness)
    }

    /// The SSDs that the array begins with, and the one that joins.
    pub(super) fn all_ssds(&self) -> u16 {
        self.ssds + u16::from(self.joins.is_some())
    }

    /// Whether the map names voters. Two SSDs alone do without (`MapFormat::ByCount`).
    pub(super) fn has_voters(&self) -> bool {
        self.ssds != 2
    }

    /// An SSD with superblocks of 32 pages. Its power protection fails where a fault says so.
    pub(super) fn ssd(&self, index: u16) -> SsdConfig {
        let name = if self.timed { "gnstor-980pro" } else { "null" };
        let mut preset = Preset::by_name(name).expect("it is built in");
        preset.shape = FlashShape {
            channels: CHANNELS,
            dies_per_channel: DIES / CHANNELS,
            planes: 1,
            unit_pages: 4,
            sense_pages: 2,
            rows: 2,
        };
        preset.buffer_pages = 64;
        preset.power_protected = true;
        let serial = format!("SIM{index}");
        SsdConfig { index, preset, capacity_bytes: self.ssd_bytes(), serial, media: SsdMedia::Ram }
    }

    /// Capacity of each SSD.
    pub(super) fn ssd_bytes(&self) -> u64 {
        1024 * u64::from(gnstor_proto::BLOCK_BYTES)
    }
}
