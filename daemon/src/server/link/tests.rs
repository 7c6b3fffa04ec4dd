// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One SSD's link in virtual time.

mod silence;

use super::*;
use crate::deadline::{Deadline, LIMIT};
use gnstor_fabric::admin::Capsule;
use gnstor_proto::log_page::FlashPage;
use gnstor_proto::nvme::{Cqe, admin::KEEP_ALIVE};
use gnstor_proto::slba::Vid;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const DEADLINE: Duration = Duration::from_secs(5);

/// An SSD that is there or not, and counts how often it was connected with.
#[derive(Clone, Default)]
struct Sim {
    gone: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
    tries: Arc<AtomicU32>,
    keep_alives: Arc<AtomicU32>,
    /// Commands are not completed.
    slow: Arc<AtomicBool>,
    /// The SSD's process is stopped: no completions come for now.
    stopped: Arc<AtomicBool>,
    filling: Arc<AtomicBool>,
    damaged: Arc<AtomicBool>,
}

struct SimQueue {
    sim: Sim,
    broken: bool,
    done: Arc<Mutex<VecDeque<Cqe>>>,
}

impl SimQueue {
    fn new(sim: &Sim) -> Self {
        Self { sim: sim.clone(), broken: false, done: Arc::default() }
    }

    fn works(&mut self) -> Result<(), ChannelError> {
        assert!(!self.sim.panics.load(Ordering::Relaxed), "as it was told to");
        // Like a real one: what broke once stays broken.
        self.broken |= self.sim.gone.load(Ordering::Relaxed);
        if self.broken { Err(broken()) } else { Ok(()) }
    }
}

