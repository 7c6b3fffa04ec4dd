// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An operator calls last copies lost.

use crate::bench::{Bench, Outcome, create, create_with, refused};
use crate::deadline::{Deadline, LIMIT};
use crate::replace::swap;
use crate::shrink::{DROP_MS, newest, serving, states};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{Command, LostBlocks, Reply};
use gnstor_fleet::map::FleetView as _;
use gnstor_proto::placement::map3::{Place3, Row3, State3};
use gnstor_proto::status::GrpcCode::FailedPrecondition;

/// Blocks of the volume of one replica. Each SSD has some of them.
const BLOCKS: u64 = 64 * 16;

/// Each SSD has the only copy of some blocks.
pub(crate) fn with_single(ssds: usize) -> Bench {
    let mut bench = serving(ssds);
    let mut single = create_with("single", BLOCKS, None);
    if let Request::Create(create) = &mut single {
        create.replicas = 1;
    }
    bench.ask(single).unwrap();
    bench.run_for(1_000);
    bench
}

fn lost_of(outcome: Outcome) -> Vec<LostBlocks> {
    match outcome {
        Ok(Reply::Lost(lost)) => lost,
        other => panic!("{other:?}"),
    }
}

fn replace(ssd: u16, lose_data: bool) -> Request {
    Request::Replace { ssd, lose_data }
}

fn resume(ssd: u16, lose_data: bool) -> Request {
    Request::Resume { ssd, lose_data }
}

fn note(bench: &Bench, ssd: u16) -> String {
    bench.core.fleet().unwrap().ssds[usize::from(ssd)].away.clone().unwrap()
}

/// Checks that all SSDs take part, each place serves, and a volume can be made.
pub(crate) fn is_whole(bench: &mut Bench, ssds: usize) {
    assert_eq!(states(bench), vec![State3::In; ssds]);
    let map = newest(bench);
    let serves = |place: &Option<Place3>| place.is_some_and(|place| !place.filling);
    let width = usize::from(map.width);
    assert!(map.rows.iter().all(|row| row.places[..width].iter().all(serves)), "{:?}", map.rows);
    bench.ask(create("later")).unwrap();
    bench.array.agreed();
}

#[test]
fn an_empty_ssd_in_the_place_of_an_absent_one_begins_empty_and_the_blocks_are_named() {
    let _deadline = Deadline::after(LIMIT);
    for (ssds, ssd) in [(4, 3), (4, 0), (3, 1)] {
        let mut bench = with_single(ssds);
        let before = newest(&bench);
        bench.lose(ssd);
        bench.run_for(DROP_MS);
        refused(&bench.ask(replace(ssd, true)), FailedPrecondition, &["empty file"]);
        bench.format(ssd.into());
        bench.find(ssd);
        bench.run_for(DROP_MS);
        assert_eq!(states(&bench)[usize::from(ssd)], State3::Absent);
        let seen = note(&bench, ssd);
        assert!(seen.contains("--lose-data") && !seen.contains("single"), "not for each caller: {seen}");
        let words = ["last copy", "1 volumes", "\"single\"", "start it again", "--lose-data"];
        refused(&bench.ask(replace(ssd, false)), FailedPrecondition, &words);
        bench.run_for(5_000);
        assert_eq!(states(&bench)[usize::from(ssd)], State3::Absent, "nothing has changed");

        let lost = lost_of(bench.ask(replace(ssd, true)));
        assert_eq!(lost.len(), 1, "volumes of two replicas lose nothing: {lost:?}");
        let share = BLOCKS / ssds as u64;
        assert!(lost[0].volume == "single" && lost[0].blocks > share / 3 && lost[0].blocks < share * 2);
        bench.run_for(20_000);
        is_whole(&mut bench, ssds);
        let after = newest(&bench);
        assert_eq!(after.ssds[usize::from(ssd)].uuid, bench.array.ssd(ssd.into()).vote.uuid);
        assert_eq!(after.voters().len(), before.voters().len());
        // Until it is up to date the map calls it absent, and its copies fill.
        let log = bench.array.ssd(0).vote.log.clone();
        let log = log.lock().unwrap();
        let uuid = after.ssds[usize::from(ssd)].uuid;
        let named = log.active_from(0).find(|map| map.ssds[usize::from(ssd)].uuid == uuid).unwrap();
        assert_eq!(named.ssds[usize::from(ssd)].state, State3::Absent);
        assert!(!named.voters().contains(ssd), "it has forgotten what the one before it promised");
    }
}

