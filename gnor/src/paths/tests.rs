// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random schedules in virtual time: SSDs die, fall silent, refuse and come back, and the client's process
//! stands still.

use super::*;
use gnstor_base::testing::deadline;
use gnstor_proto::placement::mix64;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SSDS: usize = 3;
const PACE: Pace = Pace {
    heartbeat: Duration::from_secs(1),
    silence: Duration::from_secs(5),
    rest: Duration::from_millis(100),
    most_rest: Duration::from_secs(1),
    stood_still: Duration::from_secs(1),
};
/// A dial to a silent SSD ends after this.
const DIAL: Duration = Duration::from_secs(5);
/// An SSD that is well answers within this, and a broken connection is noticed within this.
const SOON: Duration = Duration::from_millis(60);
const MS: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Well,
    /// The SSD takes what is sent and answers nothing, until it works again.
    Silent,
    Dead,
    Refuses,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Turns(usize, Mode),
    DialEnds(usize, bool),
    Answers(usize, u64),
    Breaks(usize, u64),
    /// A host call uses the paths that were found, and replaces those in use.
    Call,
}

/// One SSD, and the client's state for it.
#[derive(Clone, Copy)]
struct Ssd {
    mode: Mode,
    since: Moment,
    /// Number of the path; 0 without one.
    path: u64,
    dialling: bool,
    asked: bool,
    /// Time of the last failed dial.
    failed: Option<Moment>,
}

