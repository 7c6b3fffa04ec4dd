// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Three SSDs, two volumes of three replicas each with a writer, and a daemon, in virtual time and from one
//! seed. Fills, settles and scrubs run beside writes, TRIMs, restarts, lost SSDs and late messages (decision
//! 57).
//!
//! ```text
//!   writers --writes, TRIMs--> SSDs --questions, answers--> SSDs       each may be late, or lost
//!   daemon ---maps, entries, SETTLE--> SSDs                            an SSD may be lost, and restart
//! ```
//! What is checked: a read finds what was acknowledged, or newer. A settled volume has equal copies on all
//! members. A fill moves no more blocks than differ and change. At the end each SSD serves, and all copies
//! are equal. `GNSTOR_FUZZ_SEED` and `GNSTOR_FUZZ_SECONDS` as in `media.rs`; `GNSTOR_SEEDS`: how many.

mod daemon;
mod post;
mod readers;
mod writers;

use super::crash::number;
use super::map3::Cut;
use super::media::seeds;
use super::oracle::Dice;
use super::*;
use daemon::Part;
use gnstor_fleet::repair::Held;
use gnstor_ftl::Kept;
use gnstor_proto::placement::group_of;
use gnstor_proto::placement::map3::FleetMap3;
use post::{Letter, Message};
use writers::Volume;

/// Number of seeds in a short run. Three tests take a third each, so that they run at the same time.
const SEEDS: u64 = 150;
/// Steps of a seed, and faults among them.
const STEPS: u32 = 260;
const FAULTS: u32 = 5;
const ARRAY: [u8; 16] = [3; 16];
/// Blocks of a volume. A fill asks for 1,024 at a time, so it asks for two whole ranges and a part of one.
const CAPACITY: u32 = 2 * 1024 + 200;
/// Blocks that are written; see [`block_of`].
const HOT: u32 = 20;
/// Number of rounds after the last fault within which everything must come to rest.
const ROUNDS: u32 = 20_000;

/// The hot blocks: neighbours in the ranges, and single ones.
fn block_of(hot: u32) -> u32 {
    match hot {
        0..8 => 32 + hot,
        8..12 => 1024 + hot,
        12..16 => CAPACITY - 1 - hot,
        _ => 100 * hot,
    }
}

/// The row of the map that a block is of.
fn row_of(vid: Vid, vba: u32) -> usize {
    let VolumeEntry { chunk_shift, factor, .. } = entry(vid.get());
    usize::try_from(group_of(vid, vba, chunk_shift, factor, 2)).expect("two rows")
}

/// An SSD, and the world's knowledge of it.
struct Node {
    cut: Cut,
    harness: Harness,
    /// Grows with each restart. Messages of an earlier life are not delivered.
    life: u32,
    /// Whether daemon, clients and other SSDs reach it.
    is_reached: bool,
    /// The epoch that dropped it: no client or SSD is served before it knows that.
    dropped_at: u64,
}

impl Node {
    fn epoch(&self) -> u64 {
        self.harness.ssd().fleet_map().map_or(0, Rows::epoch)
    }

    /// Whether clients and other SSDs get answers.
    fn answers(&self) -> bool {
        self.is_reached && self.epoch() >= self.dropped_at
    }

    fn version(&self, vid: Vid) -> u64 {
        self.harness.ssd().table.volume(vid).map_or(0, |volume| volume.entry().version)
    }
}

/// Counts of the situations in a run, so that a run without any fails.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    acknowledged: u64,
    reads: u64,
    fills: u64,
    settles: u64,
    scrubs: u64,
    restarts: u64,
    /// Blocks whose data fills and settles have requested.
    moved: u64,
    /// Answers that were late or lost.
    lost: u64,
}

/// The fill of one SSD in a row of epochs, and what it may move.
#[derive(Clone, Copy, Default, Debug)]
struct Budget {
    moved: u64,
    may: u64,
}

struct World {
    dice: Dice,
    now: Time,
    nodes: Vec<Node>,
    /// The parts of each row of the map.
    parts: [[Part; 3]; 2],
    incarnations: [u32; 3],
    firsts: [u16; 2],
    maps: Vec<FleetMap3>,
    volumes: [Volume; 2],
    messages: Vec<Message>,
    letters: Vec<Letter>,
    budgets: [Budget; 3],
    faults: u32,
    counts: Counts,
}

impl World {
    fn new(seed: u64) -> Self {
        let volumes = [Volume::new(5), Volume::new(6)];
        let nodes = (0..3).map(|index| {
            let (cut, ssd) = Cut::of(index, 2 * u64::from(CAPACITY));
            let harness = connected(&cut, ssd, index);
            Node { cut, harness, life: 0, is_reached: true, dropped_at: 0 }
        });
        let mut world = Self {
            dice: Dice(seed),
            now: Time::from_ns(1000),
            nodes: nodes.collect(),
            parts: [[Part::Serves; 3]; 2],
            incarnations: [1; 3],
            firsts: [0, 1],
            maps: Vec::new(),
            volumes,
            messages: Vec::new(),
            letters: Vec::new(),
            budgets: [Budget::default(); 3],
            faults: FAULTS,
            counts: Counts::default(),
        };
        world.next_map();
        for ssd in 0..3 {
            world.tell_map(ssd);
            for volume in &world.volumes {
                let cqe = world.nodes[ssd].harness.volume_command(opcode::VOLUME_ADD, &volume.entry);
                assert_eq!(refusal(&cqe), None);
            }
        }
        world
    }

