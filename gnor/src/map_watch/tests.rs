// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random schedules in virtual time. The map changes, and SSDs hear of it early, late or never. SSDs are
//! lost, fall silent and come back. The daemon is away for a while.

use super::*;
use gnstor_base::testing::deadline;
use gnstor_proto::placement::mix64;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SSDS: usize = 3;
const COUNT: u32 = 3;
const MS: Duration = Duration::from_millis(1);
const RHYTHM: Rhythm = Rhythm {
    calm: Duration::from_millis(100),
    urgent: Duration::from_millis(10),
    lasts: Duration::from_secs(1),
    patience: Duration::from_millis(100),
    daemon: Duration::from_millis(500),
};
/// A working SSD answers within this time.
const SOON: Duration = Duration::from_millis(20);
/// Longest time between two steps of the runtime.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Well,
    Silent,
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Turns(usize, Mode),
    /// The daemon answers, or does not.
    Daemon(bool),
    /// The daemon makes a map. Each of these SSDs gets it some time later.
    Next([Option<u64>; SSDS]),
    Takes(usize, u64),
    Busy(bool),
    Answers(Ask, Option<u64>),
}

struct World {
    watch: MapWatch,
    modes: [Mode; SSDS],
    epochs: [u64; SSDS],
    asked: [bool; SSDS],
    daemon: (bool, u64),
    daemon_asked: bool,
    busy: bool,
    /// Since when the newest map is on an SSD that is well, and on the daemon, while the client is busy.
    since: Moment,
    unfit: Option<u64>,
    /// Maps of an SSD that arrived damaged. The next time they arrive whole.
    damaged: BTreeSet<(usize, u64)>,
    events: BTreeMap<(Moment, u64), Event>,
    now: Moment,
    drawn: u64,
    seed: u64,
    asks: u32,
    signs: u32,
}

impl World {
    fn new(seed: u64, unfit: Option<u64>) -> Self {
        Self {
            watch: MapWatch::new(RHYTHM, 1),
            modes: [Mode::Well; SSDS],
            epochs: [1; SSDS],
            asked: [false; SSDS],
            daemon: (true, 1),
            daemon_asked: false,
            busy: false,
            since: Moment::ZERO,
            unfit,
            damaged: BTreeSet::new(),
            events: BTreeMap::new(),
            now: Moment::ZERO,
            drawn: 0,
            seed,
            asks: 0,
            signs: 0,
        }
    }

    fn at(&mut self, moment: Moment, event: Event) {
        self.drawn += 1;
        self.events.insert((moment, self.drawn), event);
    }

    fn soon(&mut self) -> Moment {
        self.drawn += 1;
        let most = u64::try_from(SOON.as_nanos()).expect("small");
        self.now + Duration::from_nanos(mix64(self.seed ^ self.drawn << 32) % most)
    }

    fn ask(&mut self, ask: Ask) {
        self.asks += 1;
        let answer = self.soon();
        match ask {
            Ask::Epoch(ssd) | Ask::Map(ssd) => {
                assert!(self.modes[ssd] != Mode::Lost && !self.asked[ssd], "SSD {ssd} cannot be asked");
                self.asked[ssd] = true;
                if self.modes[ssd] == Mode::Well {
                    let epoch = self.epochs[ssd];
                    self.at(answer, Event::Answers(ask, Some(epoch)));
                }
            }
            Ask::Daemon => {
                assert!(!self.daemon_asked, "the daemon is asked twice at a time");
                self.daemon_asked = true;
                let (is_there, epoch) = self.daemon;
                let silence = if is_there { Duration::ZERO } else { 15_000 * MS };
                self.at(answer + silence, Event::Answers(ask, is_there.then_some(epoch)));
            }
        }
    }