impl AdminQueue for SimQueue {
    fn send(&mut self, capsule: &Capsule) -> Result<(), ChannelError> {
        self.works()?;
        let is_probe = capsule.sqe.opcode == KEEP_ALIVE;
        self.sim.keep_alives.fetch_add(is_probe.into(), Ordering::Relaxed);
        if is_probe || !self.sim.slow.load(Ordering::Relaxed) {
            self.done.lock().unwrap().push_back(Cqe { cid: capsule.sqe.cid, ..Cqe::default() });
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Cqe>, ChannelError> {
        self.works()?;
        if self.sim.stopped.load(Ordering::Relaxed) {
            return Ok(None);
        }
        Ok(self.done.lock().unwrap().pop_front())
    }

    fn read(&mut self, _: usize, data: &mut [u8]) {
        data.fill(0);
        if data.len() == size_of::<FlashPage>() {
            let filling = u8::from(self.sim.filling.load(Ordering::Relaxed));
            let damaged = u8::from(self.sim.damaged.load(Ordering::Relaxed));
            data[..8].copy_from_slice(&[b'G', b'N', b'L', b'F', 1, 0, filling | damaged << 1, 0]);
        }
    }

    fn give_up(&mut self, _: &ChannelError) {
        self.broken = true;
    }
}

fn filling(is_filling: bool) -> News {
    News::Condition(Condition { is_filling, is_damaged: false })
}

fn broken() -> ChannelError {
    ChannelError::Broken { peer: "SSD 0".into(), cause: "pulled".into() }
}

fn port(sim: &Sim, lasts: bool) -> SsdPort {
    let again = sim.clone();
    let reconnect: Reconnect = Box::new(move || {
        again.tries.fetch_add(1, Ordering::Relaxed);
        if again.gone.load(Ordering::Relaxed) {
            let cause = "no SSD listens there".into();
            return Err(ChannelError::Refused { peer: "SSD 0".into(), cause });
        }
        Ok(Box::new(SimQueue::new(&again)))
    });
    SsdPort {
        index: 0,
        subnqn: "SSD 0".into(),
        transport: String::new(),
        address: String::new(),
        capacity_bytes: 0,
        model: String::new(),
        queue: Box::new(SimQueue::new(sim)),
        reconnect: lasts.then_some(reconnect),
    }
}

fn link(sim: &Sim, lasts: bool) -> Link {
    let mut link = Link::new(port(sim, lasts), DEADLINE, 0);
    // It has asked whether the SSD is filling.
    assert_eq!(link.wakes_at(), Some(0));
    let first = sim.filling.load(Ordering::Relaxed).then_some(filling(true));
    assert_eq!(news(&mut link, 0), first);
    link
}

/// Steps the link and dials if it asks for that. Returns the link's messages to the core.
fn attend(link: &mut Link, now: u64) -> (Vec<(u64, Answer)>, Vec<News>) {
    link.attend(now);
    // Commands that were sent complete at once.
    link.attend(now);
    let (mut answers, mut news) = (Vec::new(), Vec::new());
    while let Some(output) = link.pop() {
        match output {
            Output::Answer(id, answer) => answers.push((id.0, answer)),
            Output::News(told) => news.push(told),
            Output::Keep(..) => panic!("this link compares no numbers"),
            Output::Dial(mut reconnect) => {
                let outcome = reconnect();
                link.dialled(now, reconnect, outcome);
            }
        }
    }
    (answers, news)
}

fn news(link: &mut Link, now: u64) -> Option<News> {
    let (answers, mut news) = attend(link, now);
    assert!(answers.is_empty() && news.len() < 2, "{answers:?} {news:?}");
    news.pop()
}

fn execute(link: &mut Link, now: u64, command: Command) -> Answer {
    link.give(CommandId(now), command);
    let (mut answers, _) = attend(link, now);
    assert_eq!(answers.len(), 1, "{answers:?}");
    let (id, answer) = answers.pop().unwrap();
    assert_eq!(id, now);
    answer
}

fn deletion(vid: u16) -> Command {
    Command::Delete { vid: Vid::new(vid).unwrap(), generation: 1, version: 1, term: 1 }
}

/// An SSD takes a host that is silent for two minutes for dead, also one of its own process.
#[test]
fn a_connection_that_cannot_be_made_again_is_kept_alive() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = link(&sim, false);
    let (mut now, mut count) = (0, 0);
    while now < 600_000 {
        let at = link.wakes_at().expect("it wakes for the next Keep Alive");
        assert!(at <= now + 60_000, "silence from {now} to {at}");
        now = at;
        assert_eq!(news(&mut link, now), None);
        count = sim.keep_alives.load(Ordering::Relaxed);
    }
    assert!((10..=30).contains(&count), "{count} in ten minutes");
}

/// An SSD counts Keep Alives alone. One that answers other commands all the time hears them, too.
#[test]
fn a_connection_at_work_is_kept_alive() {
    let _deadline = Deadline::after(LIMIT);
    for (lasts, most_ms) in [(false, 60_000), (true, 7_000)] {
        let sim = Sim::default();
        let mut link = link(&sim, lasts);
        let (mut count, mut last) = (0, 0);
        for now in (200..300_000).step_by(200) {
            assert!(matches!(execute(&mut link, now, Command::MapGet), Answer::Map(_)));
            let told = sim.keep_alives.load(Ordering::Relaxed);
            if told > count {
                (count, last) = (told, now);
            }
            assert!(now - last <= most_ms, "none from {last} to {now}");
        }
    }
}

#[test]
fn a_silent_connection_is_probed_and_a_broken_one_made_anew_with_growing_waits() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = link(&sim, true);
    for probes in 0..3 {
        let at = link.wakes_at().unwrap();
        assert_eq!(news(&mut link, at - 1), None);
        assert_eq!(sim.keep_alives.load(Ordering::Relaxed), probes);
        assert_eq!(news(&mut link, at), None, "it is there");
    }
    assert_eq!(link.wakes_at(), Some(2_000));
    sim.gone.store(true, Ordering::Relaxed);
    let mut now = 2_000;
    assert!(matches!(news(&mut link, now), Some(News::Lost(why)) if why.contains("pulled")));
    let mut waits = Vec::new();
    for round in 0..7 {
        let at = link.wakes_at().unwrap();
        waits.push(at - now);
        now = at;
        let news = news(&mut link, now);
        assert_eq!(news.is_some(), round == 0, "the same reason is told once: {news:?}");
    }
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
    sim.gone.store(false, Ordering::Relaxed);
    assert_eq!(news(&mut link, now + 1_999), None);
    assert_eq!(news(&mut link, now + 2_000), Some(News::Found));
    assert_eq!((news(&mut link, now + 2_001), sim.tries.load(Ordering::Relaxed)), (None, 8));
    assert_eq!(execute(&mut link, now + 2_002, deletion(1)), Answer::Done);
}

