// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD that a map dropped is given its places again, and serves when it has filled them.

use crate::array::SimArray;
use crate::bench::{Bench, create, create_with, delete, opened, read, release, renew, write};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::{DROP_MS, all_maps_keep, newest, of_replicas, serving, states};
use gnstor_daemon::core::request::Request;
use gnstor_proto::placement::map3::{Place3, State3};

fn filling(bench: &Bench, ssd: u16) -> (usize, usize) {
    let map = newest(bench);
    let of = |filling| {
        let place = Some(Place3 { ssd, filling });
        map.rows.iter().filter(|row| row.places.contains(&place)).count()
    };
    (of(true), of(false))
}

/// The places of an SSD in the map: fewer holes than groups is what a loss makes.
pub(crate) fn dropped(bench: &mut Bench, ssd: u16) {
    bench.lose(ssd);
    bench.run_for(DROP_MS);
    assert_eq!(states(bench)[usize::from(ssd)], State3::Out);
}

#[test]
fn a_dropped_ssd_that_is_back_fills_and_serves_the_places_that_it_had() {
    let _deadline = Deadline::after(LIMIT);
    for ssd in [3, 0] {
        let mut bench = serving(4);
        let before = newest(&bench);
        bench.array.ssd(usize::from(ssd)).fill.takes = 4;
        dropped(&mut bench, ssd);
        // It has missed a new volume, a grant, and a deletion.
        bench.ask(create("b")).unwrap();
        bench.ask(write("b", 7, 60_000)).unwrap();
        bench.ask(delete("a", 1)).unwrap();
        bench.find(ssd);
        bench.run_until_quiet();
        assert_eq!(filling(&bench, ssd), (0, 0), "the writer may not reach it");
        bench.ask(renew("b", 7, 1, 60_000)).unwrap();
        assert_eq!(filling(&bench, ssd).0, 0, "it does not say so");
        bench.ask(reaches("b", 7, 1, 1 << ssd)).unwrap();
        bench.run_until_quiet();
        assert_eq!(filling(&bench, ssd), (64, 0));
        assert_eq!(bench.array.agreed().len(), 1, "it has the array's volumes in this epoch");
        bench.run_for(399);
        assert_eq!(filling(&bench, ssd), (64, 0));
        bench.run_for(2);
        assert_eq!(filling(&bench, ssd), (0, 64));
        let after = newest(&bench);
        assert_eq!((after.epoch, states(&bench)), (before.epoch + 3, vec![State3::In; 4]));
        let places = |map: &gnstor_proto::placement::map3::FleetMap3| {
            map.rows.iter().map(|row| row.places).collect::<Vec<_>>()
        };
        assert_eq!(places(&after), places(&before), "each place is the SSD's that it was");
        bench.ask(create("c")).unwrap();
        assert_eq!(bench.array.agreed().len(), 2);
        all_maps_keep(&bench, 2);
    }
}

fn reaches(name: &str, who: u16, lease_epoch: u32, ssds: u64) -> Request {
    let mut request = renew(name, who, lease_epoch, 60_000);
    if let Request::Renew { reaches, .. } = &mut request {
        *reaches = Some(ssds);
    }
    request
}

#[test]
fn a_writer_that_does_not_reach_it_in_time_loses_its_lease_and_one_that_says_nothing_does_not() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(create("b")).unwrap();
    for (name, who) in [("a", 7), ("b", 8)] {
        opened(&bench.ask(write(name, who, 60_000)));
    }
    dropped(&mut bench, 3);
    bench.ask(reaches("a", 7, 1, 0b0111)).unwrap();
    bench.find(3);
    bench.run_for(4_900);
    bench.ask(reaches("a", 7, 1, 0b0111)).unwrap();
    assert_eq!(filling(&bench, 3), (0, 0));
    bench.run_for(400);
    assert_eq!(filling(&bench, 3), (0, 64));
    let entries = bench.array.agreed();
    assert_eq!(entries[0].writer, None, "it does not reach SSD 3");
    assert!(entries[1].writer.is_some());
}