    fn answer(&mut self, ask: Ask, epoch: Option<u64>) {
        let taken = match epoch {
            Some(epoch) if self.unfit == Some(epoch) => Taken::Unfit(epoch),
            Some(epoch) => Taken::Epoch(epoch),
            None => Taken::Nothing,
        };
        let before = self.watch.in_use();
        match ask {
            Ask::Epoch(ssd) => {
                self.asked[ssd] = false;
                self.watch.epoch_told(self.now, ssd, epoch);
            }
            Ask::Map(ssd) => {
                self.asked[ssd] = false;
                let drawn = mix64(self.seed ^ self.daemon.1 << 8 ^ ssd as u64).is_multiple_of(2);
                let first = epoch.is_some_and(|epoch| self.damaged.insert((ssd, epoch)));
                let taken = if drawn && first { Taken::Nothing } else { taken };
                self.watch.map_came(self.now, ask, taken);
            }
            Ask::Daemon => {
                self.daemon_asked = false;
                self.watch.map_came(self.now, ask, taken);
            }
        }
        assert!(self.watch.in_use() >= before, "the map in use goes back");
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turns(ssd, mode) => {
                let was = std::mem::replace(&mut self.modes[ssd], mode);
                if was == mode {
                    return;
                }
                self.since = self.now;
                if mode == Mode::Lost {
                    self.signs += 1;
                    self.watch.suspect(self.now);
                }
                // An open question there is answered, or ends with the connection.
                if self.asked[ssd] && mode == Mode::Well {
                    self.asked[ssd] = false;
                    self.watch.epoch_told(self.now, ssd, None);
                } else if self.asked[ssd] && mode == Mode::Lost {
                    self.asked[ssd] = false;
                    self.watch.map_came(self.now, Ask::Map(ssd), Taken::Nothing);
                    self.watch.epoch_told(self.now, ssd, None);
                }
                self.events.retain(
                    |_, event| !matches!(event, Event::Answers(Ask::Epoch(s) | Ask::Map(s), _) if *s == ssd),
                );
            }
            Event::Daemon(is_there) => {
                self.since = self.now;
                self.daemon.0 = is_there;
            }
            Event::Next(delays) => {
                self.since = self.now;
                self.daemon.1 += 1;
                for (ssd, delay) in delays.into_iter().enumerate() {
                    if let Some(delay) = delay {
                        let moment = self.now + Duration::from_nanos(delay);
                        self.at(moment, Event::Takes(ssd, self.daemon.1));
                    }
                }
            }
            Event::Takes(ssd, epoch) => {
                self.since = self.now;
                self.epochs[ssd] = self.epochs[ssd].max(epoch);
            }
            Event::Busy(busy) => {
                self.since = self.now;
                self.busy = busy;
            }
            Event::Answers(ask, epoch) => self.answer(ask, epoch),
        }
    }

    /// Checks how long the newest map takes to come into use.
    fn check(&self) {
        let newest = self.daemon.1;
        if !self.busy || self.unfit == Some(newest) || self.watch.in_use() == newest {
            return;
        }
        let so_long = self.now.saturating_sub(self.since);
        let well = |ssd: &usize| self.modes[*ssd] == Mode::Well && self.epochs[*ssd] == newest;
        let turn = RHYTHM.patience + RHYTHM.calm + SOON;
        let most = (2 * COUNT + 1) * turn + LOOK;
        assert!(
            !(0..SSDS).any(|ssd| well(&ssd)) || so_long <= most,
            "an SSD has map {newest} for {so_long:?}, and {} is in use: {:?}",
            self.watch.in_use(),
            self.watch
        );
        // A daemon that was away may still be asked.
        let none = self.modes.iter().all(|mode| *mode == Mode::Lost);
        let most = RHYTHM.daemon * 2 + LOOK + SOON + 15_000 * MS;
        assert!(!none || !self.daemon.0 || so_long <= most, "the daemon has it for {so_long:?}");
    }

    fn run_until(&mut self, end: Moment) {
        let mut steps = 0;
        while self.now < end {
            let wakes = self.watch.wakes_at(self.now).unwrap_or(end);
            let next = self.events.first_key_value().map_or(end, |(&(moment, _), _)| moment);
            self.now = wakes.min(next).min(self.now + LOOK).min(end).max(self.now);
            while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let event = entry.remove();
                self.happen(event);
            }
            let (modes, asked) = (self.modes, self.asked);
            let can_ask = |ssd: usize| modes[ssd] != Mode::Lost && !asked[ssd];
            let asks = self.watch.step(self.now, self.busy, SSDS, can_ask);
            asks.into_iter().for_each(|ask| self.ask(ask));
            self.check();
            steps += 1;
            assert!(steps < 200_000, "it spins at {:?}: {:?}", self.now, self.watch);
        }
    }
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![2 => Just(Mode::Well), 1 => Just(Mode::Silent), 1 => Just(Mode::Lost)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_the_newest_map_that_can_be_had_comes_into_use(
        seed: u64,
        turns in prop::collection::vec((0u32..30_000, 0..SSDS, modes()), 0..15),
        maps in prop::collection::vec(
            (0u32..30_000, prop::array::uniform3(prop::option::weighted(0.8, 0u64..3_000_000_000))), 1..8),
        daemon in prop::collection::vec((0u32..30_000, prop::bool::ANY), 0..4),
        busy in prop::collection::vec((0u32..30_000, prop::bool::weighted(0.8)), 1..6),
        unfit in prop::option::of(2u64..6),
    ) {
        let _deadline = deadline();
        let mut world = World::new(seed, unfit);
        let signs = u32::try_from(turns.len() + maps.len()).expect("few");
        turns.into_iter().for_each(|(at, ssd, mode)| world.at(at * MS, Event::Turns(ssd, mode)));
        maps.into_iter().for_each(|(at, delays)| world.at(at * MS, Event::Next(delays)));
        daemon.into_iter().for_each(|(at, there)| world.at(at * MS, Event::Daemon(there)));
        busy.into_iter().for_each(|(at, busy)| world.at(at * MS, Event::Busy(busy)));
        world.run_until(40_000 * MS);
        // An urgent second for each sign, and one for each newer epoch heard of.
        let most = 400 + 2 * signs * 110 + 100;
        prop_assert!(world.asks <= most, "{} questions", world.asks);
        world.happen(Event::Busy(true));
        (0..SSDS).for_each(|ssd| world.happen(Event::Turns(ssd, Mode::Well)));
        let newest = world.daemon.1;
        (0..SSDS).for_each(|ssd| world.happen(Event::Takes(ssd, newest)));
        world.run_until(42_000 * MS);
        prop_assert!(world.watch.in_use() == newest || unfit == Some(newest));
    }
}

