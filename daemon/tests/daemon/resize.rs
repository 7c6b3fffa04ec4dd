// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resize: a volume gets more blocks, on every SSD, whatever fails meanwhile.

use crate::array::{Fault, SimArray};
use crate::bench::{
    Bench, config, create, create_with, created, delete, name, opened, refused, release, write,
};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::three;
use crate::trust::Party;
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::rights::{Caller, Right};
use gnstor_daemon::core::{Reply, Resize};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::status::{GrpcCode, Refusal};
use gnstor_proto::vendor::VolumeEntry;

fn resize(text: &str, capacity_blocks: u64) -> Request {
    Request::Resize(Resize { name: name(text), capacity_blocks })
}

fn starts(array: &SimArray, now: u64) -> Bench {
    let mut bench = Bench::cold_with(array, now, three());
    bench.run_for(10_000);
    assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
    bench
}

/// The blocks of the one volume, which each SSD agrees on.
fn blocks(bench: &Bench) -> u64 {
    let agreed = bench.array.agreed();
    assert_eq!(agreed.len(), 1);
    agreed[0].capacity_blocks
}

fn room(bench: &mut Bench) -> u64 {
    let Ok(Reply::Room(room)) = bench.ask(Request::Room) else { panic!("a number for each copy") };
    room[0] / u64::from(BLOCK_BYTES)
}

#[test]
fn a_volume_gets_more_blocks_and_never_fewer() {
    let _deadline = Deadline::after(LIMIT);
    for config in [config(), three()] {
        let mut bench = Bench::cold_with(&SimArray::new(3), 0, config);
        bench.run_for(5_000);
        let made = created(bench.ask(create_with("a", 100, None)));
        let before = room(&mut bench);
        let grown = created(bench.ask(resize("a", 1_000)));
        assert_eq!((grown.capacity_blocks, grown.generation), (1_000, made.generation));
        assert_eq!(blocks(&bench), 1_000);
        assert!(before - room(&mut bench) >= 800, "the blocks are reserved");
        let version = bench.array.agreed()[0].version;
        assert_eq!(created(bench.ask(resize("a", 1_000))).version, version, "nothing to do");
        refused(&bench.ask(resize("a", 999)), GrpcCode::InvalidArgument, &["4096000", "4091904", "smaller"]);
        refused(&bench.ask(resize("b", 999)), GrpcCode::NotFound, &["\"b\""]);
        assert_eq!(blocks(&bench), 1_000);
    }
}

#[test]
fn a_volume_gets_no_blocks_for_which_there_is_no_room_and_the_largest_number_is_told() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = starts(&SimArray::new(3), 0);
    bench.ask(create("a")).unwrap();
    let left = room(&mut bench);
    let failure = bench.ask(resize("a", 1 << 30)).unwrap_err();
    assert_eq!(failure.code, GrpcCode::ResourceExhausted);
    assert_eq!((blocks(&bench), room(&mut bench)), (16, left), "nothing has changed");
    let told = failure.message.split("can have ").nth(1).and_then(|rest| rest.split(' ').next());
    let largest: u64 = told.and_then(|bytes| bytes.parse().ok()).expect("a number of bytes");
    let largest = largest / u64::from(BLOCK_BYTES);
    refused(&bench.ask(resize("a", largest + 1)), GrpcCode::ResourceExhausted, &[]);
    bench.ask(resize("a", largest)).unwrap();
    assert_eq!(blocks(&bench), largest);
}

#[test]
fn a_client_that_writes_keeps_its_lease() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = starts(&SimArray::new(3), 0);
    bench.ask(create("a")).unwrap();
    let lease = opened(&bench.ask(write("a", 7, 60_000))).lease_epoch;
    bench.ask(resize("a", 32)).unwrap();
    let entry = bench.array.agreed().remove(0);
    assert_eq!((entry.capacity_blocks, entry.lease_epoch), (32, lease));
    assert_eq!(entry.writer.map(|id| id.get()), Some(7));
    bench.ask(release("a", 7)).unwrap();
}