/// Each has some time from its opening. Two that open in turns have some of it left at each moment.
#[test]
fn writers_that_open_again_and_again_hold_up_an_ssd_for_a_bounded_time() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(create("b")).unwrap();
    let writers = [("a", 7), ("b", 8)];
    for (name, who) in writers {
        opened(&bench.ask(write(name, who, 60_000)));
        bench.ask(reaches(name, who, 1, 0b0111)).unwrap();
    }
    dropped(&mut bench, 3);
    bench.find(3);
    let begun = bench.now;
    let mut turns = writers.into_iter().cycle();
    while filling(&bench, 3) != (0, 64) {
        let (name, who) = turns.next().unwrap();
        bench.ask(release(name, who)).unwrap();
        if bench.ask(write(name, who, 60_000)).is_ok() {
            let entry = bench.array.agreed().into_iter().find(|entry| entry.name == name).unwrap();
            bench.ask(reaches(name, who, entry.lease_epoch, 0b0111)).unwrap();
        }
        bench.run_for(2_500);
        assert!(bench.now - begun < 45_000, "{} ms", bench.now - begun);
    }
    assert!(bench.now - begun > 5_000, "they were waited for");
}

/// A client may find the SSD before the daemon does, and says so once. What it said before the loss says
/// nothing, also if the daemon was idle since then, or carries the call out later.
#[test]
fn a_writer_that_reached_it_before_the_daemon_did_keeps_its_lease() {
    let _deadline = Deadline::after(LIMIT);
    for (said, keeps) in [("after", true), ("before", false), ("idle", false), ("queued", false)] {
        let mut bench = serving(4);
        opened(&bench.ask(write("a", 7, 60_000)));
        if said == "queued" {
            // It is carried out only when the volume's other change is over.
            bench.send(read("a", 9));
            bench.send(reaches("a", 7, 1, 0b1111));
        } else if said != "after" {
            bench.ask(reaches("a", 7, 1, 0b1111)).unwrap();
        }
        match said {
            "before" => bench.run_for(10),
            _ => bench.now += 10,
        }
        dropped(&mut bench, 3);
        if said == "after" {
            bench.ask(reaches("a", 7, 1, 0b1111)).unwrap();
        }
        bench.run_for(100);
        // It is still down, for another reason.
        bench.lose(3);
        bench.run_for(100);
        bench.find(3);
        bench.run_for(1_000);
        assert_eq!(filling(&bench, 3).1 == 64, keeps, "said: {said}");
        bench.run_for(5_000);
        assert_eq!(filling(&bench, 3), (0, 64));
        assert_eq!(bench.array.agreed()[0].writer.is_some(), keeps);
    }
}

#[test]
fn a_guest_that_goes_away_holds_up_no_change() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    opened(&bench.ask(write("a", 7, 60_000)));
    dropped(&mut bench, 3);
    bench.find(3);
    bench.run_until_quiet();
    assert_eq!(filling(&bench, 3), (0, 0), "the writer has not said that it reaches it");
    let ticket = bench.send(create("b"));
    (0..3).for_each(|ssd| while bench.execute(ssd) {});
    assert!(!bench.replies.contains_key(&ticket), "the guest takes part");
    bench.lose(3);
    assert!(bench.replies[&ticket].is_ok());
    bench.ask(create("c")).unwrap();
    bench.find(3);
    bench.run_for(6_000);
    assert_eq!(filling(&bench, 3), (0, 64));
    assert_eq!(bench.array.agreed().len(), 3);
}

#[test]
fn an_ssd_that_is_lost_while_it_fills_begins_anew_with_another_content() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.array.ssd(3).fill.takes = 20;
    dropped(&mut bench, 3);
    bench.find(3);
    bench.run_for(500);
    assert_eq!(filling(&bench, 3), (64, 0));
    let incarnation = newest(&bench).ssds[3].incarnation;
    bench.lose(3);
    bench.array.ssd(3).restart();
    bench.find(3);
    bench.run_for(DROP_MS + 500);
    assert_eq!(filling(&bench, 3), (64, 0));
    assert!(newest(&bench).ssds[3].incarnation > incarnation);
    bench.run_for(3_000);
    assert_eq!(filling(&bench, 3), (0, 64));
}

