// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An empty SSD takes the place of a lost one.

use crate::array::SimSsd;
use crate::bench::{Bench, Outcome, create, read, refused, write};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::{DROP_MS, all_maps_keep, newest, of_replicas, serving, states, three};
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::request::Request;
use gnstor_fleet::map::FleetView;
use gnstor_fleet::set::SsdSet;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::placement::map3::State3;
use gnstor_proto::status::GrpcCode::{FailedPrecondition, Unavailable};

fn set(ssds: &[u16]) -> SsdSet {
    ssds.iter().copied().collect()
}

fn replace(bench: &mut Bench, ssd: u16) -> Outcome {
    bench.ask(Request::Replace { ssd, lose_data: false })
}

/// Loses the SSD, and starts an empty one at its address.
pub(crate) fn swap(bench: &mut Bench, ssd: u16) {
    bench.lose(ssd);
    bench.run_for(DROP_MS);
    bench.format(ssd.into());
    bench.find(ssd);
    bench.run_for(DROP_MS);
}

#[test]
fn an_empty_ssd_gets_the_places_of_the_lost_one_and_a_vote_when_it_takes_part() {
    let _deadline = Deadline::after(LIMIT);
    for (ssds, ssd) in [(4, 3), (4, 0), (3, 1), (5, 4), (5, 2)] {
        let mut bench = serving(ssds);
        let before = newest(&bench);
        bench.ask(create("b")).unwrap();
        swap(&mut bench, ssd);
        bench.run_for(2_000);
        let out = newest(&bench);
        assert_eq!(states(&bench)[usize::from(ssd)], State3::Out, "only an operator replaces it");
        let note = bench.core.fleet().unwrap().ssds[usize::from(ssd)].away.clone().unwrap();
        assert!(note.contains("gnstor fleet replace"), "{note}");
        assert_eq!(replace(&mut bench, ssd), Ok(Reply::Done));
        bench.run_for(10_000);
        let after = newest(&bench);
        let places = |map: &gnstor_proto::placement::map3::FleetMap3| {
            map.rows.iter().map(|row| row.places).collect::<Vec<_>>()
        };
        assert_eq!(states(&bench), vec![State3::In; ssds]);
        assert_eq!(places(&after), places(&before), "it has the places of the other one");
        let index = usize::from(ssd);
        assert_eq!(after.ssds[index].uuid, bench.array.ssd(index).vote.uuid);
        assert_ne!(after.ssds[index].uuid, before.ssds[index].uuid);
        assert_eq!(after.voters().len(), before.voters().len());
        let log = bench.array.ssd(0).vote.log.clone();
        let log = log.lock().unwrap();
        let voted = out.voters().contains(ssd);
        let named = log.active_from(out.epoch + 1).next().unwrap();
        assert!(!named.voters().contains(ssd) && named.ssds[index].uuid == after.ssds[index].uuid);
        assert!(!voted || named.voters().len() == out.voters().len() - 1);
        drop(log);
        assert_eq!(replace(&mut bench, ssd), Ok(Reply::Done), "repeated");
        bench.ask(create("c")).unwrap();
        assert_eq!(bench.array.agreed().len(), 3);
        all_maps_keep(&bench, 2);
        // The array survives the loss of another voter.
        let other = after.voters().iter().find(|&other| other != ssd).unwrap();
        bench.lose(other);
        bench.run_for(DROP_MS + 100);
        assert_eq!(states(&bench)[usize::from(other)], State3::Out);
    }
}

/// The SSD that was replaced is back in its place, and one more voter is missing. What the old one promises
/// is no vote of the SSD that the map names now.
#[test]
fn an_ssd_that_was_replaced_elects_no_daemon() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(3);
    bench.lose(0);
    bench.run_for(DROP_MS);
    let mut replaced = SimSsd::default();
    replaced.vote = bench.array.ssd(0).vote.formatted();
    std::mem::swap(&mut *bench.array.ssd(0), &mut replaced);
    bench.find(0);
    bench.run_for(DROP_MS);
    replace(&mut bench, 0).unwrap();
    bench.run_for(10_000);
    assert_eq!(newest(&bench).voters(), set(&[0, 1, 2]));
    std::mem::swap(&mut *bench.array.ssd(0), &mut replaced);
    bench.array.ssd(0).dead = false;
    bench.array.ssd(1).dead = true;
    let (array, now) = (bench.array.clone(), bench.now);
    let mut bench = Bench::cold(&array, now);
    bench.run_for(20_000);
    assert!(!bench.core.is_serving(), "one of three voters is there");
    bench.array.ssd(1).dead = false;
    bench.run_for(20_000);
    assert!(bench.core.is_serving(), "{:?}", bench.core.waits_for());
}

