// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD joins a running array, and takes its share of the places.

use crate::array::{SSD_BYTES, SimArray};
use crate::bench::{Bench, Outcome, create, renew, write};
use crate::deadline::{Deadline, LIMIT};
use crate::drain::{done, maps, takes_no_copy, view};
use crate::shrink::{DROP_MS, all_maps_keep, newest, of_replicas, states, three};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{Add, CoreConfig, Found, Reply};
use gnstor_fleet::map::Map;
use gnstor_proto::placement::map3::{FleetMap3, State3};
use gnstor_proto::ssd_identity::SsdSays;

/// SSDs in processes of their own.
pub(crate) fn apart() -> CoreConfig {
    CoreConfig { names_addresses: true, spreads: true, ..three() }
}

/// A serving array to which SSDs can be added, with a volume of two replicas.
pub(crate) fn open_array(ssds: usize) -> Bench {
    let mut bench = Bench::cold_with(&SimArray::new(ssds), 0, apart());
    bench.run_for(5_000);
    assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
    if ssds > 1 {
        bench.ask(create("a")).unwrap();
    }
    bench
}

/// The empty SSD of this number, as it is found.
pub(crate) fn add(ssd: u16) -> Add {
    let number = u8::try_from(ssd).unwrap() + 1;
    let says = SsdSays {
        uuid: [number; 16],
        incarnation: 1,
        takes_map3: true,
        is_lossy: false,
        capacity_bytes: SSD_BYTES,
    };
    Add {
        address: format!("127.0.0.1:{}", 4420 + ssd),
        spare: false,
        node: None,
        rack: 0,
        weight: 1 << 16,
        found: Some(Found { ssd, says: Some(says), array: None, volume: None }),
    }
}

pub(crate) fn call(bench: &mut Bench, add: Add) -> Outcome {
    bench.ask_now(Request::Add(Box::new(add)))
}

/// Asks for the number, as the daemon's shell does, and adds the SSD.
pub(crate) fn joins(bench: &mut Bench, ssd: u16) {
    let asks = Add { found: None, ..add(ssd) };
    assert_eq!(call(bench, asks), Ok(Reply::Joins { ssd, is_done: false }));
    assert_eq!(call(bench, add(ssd)), Ok(Reply::Joins { ssd, is_done: true }));
    assert_eq!(call(bench, add(ssd)), Ok(Reply::Joins { ssd, is_done: true }), "repeated");
}

fn places(map: &FleetMap3, ssd: u16) -> usize {
    map.rows.iter().flat_map(|row| row.places).flatten().filter(|place| place.ssd == ssd).count()
}

/// From this epoch on each block had so many copies, and the SSD has its share now.
pub(crate) fn has_its_share(bench: &Bench, ssd: u16, replicas: u8, from: u64) {
    let last = newest(bench);
    assert_eq!(last.ssds[usize::from(ssd)].state, State3::In, "{:?}", view(bench, ssd));
    let all = maps(bench);
    for (before, map) in all.iter().zip(&all[1..]).filter(|(_, map)| map.epoch > from) {
        let rules = Map::of(map).unwrap();
        let copies = rules.rows.iter().map(|row| row.copies(replicas).len());
        assert_eq!(copies.min(), Some(replicas.into()), "epoch {}", map.epoch);
        takes_no_copy(before, map);
    }
    assert!(last.rows.iter().all(|row| row.incoming.is_none()));
    let (has, fair) = (places(&last, ssd), last.rows.len() * usize::from(last.width) / last.ssds.len());
    assert!(has <= fair && has + usize::from(last.width) >= fair, "{has} of {fair}");
}

#[test]
fn an_ssd_joins_and_takes_its_share_and_all_blocks_keep_their_copies_at_every_moment() {
    let _deadline = Deadline::after(LIMIT);
    for ssds in [3u16, 4, 5, 7] {
        let mut bench = open_array(ssds.into());
        (0..usize::from(ssds)).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 3);
        bench.ask(write("a", 7, 600_000)).unwrap();
        let before = newest(&bench);
        joins(&mut bench, ssds);
        bench.run_for(20_000);
        has_its_share(&bench, ssds, 2, before.epoch);
        let after = newest(&bench);
        let moved = |(old, new): &(&_, &_)| old != new;
        let old = before.rows.iter().flat_map(|row| row.places);
        let moved =
            old.zip(after.rows.iter().flat_map(|row| row.places)).filter(|(a, b)| moved(&(a, b))).count();
        let all = before.rows.len() * usize::from(before.width);
        assert!(2 * moved * (usize::from(ssds) + 1) <= 3 * all, "{moved} of {all} places have moved");
        // One epoch takes places, from all at once.
        let shrunk = |map: &FleetMap3| map.ssds.iter().any(|s| s.shrunk_at == map.epoch);
        let shrunk: Vec<u64> = maps(&bench).iter().filter(|map| shrunk(map)).map(|map| map.epoch).collect();
        assert_eq!(shrunk.len(), 1, "{shrunk:?}");
        let known = &after.ssds[usize::from(ssds)];
        assert_eq!((known.address.as_str(), known.node, known.id), (&*add(ssds).address, ssds, ssds));
        // It is a member like the others.
        bench.ask(renew("a", 7, 1, 60_000)).unwrap();
        bench.ask(create("b")).unwrap();
        assert_eq!(bench.array.agreed().len(), 2);
        bench.lose(0);
        bench.run_for(DROP_MS + 100);
        let counts = bench.core.fleet().unwrap().groups_by_copies;
        assert_eq!((counts[0], states(&bench)[0]), (0, State3::Out), "all can be read");
        bench.find(0);
        bench.run_for(60_000);
        assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64]);
        all_maps_keep(&bench, 2);
    }
}