#[test]
fn an_idle_client_asks_nothing_and_a_busy_one_ten_times_a_second() {
    let _deadline = deadline();
    let mut world = World::new(1, None);
    world.run_until(10_000 * MS);
    assert_eq!(world.asks, 0);
    world.happen(Event::Busy(true));
    world.run_until(20_000 * MS);
    assert!((95..=101).contains(&world.asks), "{} questions in ten seconds", world.asks);
}

/// The array needs half a second to drop an SSD; what the client adds to that is small.
#[test]
fn after_the_loss_of_an_ssd_the_next_map_is_in_use_within_some_milliseconds() {
    let _deadline = deadline();
    for seed in 0..50u32 {
        let mut world = World::new(seed.into(), None);
        world.happen(Event::Busy(true));
        world.run_until((1_000 + seed) * MS);
        world.happen(Event::Turns(0, Mode::Lost));
        world.run_until((1_560 + seed) * MS);
        world.happen(Event::Next([None, Some(0), Some(0)]));
        let made = world.now;
        while world.watch.in_use() == 1 {
            let next = world.now + MS;
            world.run_until(next);
        }
        let took = world.now - made;
        assert!(took <= 2 * RHYTHM.urgent + 6 * SOON, "{took:?}");
    }
}

#[test]
fn a_client_that_reaches_no_ssd_asks_the_daemon() {
    let _deadline = deadline();
    let mut world = World::new(3, None);
    world.happen(Event::Busy(true));
    (0..SSDS).for_each(|ssd| world.happen(Event::Turns(ssd, Mode::Lost)));
    world.run_until(5_000 * MS);
    world.happen(Event::Next([None; SSDS]));
    world.run_until(5_000 * MS + 2 * RHYTHM.daemon);
    assert_eq!(world.watch.in_use(), 2);
}