#[test]
fn an_absent_ssd_that_lost_writes_is_used_as_it_is_if_the_operator_says_so() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = with_single(4);
    bench.lose(2);
    bench.run_for(DROP_MS);
    bench.array.ssd(2).lose_writes();
    bench.find(2);
    bench.run_for(5_000);
    assert_eq!(states(&bench)[2], State3::Absent);
    let words = ["lost writes", "last copy", "\"single\"", "--lose-data"];
    refused(&bench.ask(resume(2, false)), FailedPrecondition, &words);
    let lost = lost_of(bench.ask(resume(2, true)));
    assert!(lost.len() == 1 && lost[0].volume == "single", "{lost:?}");
    bench.run_for(20_000);
    is_whole(&mut bench, 4);
}

#[test]
fn where_all_copies_are_lossy_one_ssd_after_the_other_is_taken_back() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(3);
    bench.ask(create_with("pair", BLOCKS, None)).unwrap();
    for ssd in 0..3 {
        bench.lose(ssd);
    }
    bench.run_for(DROP_MS);
    for ssd in 0..3u16 {
        bench.array.ssd(ssd.into()).lose_writes();
        bench.find(ssd);
    }
    bench.run_for(5_000);
    // The first was dropped before the others were lost: its copies are older.
    assert_eq!(states(&bench), [State3::Out, State3::Absent, State3::Absent]);
    refused(&bench.ask(resume(1, false)), FailedPrecondition, &["\"pair\"", "try these first (SSD 2)"]);
    let lost = lost_of(bench.ask(resume(1, true)));
    assert!(lost.iter().any(|lost| lost.volume == "pair" && lost.blocks < BLOCKS), "{lost:?}");
    bench.run_for(5_000);
    assert_eq!(states(&bench)[2], State3::Absent, "it decides in other groups");
    lost_of(bench.ask(resume(2, true)));
    bench.run_for(20_000);
    is_whole(&mut bench, 3);
}

/// The operator gave up what SSD 3 alone had. SSD 1, which has the other copies of some blocks, is lost
/// before the map says so. Its copies are not dropped.
#[test]
fn a_copy_that_was_there_when_the_operator_called_is_waited_for() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = with_single(4);
    bench.ask(create_with("pair", BLOCKS, None)).unwrap();
    swap(&mut bench, 3);
    let pairs = |bench: &Bench| {
        let map = newest(bench);
        let is_pair = |row: &&Row3| {
            let has = |at: usize, ssd: u16| row.places[at].is_some_and(|place| place.ssd == ssd);
            has(0, 3) && has(1, 1)
        };
        map.rows.iter().filter(is_pair).count()
    };
    let both = pairs(&bench);
    assert!(both > 0, "rows of SSDs 3 and 1");
    bench.lose(1);
    let lost = lost_of(bench.ask(replace(3, true)));
    assert!(lost.len() == 1 && lost[0].volume == "single", "{lost:?}");
    bench.run_for(20_000);
    assert_eq!(pairs(&bench), both, "SSD 1 has these blocks");
    assert_eq!(states(&bench)[3], State3::Absent, "it waits");
    bench.find(1);
    bench.run_for(20_000);
    is_whole(&mut bench, 4);
    assert_eq!(newest(&bench).ssds[3].uuid, bench.array.ssd(3).vote.uuid);
}

