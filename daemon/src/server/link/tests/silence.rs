// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Silence of 250 ms, of a link that is watched closely.

use super::*;

/// When the SSD is stopped: what the link took for its longest answer at first is forgotten.
const STOP_AT: u64 = 11_000;

/// A link that is watched closely since time 0.
fn close(sim: &Sim) -> Link {
    let mut link = link(sim, true);
    link.watch_closely(0);
    link
}

/// Looks at these times; the first news and its time.
fn first_news(link: &mut Link, times: impl IntoIterator<Item = u64>) -> Option<(u64, News)> {
    times.into_iter().find_map(|now| news(link, now).map(|news| (now, news)))
}

#[test]
fn an_ssd_that_answers_is_asked_each_100_ms_and_stays() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = close(&sim);
    assert_eq!(first_news(&mut link, 1..10_000), None);
    let asked = sim.keep_alives.load(Ordering::Relaxed);
    assert!((95..=100).contains(&asked), "{asked}");
}

#[test]
fn a_stopped_ssd_is_silent_after_250_ms_and_its_commands_are_given_up() {
    let _deadline = Deadline::after(LIMIT);
    for phase in (0..150).step_by(10) {
        let sim = Sim::default();
        let mut link = close(&sim);
        assert_eq!(first_news(&mut link, 1..STOP_AT + phase), None);
        sim.stopped.store(true, Ordering::Relaxed);
        let stopped = STOP_AT + phase;
        link.give(CommandId(7), deletion(1));
        let mut lost = None;
        for now in stopped..stopped + 300 {
            let (answers, news) = attend(&mut link, now);
            if !news.is_empty() {
                assert!(matches!(&answers[..], [(7, Answer::Lost(_))]), "{answers:?}");
                lost = Some((now, news));
                break;
            }
            assert!(answers.is_empty(), "{answers:?}");
        }
        let (at, news) = lost.expect("it is silent");
        let [News::Lost(why)] = &news[..] else { panic!("{news:?}") };
        assert!(why.contains("within 250ms"), "{why}");
        assert!((stopped + 140..=stopped + 252).contains(&at), "{stopped} {at}");
        // Later commands do not wait, and when it goes on it is back by a connection of its own.
        assert!(matches!(execute(&mut link, at + 1, Command::MapGet), Answer::Lost(_)));
        sim.stopped.store(false, Ordering::Relaxed);
        assert_eq!(first_news(&mut link, at + 2..at + 200), Some((at + 100, News::Found)));
    }
}

#[test]
fn a_pause_of_the_daemon_is_not_the_ssds() {
    let _deadline = Deadline::after(LIMIT);
    for (pause, phase) in (0..260).step_by(5).flat_map(|phase| [(120, phase), (10_000, phase)]) {
        let sim = Sim::default();
        let mut link = close(&sim);
        assert_eq!(first_news(&mut link, 1..STOP_AT), None);
        // Commands sent shortly before the pause are answered, but other threads bring the answers in later.
        sim.stopped.store(true, Ordering::Relaxed);
        let paused = STOP_AT + phase.min(140);
        link.give(CommandId(7), deletion(1));
        assert_eq!(first_news(&mut link, STOP_AT..paused), None);
        let on = paused + pause;
        assert_eq!(first_news(&mut link, on..on + 80), None, "{pause} {phase}");
        sim.stopped.store(false, Ordering::Relaxed);
        let (answers, told) = attend(&mut link, on + 80);
        assert!(matches!(&answers[..], [(7, Answer::Done)]) && told.is_empty(), "{answers:?} {told:?}");
        assert_eq!(first_news(&mut link, on + 81..on + 2_000), None, "{pause} {phase}");
    }
}