#[test]
fn without_a_majority_beside_it_no_voter_is_replaced() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(3);
    swap(&mut bench, 1);
    bench.lose(2);
    let epoch = newest(&bench).epoch;
    replace(&mut bench, 1).unwrap();
    bench.run_for(20_000);
    assert_eq!(newest(&bench).epoch, epoch, "the newcomer does not count");
    let waits = bench.core.fleet().unwrap().next.unwrap().1.unwrap();
    assert!(waits.contains("majority of 3 voters"), "{waits}");
    bench.find(2);
    bench.run_for(20_000);
    assert_eq!(states(&bench), vec![State3::In; 3]);
    assert_eq!(newest(&bench).voters(), set(&[0, 1, 2]));
}

#[test]
fn an_ssd_with_data_of_another_array_or_that_is_not_needed_is_refused_with_the_remedy() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    refused(&replace(&mut bench, 3), FailedPrecondition, &["has not dropped it", "gnstor fleet fail"]);
    bench.lose(3);
    bench.run_for(DROP_MS);
    refused(&replace(&mut bench, 3), FailedPrecondition, &["pulled", "empty file", "gnstor ssd --index 3"]);
    bench.find(3);
    bench.run_for(10);
    refused(&replace(&mut bench, 3), FailedPrecondition, &["SSD 3 cannot be replaced"]);
    bench.run_for(10_000);
    assert_eq!(states(&bench), vec![State3::In; 4], "the old one is back");

    // It has volumes.
    bench.lose(3);
    bench.run_for(DROP_MS);
    let table = bench.array.ssd(3).table.clone();
    assert!(!table.is_empty());
    bench.format(3);
    let map = Some(AnyMap::Three(newest(&bench)));
    (bench.array.ssd(3).table, bench.array.ssd(3).map) = (table, map);
    bench.find(3);
    bench.run_for(100);
    refused(&replace(&mut bench, 3), FailedPrecondition, &["has data", "format it"]);

    // It is smaller.
    bench.lose(3);
    bench.format(3);
    bench.array.ssd(3).lacks_bytes = 4096;
    bench.find(3);
    bench.run_for(100);
    refused(&replace(&mut bench, 3), FailedPrecondition, &["smaller", "1073737728 bytes", "1073741824"]);

    // It is of another array.
    bench.lose(3);
    bench.format(3);
    let foreign = gnstor_proto::placement::map3::FleetMap3 { array: [9; 16], ..newest(&bench) };
    bench.array.ssd(3).map = Some(AnyMap::Three(foreign));
    bench.find(3);
    bench.run_for(100);
    refused(&replace(&mut bench, 3), FailedPrecondition, &["another array", "format it"]);

    // It is another one of this array.
    bench.lose(3);
    bench.format(3);
    let twice = bench.array.ssd(1).vote.uuid;
    bench.array.ssd(3).vote.uuid = twice;
    bench.find(3);
    bench.run_for(100);
    refused(&replace(&mut bench, 3), FailedPrecondition, &["it is SSD 1 of this array"]);
    bench.run_for(20_000);
    assert_eq!(states(&bench)[3], State3::Out);
}

/// The daemon does not know the size of the previous SSD.
#[test]
fn a_daemon_that_starts_after_the_loss_gives_no_smaller_ssd_the_place() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.lose(3);
    bench.run_for(DROP_MS);
    bench.format(3);
    bench.array.ssd(3).lacks_bytes = 4096;
    let mut bench = Bench::cold(&bench.array, bench.now);
    bench.run_for(20_000);
    refused(&replace(&mut bench, 3), FailedPrecondition, &["smaller", "1073737728 bytes", "1073741824"]);
}

#[test]
fn an_absent_ssd_that_has_no_block_of_a_volume_alone_is_replaced_without_a_loss() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(of_replicas("single", 1)).unwrap();
    bench.run_for(1_000);
    swap(&mut bench, 3);
    assert_eq!(states(&bench)[3], State3::Absent);
    // The volume of one replica has one chunk, on another SSD.
    assert_eq!(replace(&mut bench, 3), Ok(Reply::Done));
    bench.run_for(10_000);
    assert_eq!(states(&bench), vec![State3::In; 4]);
}

#[test]
fn an_ssd_that_was_taken_out_is_resumed_and_then_replaced() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(write("a", 7, 60_000)).unwrap();
    bench.ask(Request::Fail { ssd: 2, lose_data: false }).unwrap();
    bench.run_for(DROP_MS);
    swap(&mut bench, 2);
    refused(&replace(&mut bench, 2), FailedPrecondition, &["gnstor fleet resume 2"]);
    bench.ask(Request::Resume { ssd: 2, lose_data: false }).unwrap();
    bench.run_for(DROP_MS);
    assert_eq!(replace(&mut bench, 2), Ok(Reply::Done));
    bench.run_for(20_000);
    assert_eq!(states(&bench), vec![State3::In; 4]);
}