/// The entries reach it later than all else that it is given. It fills by its table, so no map may give it
/// its places before.
#[test]
fn an_ssd_that_begins_empty_has_all_volumes_before_it_fills() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = with_single(4);
    bench.ask(create_with("pair", BLOCKS, None)).unwrap();
    swap(&mut bench, 3);
    bench.send(replace(3, true));
    let is_late = |command: &Command| matches!(command, Command::Add(_) | Command::Chmod(_));
    for _ in 0..50 {
        while (0..4).filter(|&ssd| bench.execute_but(ssd, is_late)).count() > 0 {}
        bench.pass(100);
    }
    assert_eq!(states(&bench)[3], State3::Absent, "it lacks volumes");
    bench.run_for(20_000);
    is_whole(&mut bench, 4);
}

/// The next daemon starts after each message of the previous one.
#[test]
fn a_daemon_that_ends_in_between_leaves_a_state_from_which_the_next_one_goes_on() {
    let _deadline = Deadline::after(LIMIT);
    for commands in 0..60 {
        let mut bench = with_single(3);
        bench.lose(2);
        bench.run_for(DROP_MS);
        bench.format(2);
        bench.find(2);
        bench.run_for(DROP_MS);
        bench.send(replace(2, true));
        for turn in 0..commands {
            bench.execute(turn % 3);
            if turn % 3 == 2 {
                bench.pass(100);
            }
        }
        let (array, now) = (bench.array.clone(), bench.now);
        let mut bench = Bench::cold(&array, now);
        bench.run_for(20_000);
        let is_named = newest(&bench).ssds[2].uuid == bench.array.ssd(2).vote.uuid;
        if !is_named {
            lost_of(bench.ask(replace(2, true)));
            bench.run_for(20_000);
        }
        is_whole(&mut bench, 3);
    }
}

/// The newcomer is lost before it serves, and restarts: no group is left without an SSD.
#[test]
fn one_that_goes_again_before_it_serves_is_waited_for_and_may_have_counted_up() {
    let _deadline = Deadline::after(LIMIT);
    for commands in 0..40 {
        let mut bench = with_single(4);
        bench.array.ssd(3).fill.takes = 3;
        bench.lose(3);
        bench.run_for(DROP_MS);
        bench.format(3);
        bench.array.ssd(3).fill.takes = 3;
        bench.find(3);
        bench.run_for(DROP_MS);
        lost_of(bench.ask(replace(3, true)));
        for turn in 0..commands {
            bench.execute(turn % 4);
            if turn % 4 == 3 {
                bench.pass(50);
            }
        }
        bench.lose(3);
        bench.run_for(1_000);
        bench.array.ssd(3).restart();
        bench.find(3);
        bench.run_for(20_000);
        if newest(&bench).ssds[3].uuid != bench.array.ssd(3).vote.uuid {
            lost_of(bench.ask(replace(3, true)));
            bench.run_for(20_000);
        }
        is_whole(&mut bench, 4);
    }
}

/// The map that names the newcomer may have been decided. Before the next start the old SSD is put back.
#[test]
fn an_ssd_that_a_start_finds_to_be_another_one_is_looked_at() {
    let _deadline = Deadline::after(LIMIT);
    let mut others = 0;
    for commands in 0..60 {
        let mut bench = with_single(4);
        bench.lose(3);
        bench.run_for(DROP_MS);
        let kept = std::mem::take(&mut *bench.array.ssd(3));
        bench.array.ssd(3).vote = kept.vote.formatted();
        bench.find(3);
        bench.run_for(DROP_MS);
        bench.send(replace(3, true));
        for turn in 0..commands {
            bench.execute(turn % 4);
            if turn % 4 == 3 {
                bench.pass(100);
            }
        }
        *bench.array.ssd(3) = kept;
        bench.array.ssd(3).dead = false;
        let mut bench = Bench::cold(&bench.array.clone(), bench.now);
        bench.run_for(20_000);
        assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
        if newest(&bench).ssds[3].uuid != bench.array.ssd(3).vote.uuid {
            others += 1;
            let seen = note(&bench, 3);
            assert!(seen.contains("has data"), "after {commands} commands: {seen}");
        }
    }
    assert!(others > 0);
}