struct World {
    paths: Paths,
    ssds: [Ssd; SSDS],
    events: BTreeMap<(Moment, u64), Event>,
    now: Moment,
    /// The last time the process stood still.
    still: Moment,
    /// The process stands still for this time, which is too short to be noticed.
    unnoticed: Duration,
    drawn: u64,
    seed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let ssd = Ssd {
            mode: Mode::Well,
            since: Moment::ZERO,
            path: 0,
            dialling: false,
            asked: false,
            failed: None,
        };
        let (paths, events) = (Paths::new(SSDS, SSDS, PACE, true), BTreeMap::new());
        let (now, still, unnoticed) = (Moment::ZERO, Moment::ZERO, Duration::ZERO);
        Self { paths, ssds: [ssd; SSDS], events, now, still, unnoticed, drawn: 0, seed }
    }

    fn number(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    /// A moment within `most` from now.
    fn within(&mut self, most: Duration) -> Moment {
        let number = self.number();
        let most = u64::try_from(most.as_nanos()).expect("some seconds");
        self.now + Duration::from_nanos(mix64(self.seed ^ number << 32) % most)
    }

    fn at(&mut self, moment: Moment, event: Event) {
        let number = self.number();
        self.events.insert((moment, number), event);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Dial(ssd) => {
                let one = self.ssds[ssd];
                assert!(!one.dialling && one.path == 0, "SSD {ssd} is dialled twice");
                assert!(one.failed.is_none_or(|at| self.now >= at + PACE.rest), "SSD {ssd}: no rest");
                self.ssds[ssd].dialling = true;
                let ends = match one.mode {
                    Mode::Silent => self.now + DIAL,
                    Mode::Well | Mode::Dead | Mode::Refuses => self.within(SOON),
                };
                self.at(ends, Event::DialEnds(ssd, one.mode == Mode::Refuses));
            }
            Action::Ask(ssd) => {
                let one = &mut self.ssds[ssd];
                assert!(one.path != 0 && !one.asked, "SSD {ssd} is asked without a path, or twice");
                one.asked = true;
                let (mode, path) = (one.mode, one.path);
                if mode == Mode::Well {
                    let answer = self.within(SOON);
                    self.at(answer, Event::Answers(ssd, path));
                }
            }
            Action::Cut(ssd) => {
                let one = self.ssds[ssd];
                let newly = self.now.saturating_sub(one.since) <= SOON + self.unnoticed;
                assert!(one.mode != Mode::Well || newly, "SSD {ssd} answers and is given up");
                self.ssds[ssd] = Ssd { path: 0, asked: false, failed: None, ..one };
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turns(ssd, mode) => {
                let was = self.ssds[ssd];
                self.ssds[ssd] = Ssd { mode, since: self.now, ..was };
                match mode {
                    // Requests that were sent meanwhile are answered now.
                    Mode::Well if was.asked => {
                        let answer = self.within(SOON);
                        self.at(answer, Event::Answers(ssd, was.path));
                    }
                    Mode::Dead if was.path != 0 => {
                        let noticed = self.within(SOON);
                        self.at(noticed, Event::Breaks(ssd, was.path));
                    }
                    Mode::Well | Mode::Silent | Mode::Dead | Mode::Refuses => {}
                }
            }
            Event::DialEnds(ssd, refused) => {
                self.ssds[ssd].dialling = false;
                if self.ssds[ssd].mode == Mode::Well {
                    let path = self.number();
                    self.ssds[ssd] = Ssd { path, asked: false, failed: None, ..self.ssds[ssd] };
                    self.paths.reached(self.now, ssd);
                } else {
                    self.ssds[ssd].failed = Some(self.now);
                    self.paths.unreached(self.now, ssd, "it is not well".into(), refused);
                }
            }
            Event::Answers(ssd, path) if self.ssds[ssd].path == path && self.ssds[ssd].asked => {
                self.ssds[ssd].asked = false;
                self.paths.alive(self.now, ssd);
            }
            Event::Breaks(ssd, path) if self.ssds[ssd].path == path => {
                self.ssds[ssd] = Ssd { path: 0, asked: false, failed: None, ..self.ssds[ssd] };
                assert!(self.paths.broke(self.now, ssd, "it broke"));
            }
            Event::Answers(..) | Event::Breaks(..) => {}
            Event::Call => (0..SSDS).for_each(|ssd| self.call(ssd)),
        }
    }

    fn call(&mut self, ssd: usize) {
        if self.paths.is_up(ssd) && self.ssds[ssd].mode == Mode::Well {
            let path = self.number();
            self.ssds[ssd] = Ssd { path, asked: false, ..self.ssds[ssd] };
            self.paths.replaced(self.now, ssd);
        }
        self.paths.take(ssd);
    }

    /// Checks the invariants.
    fn check(&self) {
        for (ssd, one) in self.ssds.iter().enumerate() {
            let linked = self.paths.is_up(ssd) || self.paths.is_found(ssd);
            assert_eq!(linked, one.path != 0, "SSD {ssd}");
            assert_eq!(self.paths.is_up(ssd), self.paths.missing().all(|(missing, _)| missing != ssd));
            let so_long = self.now.saturating_sub(one.since.max(self.still));
            match one.mode {
                Mode::Well => {
                    let late = so_long > DIAL + PACE.most_rest + 2 * SOON;
                    assert!(linked || !late, "SSD {ssd} is back for {so_long:?} and not found");
                }
                Mode::Silent | Mode::Dead => {
                    let late = so_long > PACE.heartbeat + PACE.silence + SOON;
                    assert!(!linked || !late, "SSD {ssd} is {:?} for {so_long:?} and up", one.mode);
                }
                Mode::Refuses => {}
            }
        }
    }

    /// Runs until `end`; steps when the machine wants to, and sometimes earlier.
    fn run_until(&mut self, end: Moment) {
        let mut steps = 0;
        while self.now < end {
            let wakes = self.paths.wakes_at();
            let next = self.events.first_key_value().map(|(&(moment, _), _)| moment);
            let to = wakes.into_iter().chain(next).min().unwrap_or(end).min(end).max(self.now);
            let is_due = wakes == Some(to);
            self.now = to;
            while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let event = entry.remove();
                self.happen(event);
            }
            // While an answer is awaited it steps only to see that time goes on.
            let awaits = self.ssds.iter().any(|one| one.asked);
            let asked_for = is_due && !awaits && self.paths.wakes_at() == Some(to);
            let actions = self.paths.step(self.now);
            assert!(!asked_for || !actions.is_empty(), "a step that it asked for does nothing");
            actions.into_iter().for_each(|action| self.act(action));
            self.check();
            steps += 1;
            assert!(steps < 100_000, "it spins");
        }
    }

    /// The process stands still. It sees what happens meanwhile after its first step.
    fn stand_still(&mut self, pause: Duration) {
        self.now += pause;
        self.still = self.now;
        self.unnoticed = if pause < PACE.stood_still { pause } else { Duration::ZERO };
        let actions = self.paths.step(self.now);
        actions.into_iter().for_each(|action| self.act(action));
        self.unnoticed = Duration::ZERO;
    }
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Well),
        1 => Just(Mode::Silent),
        1 => Just(Mode::Dead),
        1 => Just(Mode::Refuses)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_ssds_that_are_well_are_found_and_others_given_up(
        seed: u64,
        faults in prop::collection::vec((0..30_000 * MS, 0..SSDS, modes()), 0..20),
        calls in prop::collection::vec(0..40_000 * MS, 0..20),
        pauses in prop::collection::vec((1..12_000 * MS, 1100..20_000 * MS), 0..3),
    ) {
        let mut world = World::new(seed);
        for (moment, ssd, mode) in faults {
            world.at(Duration::from_nanos(moment), Event::Turns(ssd, mode));
        }
        calls.into_iter().for_each(|moment| world.at(Duration::from_nanos(moment), Event::Call));
        for (run, pause) in pauses {
            let to = world.now + Duration::from_nanos(run);
            world.run_until(to);
            world.stand_still(Duration::from_nanos(pause));
        }
        let end = world.now + Duration::from_secs(60);
        world.run_until(end);
        let all: Vec<_> = (0..SSDS).map(|ssd| (world.now, Event::Turns(ssd, Mode::Well))).collect();
        all.into_iter().for_each(|(moment, event)| world.at(moment, event));
        world.run_until(end + Duration::from_secs(10));
        world.happen(Event::Call);
        prop_assert_eq!(world.paths.missing().count(), 0);
    }
}