#[test]
fn a_link_that_is_to_be_dialled_says_nothing_before_a_try_has_failed() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    sim.gone.store(true, Ordering::Relaxed);
    let mut link = Link::to_be_dialled(port(&sim, true), DEADLINE, 7);
    let lost = execute(&mut link, 7, Command::MapGet);
    assert!(matches!(lost, Answer::Lost(why) if why.contains("it is being connected")));
    assert_eq!((sim.tries.load(Ordering::Relaxed), link.wakes_at()), (1, Some(7 + 2 * RETRY_MS)));
    let mut link = Link::to_be_dialled(port(&sim, true), DEADLINE, 7);
    let why = news(&mut link, 7);
    assert!(matches!(&why, Some(News::Lost(why)) if why.contains("no SSD listens there")), "{why:?}");
    sim.gone.store(false, Ordering::Relaxed);
    assert_eq!(news(&mut link, 8), None, "the next try has its time");
    assert_eq!(news(&mut link, 7 + 2 * RETRY_MS), Some(News::Found));
}

#[test]
fn while_it_is_dialled_it_is_not_dialled_again() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = link(&sim, true);
    sim.gone.store(true, Ordering::Relaxed);
    link.attend(1);
    link.attend(101);
    let outputs: Vec<_> = std::iter::from_fn(|| link.pop()).collect();
    let [Output::News(News::Lost(_)), Output::Dial(_)] = &outputs[..] else {
        panic!("{} outputs", outputs.len())
    };
    link.attend(10_000);
    assert!(link.pop().is_none() && link.wakes_at().is_none());
    assert!(matches!(execute(&mut link, 10_001, Command::MapGet), Answer::Lost(_)));
}

#[test]
fn commands_to_an_ssd_that_is_down_are_answered_at_once_and_never_sent() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = link(&sim, true);
    assert!(matches!(execute(&mut link, 10, Command::MapGet), Answer::Map(None)));
    sim.gone.store(true, Ordering::Relaxed);
    link.give(CommandId(20), Command::MapGet);
    let (answers, news) = attend(&mut link, 20);
    assert!(matches!(&answers[..], [(20, Answer::Lost(_))]), "{answers:?}");
    assert!(matches!(&news[..], [News::Lost(_)]), "{news:?}");
    let Answer::Lost(why) = execute(&mut link, 30, Command::MapGet) else { panic!("it is down") };
    assert!(why.contains("it is down") && why.contains("pulled"), "{why}");
    assert_eq!(sim.tries.load(Ordering::Relaxed), 0);
}

#[test]
fn a_connection_that_breaks_loses_all_commands_in_flight_once() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = link(&sim, true);
    sim.slow.store(true, Ordering::Relaxed);
    (1..=20).for_each(|vid| link.give(CommandId(vid.into()), deletion(vid)));
    assert_eq!(attend(&mut link, 10), (vec![], vec![]));
    sim.gone.store(true, Ordering::Relaxed);
    let (answers, news) = attend(&mut link, 20);
    let is_lost = |(_, answer): &(u64, Answer)| matches!(answer, Answer::Lost(why) if why.contains("pulled"));
    assert!(answers.iter().all(is_lost), "{answers:?}");
    let ids: BTreeSet<u64> = answers.iter().map(|(id, _)| *id).collect();
    assert_eq!((answers.len(), ids), (20, (1..=20).collect()));
    assert!(matches!(&news[..], [News::Lost(_)]), "{news:?}");
}