#[test]
fn a_resize_that_some_ssd_does_not_take_is_repeated_until_it_does() {
    let _deadline = Deadline::after(LIMIT);
    let (full, away) = (GrpcCode::ResourceExhausted, GrpcCode::Unavailable);
    let refuse = Fault::Refuse(Refusal::TableFull);
    for (fault, code) in [(refuse, full), (Fault::LostBefore, away), (Fault::LostAfter, away)] {
        let mut bench = starts(&SimArray::new(3), 0);
        bench.ask(create("a")).unwrap();
        bench.array.ssd(1).faults.push_back(fault.clone());
        refused(&bench.ask(resize("a", 64)), code, &["repeated until it is on every SSD"]);
        bench.run_for(5_000);
        assert_eq!(blocks(&bench), 64, "{fault:?}");
        bench.ask(resize("a", 64)).unwrap();
    }
}

/// The next daemon finds the entries of the SSDs as they are.
#[test]
fn a_resize_that_one_ssd_alone_has_is_carried_out_by_the_next_daemon() {
    let _deadline = Deadline::after(LIMIT);
    for which in 0..3 {
        let array = SimArray::new(3);
        let mut first = starts(&array, 0);
        first.ask(create("a")).unwrap();
        let now = first.now;
        drop(first);
        let vid = *array.ssd(which).table.keys().next().unwrap();
        let other_version = u64::try_from(which).unwrap();
        let entry = array.ssd(which).table.get_mut(&vid).unwrap().clone();
        let grown = VolumeEntry { capacity_blocks: 64, version: entry.version + other_version, ..entry };
        array.ssd(which).table.insert(vid, grown);
        let mut next = starts(&array, now);
        next.run_for(2_000);
        assert_eq!(blocks(&next), 64);
        next.ask(resize("a", 65)).unwrap();
        assert_eq!(blocks(&next), 65);
    }
}

/// A daemon that serves without it meets the entry when the SSD is back.
#[test]
fn a_resize_that_an_absent_ssd_alone_has_is_carried_out_when_it_is_back() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = starts(&SimArray::new(3), 0);
    bench.ask(create("a")).unwrap();
    let before = room(&mut bench);
    bench.lose(2);
    let vid = *bench.array.ssd(2).table.keys().next().unwrap();
    let entry = bench.array.ssd(2).table[&vid].clone();
    let grown = VolumeEntry { capacity_blocks: 640, version: entry.version + 3, ..entry };
    bench.array.ssd(2).table.insert(vid, grown);
    bench.find(2);
    bench.run_for(10_000);
    assert_eq!(blocks(&bench), 640);
    assert!(before - room(&mut bench) >= 500, "the blocks are reserved");
    bench.ask(delete("a", 1)).unwrap();
    assert!(bench.array.agreed().is_empty(), "each SSD takes the mark of the deletion");
}

/// It takes room, as a Create does.
#[test]
fn only_who_may_create_volumes_and_administers_this_one_can_resize_it() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = starts(&SimArray::new(3), 0);
    let (anna, ben) = (Party::new(&mut bench, "anna", 1), Party::new(&mut bench, "ben", 2));
    anna.make(&mut bench, "a");
    let no_creator = Caller { creator: false, ..Caller::clone(&anna.caller) };
    let no_creator = Party { caller: no_creator.into(), id: anna.id };
    let before = blocks(&bench);
    let denied = GrpcCode::PermissionDenied;
    refused(&no_creator.ask(&mut bench, resize("a", 640)), denied, &["--creators"]);
    refused(&ben.ask(&mut bench, resize("a", 640)), denied, &["no admin right"]);
    anna.share(&mut bench, "a", "ben", Right::Write);
    refused(&ben.ask(&mut bench, resize("a", 640)), denied, &["no admin right"]);
    assert_eq!(blocks(&bench), before);
    anna.ask(&mut bench, resize("a", 640)).unwrap();
    assert_eq!(blocks(&bench), 640);
}