#[test]
fn an_ssd_that_refuses_is_hopeless_only_while_no_other_may_come() {
    let _deadline = deadline();
    let (mut paths, now) = (Paths::new(2, 2, PACE, true), Moment::ZERO);
    assert_eq!(paths.step(now), [Action::Dial(0), Action::Dial(1)]);
    paths.unreached(now, 0, "no proof".into(), true);
    assert!(paths.hopeless().is_none(), "the other may come");
    paths.unreached(now, 1, "nothing listens".into(), false);
    assert!(paths.hopeless().is_none(), "the other is dialled again");
    let later = now + PACE.rest;
    assert_eq!(paths.step(later), [Action::Dial(0), Action::Dial(1)]);
    paths.reached(later, 1);
    paths.unreached(later, 0, "no proof".into(), true);
    assert!(paths.hopeless().is_none() && paths.is_found(1), "one is there and not in use");
    paths.take(1);
    assert_eq!((paths.hopeless(), paths.is_up(1)), (Some("no proof"), true));
    assert_eq!(paths.missing().collect::<Vec<_>>(), [(0, "no proof")]);
    // It is dialled again, each time after twice the rest of the time before, up to the longest.
    let (mut failed, mut rest) = (later, 2 * PACE.rest);
    for _ in 0..6 {
        let mut is_dialled = |after: Duration| paths.step(failed + after).contains(&Action::Dial(0));
        assert!(!is_dialled(rest - Duration::from_millis(1)), "before {rest:?}");
        assert!(is_dialled(rest), "after {rest:?}");
        failed += rest;
        paths.unreached(failed, 0, "no proof".into(), true);
        rest = PACE.most_rest.min(2 * rest);
    }
    assert_eq!(rest, PACE.most_rest);
}

#[test]
fn within_one_process_a_lost_ssd_stays_lost() {
    let _deadline = deadline();
    let (mut paths, now) = (Paths::new(1, 1, PACE, false), Moment::ZERO);
    assert_eq!(paths.step(now), [Action::Dial(0)]);
    paths.reached(now, 0);
    paths.take(0);
    assert!(paths.broke(now, 0, "pulled") && !paths.broke(now, 0, "pulled again"));
    assert_eq!((paths.wakes_at(), paths.hopeless()), (None, Some("pulled")));
}

#[test]
fn an_ssd_that_joins_is_dialled_from_then_on_and_is_missed_by_none_before() {
    let _deadline = deadline();
    let mut paths = Paths::new(1, 3, PACE, true);
    let ms = Duration::from_millis;
    assert_eq!(paths.step(ms(0)), [Action::Dial(0)]);
    paths.reached(ms(0), 0);
    paths.take(0);
    assert_eq!((paths.len(), paths.missing().count(), paths.hopeless()), (3, 0, None));
    assert!(paths.is_vacant(1) && !paths.broke(ms(1), 1, "it is none"));
    paths.occupy(ms(2), 1);
    paths.occupy(ms(2), 7);
    assert_eq!(paths.missing().map(|(ssd, _)| ssd).collect::<Vec<_>>(), [1]);
    assert_eq!(paths.wakes_at(), Some(ms(2)));
    assert_eq!(paths.step(ms(2)), [Action::Dial(1)]);
    paths.unreached(ms(3), 1, "it starts".into(), false);
    paths.occupy(ms(3), 1);
    let again = paths.wakes_at().expect("it is tried again");
    assert!(again > ms(3), "at its own time");
    assert!(paths.step(again).contains(&Action::Dial(1)));
    paths.reached(again, 1);
    assert!(paths.is_found(1) && paths.is_vacant(2));
}

#[test]
fn an_ssd_that_moves_is_dialled_at_once_and_its_rests_begin_anew() {
    let _deadline = deadline();
    let mut paths = Paths::new(1, 2, PACE, true);
    let ms = Duration::from_millis;
    for now in [0, 100, 300] {
        assert_eq!(paths.step(ms(now)), [Action::Dial(0)]);
        paths.unreached(ms(now), 0, "nothing listens".into(), false);
    }
    assert_eq!(paths.step(ms(400)), []);
    paths.moved(ms(400), 0);
    paths.moved(ms(400), 1);
    assert_eq!((paths.wakes_at(), paths.step(ms(400))), (Some(ms(400)), vec![Action::Dial(0)]));
    paths.moved(ms(410), 0);
    paths.unreached(ms(420), 0, "that was the old address".into(), false);
    assert_eq!((paths.wakes_at(), paths.is_vacant(1)), (Some(ms(420) + PACE.rest), true));
}