#[test]
fn on_a_busy_machine_an_ssd_has_longer_and_a_stopped_one_is_found_all_the_same() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = close(&sim);
    // The thread runs every 60 ms, and answers come after 240 ms.
    for round in 0..50 {
        let at = STOP_AT + round * 300;
        sim.stopped.store(true, Ordering::Relaxed);
        assert_eq!(first_news(&mut link, (at..at + 240).step_by(60)), None, "round {round}");
        sim.stopped.store(false, Ordering::Relaxed);
        assert_eq!(news(&mut link, at + 240), None, "round {round}");
    }
    sim.stopped.store(true, Ordering::Relaxed);
    let stopped = STOP_AT + 50 * 300;
    let (at, lost) = first_news(&mut link, (stopped..stopped + 5_000).step_by(60)).expect("it is silent");
    assert!(matches!(lost, News::Lost(_)) && at <= stopped + 2_000, "{stopped} {at}");
}

/// Ten answers, each after `took` ms.
fn answers_after(link: &mut Link, sim: &Sim, begin: u64, took: u64) -> u64 {
    let round = took + 10;
    for at in (0..10).map(|number| begin + number * round) {
        sim.stopped.store(true, Ordering::Relaxed);
        assert_eq!(first_news(link, at..at + took), None, "{at}");
        sim.stopped.store(false, Ordering::Relaxed);
        assert_eq!(first_news(link, at + took..at + round), None, "{at}");
    }
    begin + 10 * round
}

#[test]
fn an_ssd_whose_answers_took_long_of_late_has_longer_and_not_for_ever() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = close(&sim);
    assert_eq!(first_news(&mut link, 1..STOP_AT), None);
    // The keep-alive is sent within 100 ms, so answers take 100 to 200 ms and more than the usual patience.
    let mut now = answers_after(&mut link, &sim, STOP_AT, 140);
    now = answers_after(&mut link, &sim, now, 220);
    now = answers_after(&mut link, &sim, now, 340);
    sim.stopped.store(true, Ordering::Relaxed);
    let (at, lost) = first_news(&mut link, now..now + 2_000).expect("it is silent");
    assert!(matches!(&lost, News::Lost(why) if why.contains("within")), "{lost:?}");
    assert!((now + 500..=now + 1_101).contains(&at), "{now} {at}");

    // It is back, answers at once, and has no longer than others when that has lasted.
    sim.stopped.store(false, Ordering::Relaxed);
    now = at + STOP_AT;
    assert_eq!(first_news(&mut link, at + 1..now), Some((at + 100, News::Found)));
    assert_eq!(first_news(&mut link, at + 101..now), None);
    sim.stopped.store(true, Ordering::Relaxed);
    let (at, _) = first_news(&mut link, now..now + 2_000).expect("it is silent");
    assert!((now + 140..=now + 252).contains(&at), "{now} {at}");
}

#[test]
fn an_ssd_that_was_just_connected_with_has_half_a_second() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = close(&sim);
    assert_eq!(first_news(&mut link, 1..1_000), None);
    sim.stopped.store(true, Ordering::Relaxed);
    let (at, _) = first_news(&mut link, 1_000..3_000).expect("it is silent");
    assert!((1_490..=1_602).contains(&at), "{at}");
}

#[test]
fn a_daemon_that_was_stopped_does_not_lose_an_ssd_that_is_not_watched_closely() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = link(&sim, true);
    assert_eq!(first_news(&mut link, 1..1_100), None);
    sim.stopped.store(true, Ordering::Relaxed);
    link.give(CommandId(7), deletion(1));
    assert_eq!(first_news(&mut link, 1_100..1_200), None);
    // Other threads bring the answers in later.
    assert_eq!(first_news(&mut link, 60_000..60_500), None);
    sim.stopped.store(false, Ordering::Relaxed);
    let (answers, told) = attend(&mut link, 60_500);
    assert!(matches!(&answers[..], [(7, Answer::Done)]) && told.is_empty(), "{answers:?} {told:?}");
    assert_eq!(first_news(&mut link, 60_501..70_000), None);
}

#[test]
fn a_link_without_voters_keeps_its_patience() {
    let _deadline = Deadline::after(LIMIT);
    let sim = Sim::default();
    let mut link = link(&sim, true);
    assert_eq!(first_news(&mut link, 1..STOP_AT), None);
    sim.stopped.store(true, Ordering::Relaxed);
    let (at, _) = first_news(&mut link, STOP_AT..20_000).expect("it is silent");
    assert!((STOP_AT + 5_000..=STOP_AT + 5_500).contains(&at), "{at}");
}