/// The next daemon starts after each message of the previous one.
#[test]
fn a_daemon_that_ends_in_between_leaves_a_state_from_which_the_next_one_goes_on() {
    let _deadline = Deadline::after(LIMIT);
    for commands in 0..60 {
        let mut bench = serving(3);
        swap(&mut bench, 2);
        bench.send(Request::Replace { ssd: 2, lose_data: false });
        for turn in 0..commands {
            bench.execute(turn % 3);
            if turn % 3 == 2 {
                bench.pass(100);
            }
        }
        let (array, now) = (bench.array.clone(), bench.now);
        let mut bench = Bench::cold(&array, now);
        bench.run_for(20_000);
        if states(&bench)[2] == State3::Out {
            assert_eq!(replace(&mut bench, 2), Ok(Reply::Done), "after {commands} commands");
            bench.run_for(20_000);
        }
        assert_eq!(states(&bench), vec![State3::In; 3], "after {commands} commands");
        assert_eq!(newest(&bench).voters(), set(&[0, 1, 2]), "after {commands} commands");
    }
}

/// The map calls an SSD out, and another one is there in its place. The members have lost writes.
#[test]
fn a_start_does_not_wait_for_an_ssd_that_is_out() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(3);
    swap(&mut bench, 2);
    assert_eq!(states(&bench)[2], State3::Out);
    (0..2).for_each(|ssd| bench.array.ssd(ssd).lose_writes());
    let mut bench = Bench::cold(&bench.array.clone(), bench.now);
    bench.run_for(20_000);
    assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
    assert_eq!(states(&bench), [State3::Absent, State3::Absent, State3::Out]);
    assert_eq!(bench.list().len(), 1);
}

/// The table that is right may be that of the member that is missing.
#[test]
fn a_start_that_waits_for_a_member_says_which_one_and_what_to_do() {
    let _deadline = Deadline::after(LIMIT);
    let bench = serving(3);
    (0..2).for_each(|ssd| bench.array.ssd(ssd).lose_writes());
    let kept = std::mem::take(&mut *bench.array.ssd(2));
    bench.array.ssd(2).vote = kept.vote.formatted();
    let mut bench = Bench::cold(&bench.array.clone(), bench.now);
    bench.run_for(20_000);
    assert!(!bench.core.is_serving() && bench.stopped.is_none());
    let waits = bench.core.waits_for().unwrap();
    for words in ["SSD 0, 1 lost writes", "start SSD 2 again", "in the place of SSD 2 is another one"] {
        assert!(waits.contains(words), "{words:?} is not in {waits:?}");
    }
    *bench.array.ssd(2) = kept;
    bench.run_for(20_000);
    assert!(bench.core.is_serving(), "{:?}", bench.core.waits_for());
    assert_eq!(bench.list().len(), 1);
}

/// The daemon does not ask SSD 2, which is no member. So an open for reading that this SSD alone could have
/// taken is on no SSD.
#[test]
fn an_open_for_reading_fails_if_only_an_ssd_in_the_place_of_another_one_is_there() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(3);
    bench.lose(2);
    bench.format(2);
    bench.find(2);
    bench.run_until_quiet();
    (0..2).for_each(|ssd| bench.lose(ssd));
    bench.run_until_quiet();
    refused(&bench.ask(read("a", 7)), Unavailable, &["failed on SSD 0", "was undone"]);
}

/// SSD 0 is lost before it grants the term, and another SSD is in the place of SSD 1.
#[test]
fn the_right_ssd_that_is_put_back_while_a_start_lacks_a_majority_is_asked() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(3);
    // A map of its term: the next daemon is granted the first term that it asks for.
    bench.lose(2);
    bench.run_for(1_000);
    bench.find(2);
    bench.run_for(5_000);
    let kept = std::mem::take(&mut *bench.array.ssd(1));
    bench.array.ssd(1).vote = kept.vote.formatted();
    let mut bench = Bench::cold_with(&bench.array.clone(), bench.now, three());
    for _step in ["the maps", "who they are"] {
        (0..3).for_each(|ssd| assert!(bench.execute(ssd)));
    }
    bench.lose(0);
    bench.run_for(5_000);
    assert!(!bench.core.is_serving(), "one of three voters");
    bench.lose(1);
    *bench.array.ssd(1) = kept;
    bench.find(1);
    bench.run_for(20_000);
    assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
    assert_eq!(bench.list().len(), 1);
}