#[test]
fn a_daemon_that_starts_goes_on_with_a_fill() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.array.ssd(3).fill.takes = 30;
    dropped(&mut bench, 3);
    bench.find(3);
    bench.run_for(500);
    assert_eq!(filling(&bench, 3), (64, 0));
    let mut next = Bench::cold(&bench.array, 10_000);
    next.run_for(10_000);
    assert!(next.core.is_serving(), "{:?}", next.core.waits_for());
    assert_eq!(filling(&next, 3), (0, 64));
    next.ask(read("a", 8)).unwrap();
}

#[test]
fn two_lost_ssds_get_their_own_places_back() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(6);
    let before = newest(&bench);
    dropped(&mut bench, 5);
    bench.lose(4);
    bench.run_for(DROP_MS);
    for ssd in [4, 5] {
        bench.find(ssd);
        bench.run_for(2_000);
    }
    assert_eq!(states(&bench), vec![State3::In; 6]);
    let after = newest(&bench);
    assert!(after.rows.iter().zip(&before.rows).all(|(new, old)| new.places == old.places));
    all_maps_keep(&bench, 2);
}

#[test]
fn an_ssd_that_returns_three_times_in_ten_minutes_stays_out_until_it_is_resumed() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    for _ in 0..3 {
        dropped(&mut bench, 3);
        bench.find(3);
        bench.run_for(1_000);
        assert_eq!(filling(&bench, 3), (0, 64));
    }
    dropped(&mut bench, 3);
    bench.find(3);
    bench.run_for(1_000_000);
    assert_eq!(states(&bench)[3], State3::Out);
    assert!(bench.core.fleet().unwrap().ssds[3].flaps);
    bench.core.resume(bench.now, 3).unwrap();
    bench.pass(0);
    bench.run_for(1_000);
    assert_eq!(filling(&bench, 3), (0, 64));
    assert!(bench.core.resume(bench.now, 3).unwrap_err().contains("neither"));
}

#[test]
fn returns_that_an_operator_knows_of_do_not_count() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    for _ in 0..5 {
        dropped(&mut bench, 3);
        bench.find(3);
        bench.run_for(1_000);
        assert_eq!(filling(&bench, 3), (0, 64));
        assert!(bench.core.resume(bench.now, 3).unwrap_err().contains("neither"));
    }
}

#[test]
fn an_ssd_that_the_operator_takes_out_stays_out_also_of_the_next_daemon_until_it_is_resumed() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.core.remove_ssd(bench.now, 3).unwrap();
    bench.pass(0);
    bench.run_for(2_000);
    assert_eq!(states(&bench)[3], State3::Out);
    assert!(bench.core.remove_ssd(bench.now, 3).unwrap_err().contains("already"));
    assert!(bench.core.remove_ssd(bench.now, 9).unwrap_err().contains("0 to 3"));
    bench.ask(create("b")).unwrap();
    let mut next = Bench::cold(&bench.array, 10_000);
    next.run_for(60_000);
    assert_eq!(filling(&next, 3), (0, 0));
    assert!(next.core.fleet().unwrap().ssds[3].taken_out);
    next.core.resume(next.now, 3).unwrap();
    next.pass(0);
    next.run_for(2_000);
    assert_eq!(filling(&next, 3), (0, 64));
    assert_eq!(newest(&next).ssds[3].weight, 1 << 16);
}

#[test]
fn the_last_copy_is_not_removed_and_waits_when_it_is_failed() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(of_replicas("one", 1)).unwrap();
    let why = bench.core.remove_ssd(bench.now, 3).unwrap_err();
    assert!(why.contains("last copy"), "{why}");
    bench.core.fail_ssd(bench.now, 3).unwrap();
    bench.pass(0);
    bench.run_for(2_000);
    assert_eq!(states(&bench)[3], State3::Absent);
    all_maps_keep(&bench, 1);
    bench.core.resume(bench.now, 3).unwrap();
    bench.pass(0);
    bench.run_for(2_000);
    assert_eq!(states(&bench)[3], State3::In);
}

