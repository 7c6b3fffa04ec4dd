// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first map of format 3: of a fresh array, and of one that has a map of format 2. A daemon may end at
//! any of its messages.

use crate::array::SimArray;
use crate::bench::{Bench, config, create, name};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::{DROP_MS, newest, of_replicas, states, three};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{CoreConfig, MapFormat, Reply};
use gnstor_proto::placement::map3::{FleetMap3, State3, Vote};
use gnstor_proto::placement::{AnyMap, FleetMap, Rows};

/// A daemon that makes maps of format 3, once it serves.
fn starts(array: &SimArray) -> Bench {
    let mut bench = Bench::cold_with(array, 0, three());
    bench.run_for(10_000);
    assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
    bench
}

/// An array with a map of format 2 and a volume.
fn of_format_2(ssds: usize) -> (SimArray, FleetMap) {
    let array = SimArray::new(ssds);
    let mut bench = Bench::start(&array, 0);
    bench.ask(create("a")).unwrap();
    let Some(AnyMap::Two(map)) = array.newest() else { panic!("a map of format 2") };
    (array, map)
}

/// Checks that the map is the next one, with the same places, and that each SSD has it. By it the array drops
/// an SSD.
fn is_converted(bench: &mut Bench, old: &FleetMap) {
    let map = newest(bench);
    assert_eq!((map.epoch, usize::from(map.width)), (old.epoch + 1, old.width()));
    assert_eq!(map.rows, FleetMap3::of(old, [0; 16]).rows);
    for (index, known) in map.ssds.iter().enumerate() {
        let own = bench.array.ssd(index);
        assert_eq!((known.uuid, known.incarnation), (own.vote.uuid, own.vote.incarnation));
        assert_eq!(own.map.as_ref().map(Rows::epoch), Some(map.epoch), "SSD {index} has it");
    }
    assert!(map.ssds.iter().filter(|ssd| ssd.vote == Vote::Voter).count() % 2 == 1);
    let found = bench.ask(Request::Get { name: name("a") });
    assert!(matches!(found, Ok(Reply::Volume(_))), "{found:?}");
}

#[test]
fn an_array_of_format_2_is_converted_by_the_next_daemon() {
    let _deadline = Deadline::after(LIMIT);
    for ssds in [1, 2, 3, 4, 9] {
        let (array, old) = of_format_2(ssds);
        let mut bench = starts(&array);
        is_converted(&mut bench, &old);
        bench.ask(of_replicas("b", 1)).unwrap();
        bench
            .ask(Request::Delete {
                name: name("b"),
                client: crate::bench::client(1),
                request_id: None,
                force: false,
                only: None,
            })
            .unwrap();
        bench.run_for(1_000);
        if ssds > 3 {
            bench.lose(2);
            bench.run_for(DROP_MS + 100);
            assert_eq!(states(&bench)[2], State3::Out);
        }
        let again = starts(&array);
        assert!(again.core.term() > bench.core.term());
    }
}

#[test]
fn whether_the_ssds_of_a_fresh_array_vote_depends_on_their_number() {
    let _deadline = Deadline::after(LIMIT);
    for (ssds, votes) in [(1, true), (2, false), (3, true), (8, true), (9, false), (64, false)] {
        let array = SimArray::new(ssds);
        let map_format = MapFormat::ByCount;
        let mut bench = Bench::cold_with(&array, 0, CoreConfig { map_format, ..config() });
        bench.run_for(10_000);
        assert!(bench.core.is_serving(), "{ssds}: {:?}", bench.core.waits_for());
        assert_eq!(matches!(array.newest(), Some(AnyMap::Three(_))), votes, "{ssds}");
    }
}

#[test]
fn a_conversion_that_was_cut_off_is_finished() {
    let _deadline = Deadline::after(LIMIT);
    for commands in 0..60 {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let (array, old) = of_format_2(4);
            let mut cut = Bench::cold_with(&array, 0, three());
            let mut left = commands;
            while left > 0 && order.iter().any(|&ssd| left > 0 && cut.execute(ssd)) {
                left -= 1;
            }
            drop(cut);
            is_converted(&mut starts(&array), &old);
        }
    }
}

#[test]
fn the_first_map_of_a_fresh_array_that_was_cut_off_is_given_to_the_rest() {
    let _deadline = Deadline::after(LIMIT);
    for commands in 0..60 {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let array = SimArray::new(4);
            let mut cut = Bench::cold_with(&array, 0, three());
            let mut left = commands;
            while left > 0 && order.iter().any(|&ssd| left > 0 && cut.execute(ssd)) {
                left -= 1;
            }
            drop(cut);
            let mut bench = starts(&array);
            assert_eq!(newest(&bench).epoch, 1);
            bench.ask(create("a")).unwrap();
        }
    }
}

#[test]
fn a_connection_that_breaks_while_the_first_map_is_made_costs_no_votes() {
    let _deadline = Deadline::after(LIMIT);
    for (commands, lost) in (0..40).flat_map(|commands| (0..3).map(move |lost| (commands, lost))) {
        let array = SimArray::new(3);
        let mut bench = Bench::cold_with(&array, 0, three());
        let mut left = commands;
        while left > 0 && [2, 0, 1].iter().any(|&ssd| left > 0 && bench.execute(ssd)) {
            left -= 1;
        }
        bench.lose(lost);
        bench.run_until_quiet();
        bench.find(lost);
        bench.run_for(10_000);
        assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
        assert!(bench.core.has_voters(), "SSD {lost} was lost after {commands} commands");
    }
}

#[test]
fn an_array_that_is_not_whole_keeps_its_format() {
    let _deadline = Deadline::after(LIMIT);
    let lossy: fn(&SimArray) = |array| array.ssd(1).filling = true;
    let dropped: fn(&SimArray) = |array| {
        let Some(AnyMap::Two(map)) = array.newest() else { panic!("a map of format 2") };
        (0..4).for_each(|ssd| array.ssd(ssd).map = Some(map.without(3).into()));
    };
    for harm in [lossy, dropped] {
        let (array, _) = of_format_2(4);
        harm(&array);
        let mut bench = starts(&array);
        assert!(matches!(array.newest(), Some(AnyMap::Two(_))));
        bench.ask(create("b")).unwrap();
    }
}

#[test]
fn a_daemon_of_format_2_goes_on_with_a_map_of_format_3() {
    let _deadline = Deadline::after(LIMIT);
    let (array, old) = of_format_2(4);
    drop(starts(&array));
    let mut bench = Bench::cold_with(&array, 0, config());
    bench.run_for(10_000);
    is_converted(&mut bench, &old);
}