#[test]
fn keep_alives_go_on_while_commands_wait_and_a_late_command_does_not_end_the_link() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = link(&sim, true);
    sim.slow.store(true, Ordering::Relaxed);
    (1..=30).for_each(|vid| link.give(CommandId(vid.into()), deletion(vid)));
    for now in (0..5_000).step_by(100) {
        assert_eq!(attend(&mut link, now), (vec![], vec![]), "{now}");
    }
    assert_eq!(sim.keep_alives.load(Ordering::Relaxed), 9, "one every 500 ms");
    let (answers, news) = attend(&mut link, 5_000);
    assert!(matches!(&answers[..], [(1, Answer::Lost(_))]), "the first is late: {answers:?}");
    assert!(news.is_empty(), "it still answers probes");
    for now in (5_100..10_000).step_by(100) {
        assert_eq!(attend(&mut link, now), (vec![], vec![]), "{now}");
    }
    let (answers, news) = attend(&mut link, 10_000);
    assert_eq!((answers.len(), news.len()), (29, 1), "at its second deadline all are given up");
}

#[test]
fn a_queue_that_panics_leaves_no_command_without_its_answer() {
    let _deadline = Deadline::after(LIMIT);
    for lasts in [false, true] {
        let sim = Sim::default();
        let mut link = link(&sim, lasts);
        sim.slow.store(true, Ordering::Relaxed);
        (1..=20).for_each(|vid| link.give(CommandId(vid.into()), deletion(vid)));
        assert_eq!(attend(&mut link, 10), (vec![], vec![]));
        sim.panics.store(true, Ordering::Relaxed);
        let attended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| link.attend(20)));
        assert!(attended.is_err());
        link.panicked(20);
        sim.panics.store(false, Ordering::Relaxed);
        let (answers, news) = attend(&mut link, 30);
        assert_eq!((answers.len(), news.len()), (20, usize::from(lasts)));
        let says =
            |(_, answer): &(u64, Answer)| matches!(answer, Answer::Lost(why) if why.contains("panicked"));
        assert!(answers.iter().all(says), "{answers:?}");
    }
}

#[test]
fn without_a_way_back_there_is_nothing_to_attend_to() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = link(&sim, false);
    assert_eq!(link.wakes_at(), Some(KEEP_MS));
    sim.gone.store(true, Ordering::Relaxed);
    for now in [0, 1_000] {
        let Answer::Lost(why) = execute(&mut link, now, Command::MapGet) else { panic!("it is gone") };
        assert!(why.contains("pulled"), "{why}");
    }
    assert_eq!((link.wakes_at(), news(&mut link, 1_000_000)), (None, None));
}

/// A link whose SSD was lost at 500 ms and found again at 600 ms, in this condition.
fn returned(sim: &Sim, condition: impl Fn(&Sim) -> &AtomicBool) -> Link {
    let mut link = link(sim, true);
    sim.gone.store(true, Ordering::Relaxed);
    assert!(matches!(news(&mut link, 500), Some(News::Lost(_))));
    sim.gone.store(false, Ordering::Relaxed);
    condition(sim).store(true, Ordering::Relaxed);
    assert_eq!(news(&mut link, 600), Some(News::Found));
    link
}

#[test]
fn an_ssd_says_that_it_is_filling_at_the_start_and_after_its_return_and_until_it_ends() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = returned(&sim, |sim| &sim.filling);
    assert_eq!(news(&mut link, 601), Some(filling(true)));
    let told: Vec<_> = (602..4_000).filter_map(|now| news(&mut link, now)).collect();
    assert_eq!(told, [], "once");
    sim.filling.store(false, Ordering::Relaxed);
    let told: Vec<_> = (4_000..6_100).filter_map(|now| news(&mut link, now)).collect();
    assert_eq!(told, [filling(false)]);
    // An SSD without a way back is asked, too, and then let alone.
    sim.filling.store(true, Ordering::Relaxed);
    let mut link = self::link(&sim, false);
    sim.filling.store(false, Ordering::Relaxed);
    let at = link.wakes_at().unwrap();
    assert_eq!(news(&mut link, at), Some(filling(false)));
    assert_eq!(link.wakes_at(), Some(KEEP_MS));
}

#[test]
fn an_ssd_that_could_not_read_its_metadata_says_so_at_its_start_and_once() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = returned(&sim, |sim| &sim.damaged);
    let damaged = Condition { is_filling: false, is_damaged: true };
    assert_eq!(news(&mut link, 601), Some(News::Condition(damaged)));
    let told: Vec<_> = (602..9_000).filter_map(|now| news(&mut link, now)).collect();
    assert_eq!(told, [], "once");
}