#[test]
fn the_fleet_is_shown_with_what_is_missing() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.array.ssd(3).fill.takes = 5;
    dropped(&mut bench, 3);
    let fleet = bench.core.fleet().unwrap();
    assert_eq!((fleet.groups, fleet.ssds[3].down_since_ms.is_some(), fleet.format), (64, true, 3));
    let one_copy = newest(&bench).rows.iter().filter(|row| row.places[..2].contains(&None)).count();
    assert_eq!(
        fleet.groups_by_copies,
        [0, u32::try_from(one_copy).unwrap(), 64 - u32::try_from(one_copy).unwrap()]
    );
    bench.find(3);
    bench.run_for(150);
    let fleet = bench.core.fleet().unwrap();
    assert_eq!((fleet.ssds[3].filling, fleet.ssds[3].serving, fleet.ssds[3].down_since_ms), (32, 0, None));
    assert!(fleet.ssds[3].fill.is_some_and(|fill| !fill.is_filled));
    assert_eq!(SimArray::new(2).len(), 2);
}

pub(crate) fn holes(bench: &Bench) -> usize {
    let map = newest(bench);
    map.rows
        .iter()
        .flat_map(|row| &row.places[..usize::from(map.width)])
        .filter(|place| place.is_none())
        .count()
}

#[test]
fn thirty_seconds_after_a_loss_the_places_are_drawn_among_the_others() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(6);
    dropped(&mut bench, 5);
    let lost = holes(&bench);
    bench.run_for(29_000);
    assert_eq!((holes(&bench), lost > 0), (lost, true), "it may come back");
    bench.run_for(2_000);
    assert_eq!((holes(&bench), states(&bench)[5]), (0, State3::Out));
    all_maps_keep(&bench, 2);
    // It is back without a place. It gets those of the next SSD that does not come back.
    bench.find(5);
    bench.run_for(5_000);
    bench.ask(create("b")).unwrap();
    assert_eq!((filling(&bench, 5), bench.array.ssd(5).active().len()), ((0, 0), 2));
    dropped(&mut bench, 4);
    bench.run_for(31_000);
    assert_eq!((holes(&bench), states(&bench)[5], states(&bench)[4]), (0, State3::In, State3::Out));
    assert!(filling(&bench, 5).1 > 0);
    all_maps_keep(&bench, 2);
}

#[test]
fn places_are_not_drawn_where_the_volumes_would_not_fit() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(6);
    bench.ask(create_with("big", 680_000, None)).unwrap();
    dropped(&mut bench, 5);
    bench.run_for(100_000);
    assert!(holes(&bench) > 0, "five SSDs have no room for it");
    bench.find(5);
    bench.run_for(2_000);
    assert_eq!(holes(&bench), 0, "its own places fit");
}

/// A daemon that starts does not know which SSDs had the holes. If no SSD is out, nothing happens by itself
/// after its start: it must look for holes when it begins to serve.
#[test]
fn a_daemon_that_starts_fills_the_holes_of_an_absent_ssd_that_is_back() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(6);
    dropped(&mut bench, 4);
    bench.lose(3);
    bench.run_for(DROP_MS);
    assert_eq!(states(&bench)[3], State3::Absent, "it has the last copies of the groups of 4");
    bench.find(4);
    bench.run_for(5_000);
    assert_eq!(states(&bench)[4], State3::In);
    let array = bench.array.clone();
    array.ssd(3).dead = false;
    let mut next = Bench::cold(&array, 20_000);
    // Nothing wakes the daemon at another time than it asks for.
    next.run_until_quiet();
    while let Some(at) = next.core.next_event().filter(|&at| at < 80_000) {
        next.pass(at.saturating_sub(next.now));
        next.run_until_quiet();
    }
    assert!(next.core.is_serving(), "{:?}", next.core.waits_for());
    assert_eq!((states(&next), holes(&next)), (vec![State3::In; 6], 0));
    all_maps_keep(&next, 2);
}