/// The others took the places that volumes use when an SSD was lost. The empty ones have no data.
#[test]
fn an_ssd_that_joins_after_a_loss_gets_its_share_of_the_data() {
    let _deadline = Deadline::after(LIMIT);
    for ssds in [3u16, 4] {
        let mut bench = open_array(ssds.into());
        bench.lose(ssds - 1);
        bench.run_for(60_000);
        let from = newest(&bench).epoch;
        joins(&mut bench, ssds);
        bench.run_for(60_000);
        let all = maps(&bench);
        for map in all.iter().filter(|map| map.epoch > from) {
            let rules = Map::of(map).unwrap();
            let copies = rules.rows.iter().map(|row| row.copies(2).len()).min();
            assert_eq!(copies, Some(2), "{ssds} SSDs, epoch {}", map.epoch);
        }
        let map = newest(&bench);
        let used = map.rows.iter().flat_map(|row| row.places.into_iter().take(2)).flatten();
        let has = used.filter(|place| place.ssd == ssds && !place.filling).count();
        let fair = 2 * map.rows.len() / usize::from(ssds);
        assert!(2 * has >= fair && has <= fair, "{ssds} SSDs: {has} places with data of {fair}");
        assert!(map.rows.iter().all(|row| row.incoming.is_none()));
    }
}

#[test]
fn an_array_of_one_gets_a_second_ssd_and_no_volume_of_two_replicas() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(1);
    bench.ask(of_replicas("a", 1)).unwrap();
    let from = newest(&bench).epoch;
    joins(&mut bench, 1);
    bench.run_for(20_000);
    has_its_share(&bench, 1, 1, from);
    let refused = bench.ask(of_replicas("b", 2));
    crate::bench::refused(
        &refused,
        gnstor_proto::status::GrpcCode::InvalidArgument,
        &["the array was made of 1", "use 1 to 1"],
    );
}

#[test]
fn ssds_join_one_after_the_other() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(4);
    let from = newest(&bench).epoch;
    for ssd in 4..8 {
        joins(&mut bench, ssd);
        bench.run_for(20_000);
        has_its_share(&bench, ssd, 2, from);
    }
    let map = newest(&bench);
    let all: Vec<usize> = (0..8).map(|ssd| places(&map, ssd)).collect();
    assert!(all.iter().all(|&has| (24..=40).contains(&has)), "{all:?} of 256");
}

#[test]
fn what_a_new_volume_may_have_counts_the_ssd_once_it_serves() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(4);
    let room = |bench: &mut Bench| match bench.ask(Request::Room) {
        Ok(Reply::Room(room)) => room[1],
        other => panic!("{other:?}"),
    };
    let before = room(&mut bench);
    joins(&mut bench, 4);
    bench.run_until_quiet();
    assert_eq!(room(&mut bench), before, "no place leads to it");
    bench.run_for(20_000);
    let after = room(&mut bench);
    // Five SSDs have five fourths of the room of four. Of 64 groups the shares are not all the same.
    assert!(after > before + before / 10 && after <= before + before / 4 + before / 20, "{before} {after}");
    let fits = after / 4096;
    done(bench.ask(crate::bench::create_with("large", fits, None)).map(|_| Reply::Done));
    assert_eq!(room(&mut bench), 0);
}

#[test]
fn a_spare_waits_until_an_ssd_is_lost_or_leaves_and_takes_its_places() {
    let _deadline = Deadline::after(LIMIT);
    for drains in [false, true] {
        let mut bench = open_array(4);
        let spare = Add { spare: true, ..add(4) };
        assert_eq!(call(&mut bench, spare), Ok(Reply::Joins { ssd: 4, is_done: true }));
        bench.run_for(60_000);
        assert_eq!((states(&bench)[4], places(&newest(&bench), 4)), (State3::Spare, 0));
        assert_eq!(bench.core.absent(), std::collections::BTreeMap::new());
        let had = places(&newest(&bench), 1);
        if drains {
            done(bench.ask(crate::drain::drain(1)));
        } else {
            bench.lose(1);
            bench.run_for(20_000);
            assert_eq!(states(&bench)[4], State3::Spare, "the places are kept for SSD 1");
        }
        bench.run_for(60_000);
        let map = newest(&bench);
        assert_eq!((map.ssds[1].state, map.ssds[4].state), (State3::Out, State3::In));
        let data = |ssd: u16| {
            map.rows.iter().flat_map(|row| &row.places[..2]).flatten().filter(|p| p.ssd == ssd).count()
        };
        assert!(data(4) >= had / 2, "{} of {had}", data(4));
        assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64]);
    }
}

#[test]
fn an_ssd_that_left_and_is_resumed_takes_its_share_again() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(6);
    done(bench.ask(crate::drain::drain(2)));
    bench.run_for(10_000);
    assert_eq!(places(&newest(&bench), 2), 0);
    let from = newest(&bench).epoch;
    done(bench.ask(crate::drain::resume(2)));
    bench.run_for(20_000);
    has_its_share(&bench, 2, 2, from);
}