    /// Time passes for all, and due messages arrive.
    fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        for node in &mut self.nodes {
            node.harness.step_to(self.now);
        }
        self.post();
    }

    fn step(&mut self) {
        let span = Span::from_ns(self.dice.below(2_000_000));
        self.pass(span);
        match self.dice.below(32) {
            0..9 => self.begin_change(),
            9..18 => self.deliver_any(),
            18..21 => self.read_any(),
            21..27 => self.daemon(),
            27..29 => self.attend_volume(),
            29 => self.end_lease(),
            30 => self.look_for_map(),
            _ => self.fault(),
        }
    }

    /// No more faults: everything comes to rest.
    fn rest(&mut self) {
        self.faults = 0;
        for ssd in 0..3 {
            if !self.nodes[ssd].is_reached {
                self.come_back(ssd);
            }
        }
        for _ in 0..ROUNDS {
            if self.is_at_rest() {
                return self.check_end();
            }
            self.pass(Span::from_ms(1));
            self.daemon();
            self.attend_volume();
            self.look_for_map();
            for _ in 0..self.messages.len().min(4) {
                self.deliver_any();
            }
        }
        let logs: Vec<_> = (0..3).map(|ssd| self.nodes[ssd].harness.ssd().fill_log()).collect();
        panic!("it does not come to rest: {:?} {:?} {logs:?}", self.parts, self.volumes.each_ref());
    }

    fn is_at_rest(&self) -> bool {
        let serve = self.parts == [[Part::Serves; 3]; 2];
        let newest = self.epoch();
        serve
            && self.nodes.iter().all(|node| node.epoch() == newest && node.is_reached)
            && self.volumes.iter().all(Volume::is_at_rest)
            && self.messages.is_empty()
    }

    fn check_end(&mut self) {
        for at in 0..2 {
            self.are_equal(at);
            for hot in 0..HOT {
                let held = self.held(0, self.volumes[at].vid(), block_of(hot));
                self.volumes[at].check(block_of(hot), held);
            }
        }
        for node in self.nodes.iter().filter(|node| node.life == 0) {
            assert!(node.harness.frames_are_whole(), "a frame is lost");
        }
    }

    fn held(&self, ssd: usize, vid: Vid, vba: u32) -> Held {
        match self.nodes[ssd].harness.ssd().ftl().commits().kept(vid, 1, vba) {
            Kept::Nothing => Held::Nothing,
            Kept::Block { stamp, sum } => Held::Block { stamp, sum },
            Kept::Tombstone { stamp } => Held::Tombstone { stamp },
        }
    }

    /// Whether an SSD has the content that the map expects.
    fn is_whole(&self, ssd: usize) -> bool {
        self.nodes[ssd].harness.ssd().identity().incarnation == self.incarnations[ssd]
    }

    /// Checks that the hot blocks of a volume read the same on all members. An SSD that has lost writes is no
    /// member any more.
    fn are_equal(&self, volume: usize) {
        let vid = self.volumes[volume].vid();
        for vba in (0..HOT).map(block_of) {
            let mut ssds = self.members(row_of(vid, vba));
            ssds.retain(|ssd| self.is_whole(*ssd));
            let held: Vec<Held> = ssds.iter().map(|ssd| self.held(*ssd, vid, vba)).collect();
            assert!(held.iter().all(|one| one.reads_as(held[0])), "{vid:?}, block {vba}: {held:?}");
        }
    }
}

/// An SSD to which the daemon, clients and other SSDs are connected.
fn connected(cut: &Cut, ssd: Ssd, index: u16) -> Harness {
    let mut harness = cut.harness(ssd);
    for peer in (0..3).filter(|peer| *peer != index) {
        harness.connect(post::peer_key(peer.into()), 0, Identity::Peer(peer), CNTLID_ANY);
    }
    harness
}

fn run(seed: u64) -> Counts {
    let mut world = World::new(seed);
    (0..STEPS).for_each(|_| world.step());
    world.rest();
    world.counts
}

#[test]
fn replicas_are_equal_after_fills_and_settles_beside_writers() {
    of_a_third(0);
}

#[test]
fn replicas_are_equal_after_fills_and_settles_beside_writers_of_the_second_third_of_seeds() {
    of_a_third(1);
}

#[test]
fn replicas_are_equal_after_fills_and_settles_beside_writers_of_the_last_third_of_seeds() {
    of_a_third(2);
}

fn of_a_third(third: u64) {
    let _deadline = crate::deadline::deadline();
    let mut all = Counts::default();
    let each = number("GNSTOR_SEEDS").unwrap_or(SEEDS).div_ceil(3);
    let count = seeds(each, |seed| {
        // Far from the other thirds, however long a campaign lasts.
        let seed = seed.wrapping_add(third << 48);
        println!("seed {seed}");
        let counts = run(seed);
        all.acknowledged += counts.acknowledged;
        all.reads += counts.reads;
        all.fills += counts.fills;
        all.settles += counts.settles;
        all.scrubs += counts.scrubs;
        all.restarts += counts.restarts;
        all.moved += counts.moved;
        all.lost += counts.lost;
    });
    println!("{count} seeds: {all:?}");
    if count >= SEEDS / 3 {
        let least = [all.fills, all.settles, all.scrubs, all.restarts, all.lost].into_iter().min();
        assert!(least >= Some(count / 4), "what never happens tests nothing: {all:?}");
    }
}
