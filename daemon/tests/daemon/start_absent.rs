// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon starts, and an SSD is not there. Where SSDs vote, the daemon was not given this SSD, but the
//! fleet map names it.

use crate::array::{SSD_BYTES, SimArray};
use crate::bench::{Bench, client, create, created, delete, opened, read, refused, write};
use crate::deadline::{Deadline, LIMIT};
use crate::join::{apart, has_its_share, joins, open_array};
use crate::shrink::{DROP_MS, newest, states};
use gnstor_daemon::core::request::Request;
use gnstor_proto::placement::map3::State3;
use gnstor_proto::status::GrpcCode;

/// A daemon of an array of four SSDs and a fifth that joined later, which was given the first four. The fifth
/// is not there, and its link finds that out, or hangs.
fn starts_without_the_fifth(dials_hang: bool) -> Bench {
    let mut bench = open_array(4);
    joins(&mut bench, 4);
    bench.run_for(20_000);
    has_its_share(&bench, 4, 2, 1);
    bench.array.ssd(4).dead = true;
    let (array, now): (SimArray, u64) = (bench.array.clone(), bench.now);
    let mut bench = Bench::cold_given(&array, 4, now, apart());
    bench.dials_hang = dials_hang;
    bench
}

/// Time until the daemon serves.
fn serves_after(bench: &mut Bench) -> u64 {
    let from = bench.now;
    while !bench.core.is_serving() {
        bench.run_for(10);
        assert!(bench.now < from + 20_000, "{:?} {:?}", bench.stopped, bench.core.waits_for());
    }
    bench.now - from
}

#[test]
fn a_start_waits_half_a_second_for_an_ssd_that_is_known_not_to_be_there() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = starts_without_the_fifth(false);
    let ms = serves_after(&mut bench);
    assert!((500..500 + DROP_MS + 100).contains(&ms), "{ms}");
    assert_eq!(states(&bench)[4], State3::Out);
    assert_eq!(bench.core.sizes_of_others().collect::<Vec<_>>(), [(4, 0)], "its size is not known");
    bench.run_for(1_000);
    bench.find(4);
    bench.run_for(60_000);
    assert_eq!(states(&bench), [State3::In; 5]);
    assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64]);
    assert_eq!(bench.core.sizes_of_others().collect::<Vec<_>>(), [(4, SSD_BYTES)]);
}

/// It was refused once, and is there in time.
#[test]
fn an_ssd_that_comes_within_half_a_second_is_not_lost() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = starts_without_the_fifth(false);
    let before = newest(&bench).ssds[4].clone();
    bench.run_for(400);
    bench.find(4);
    let ms = 400 + serves_after(&mut bench);
    assert!(ms < 1_200, "{ms}");
    assert_eq!(newest(&bench).ssds[4], before, "no map has dropped it");
}

/// The link hangs, so the SSD may be there.
#[test]
fn a_start_waits_two_seconds_for_an_ssd_of_which_nothing_is_known() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = starts_without_the_fifth(true);
    let ms = serves_after(&mut bench);
    assert!((2_000..2_000 + DROP_MS + 100).contains(&ms), "{ms}");
    assert_eq!(states(&bench)[4], State3::Out);
    let mut bench = starts_without_the_fifth(true);
    bench.run_for(1_500);
    assert!(!bench.core.is_serving());
    bench.find(4);
    let ms = 1_500 + serves_after(&mut bench);
    assert!(ms < 2_200, "{ms}");
    assert_eq!(states(&bench), [State3::In; 5]);
}

/// It was there a moment ago, and may be back in a moment.
#[test]
fn a_start_waits_two_seconds_for_an_ssd_whose_link_breaks() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = starts_without_the_fifth(false);
    bench.array.ssd(4).dead = false;
    // All have said which map they have.
    while bench.core.waits_for().is_some_and(|waits| waits.contains("fleet maps")) {
        assert!((0..5).filter(|&ssd| bench.execute(ssd)).count() > 0, "{:?}", bench.core.waits_for());
    }
    bench.lose(4);
    let ms = serves_after(&mut bench);
    assert!((2_000..2_000 + DROP_MS + 100).contains(&ms), "{ms}");
}

/// A daemon that starts on an array of format 2, which has volume "a". The link of SSD 1 finds no SSD.
fn without_voters(ssds: usize) -> Bench {
    let array = SimArray::new(ssds);
    let mut first = Bench::start(&array, 0);
    first.ask(create("a")).unwrap();
    first.ask(read("a", 5)).unwrap();
    let now = first.now;
    drop(first);
    array.ssd(1).dead = true;
    let mut bench = Bench::cold(&array, now);
    bench.lose(1);
    bench
}

/// There is no majority in an array of two SSDs.
#[test]
fn without_voters_a_start_goes_on_without_an_ssd_that_is_not_there_and_serves_what_the_others_have() {
    let _deadline = Deadline::after(LIMIT);
    for ssds in [2, 3] {
        let mut bench = without_voters(ssds);
        let ms = serves_after(&mut bench);
        assert!((2_000..2_500).contains(&ms), "{ms}");
        assert!(bench.core.absent()[&1].contains("pulled"), "{:?}", bench.core.absent());
        assert_eq!(bench.list().len(), 1);
        assert!(bench.ask(read("a", 6)).is_ok(), "it is read");
        for request in [create("b"), delete("a", 1), write("a", 6, 1_000)] {
            refused(&bench.ask(request), GrpcCode::Unavailable, &["SSD 1 is down (pulled)"]);
        }
        // The SSD is back, with an older term and without the reader.
        bench.array.ssd(1).dead = false;
        bench.find(1);
        bench.run_until_quiet();
        assert!(bench.core.absent().is_empty(), "{:?}", bench.core.absent());
        assert_eq!(bench.array.agreed()[0].readers, [client(5), client(6)]);
        assert!(bench.ask(write("a", 6, 1_000)).is_ok() && bench.ask(create("b")).is_ok());
    }
}

#[test]
fn without_voters_an_ssd_that_comes_while_the_start_waits_takes_part_in_it() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = without_voters(3);
    bench.run_for(1_500);
    assert!(!bench.core.is_serving() && bench.core.waits_for().unwrap().contains("SSD 1"));
    bench.array.ssd(1).dead = false;
    bench.find(1);
    let ms = serves_after(&mut bench);
    assert!(ms < 500 && bench.core.absent().is_empty(), "{ms} {:?}", bench.core.absent());
    assert!(bench.ask(create("b")).is_ok());
}

/// The former daemon's last change reached the SSD that is not there at the start, and no other one.
fn changed_on_the_absent_one(last: Request) -> Bench {
    let array = SimArray::new(2);
    let mut first = Bench::start(&array, 0);
    first.ask(create("a")).unwrap();
    first.send(last);
    assert!(first.execute(1), "it is asked");
    let now = first.now;
    drop(first);
    array.ssd(1).dead = true;
    let mut bench = Bench::cold(&array, now);
    bench.lose(1);
    serves_after(&mut bench);
    bench
}

/// The SSD has a lease epoch that no other SSD has, and takes no lower one.
#[test]
fn without_voters_a_grant_that_the_absent_ssd_alone_took_is_over_when_it_is_back() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = changed_on_the_absent_one(write("a", 5, 60_000));
    let held = bench.array.ssd(1).active()[0].lease_epoch;
    assert!(held > bench.list()[0].lease_epoch);
    bench.find(1);
    bench.run_until_quiet();
    assert!(opened(&bench.ask(write("a", 6, 1_000))).lease_epoch > held);
    bench.array.agreed();
}

/// A client waits for that deletion: it is finished.
#[test]
fn without_voters_a_deletion_that_the_absent_ssd_alone_knew_of_is_finished_when_it_is_back() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = changed_on_the_absent_one(delete("a", 1));
    assert_eq!(bench.list().len(), 1);
    bench.find(1);
    bench.run_for(10_000);
    assert_eq!(bench.list().len(), 0);
    assert!(bench.array.agreed().is_empty());
}

/// The SSD has a volume that no client was told of. Its name was given to another one.
#[test]
fn without_voters_a_start_deletes_an_unfinished_volume_whose_name_another_one_has() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = changed_on_the_absent_one(create("b"));
    bench.find(1);
    bench.run_until_quiet();
    let made = created(bench.ask(create("b")));
    let (array, now) = (bench.array.clone(), bench.now);
    drop(bench);
    let mut bench = Bench::start(&array, now);
    bench.run_for(10_000);
    let left: Vec<_> = bench.list().into_iter().filter(|volume| volume.name == "b").collect();
    assert_eq!(
        left.iter().map(|left| (left.vid, left.generation)).collect::<Vec<_>>(),
        [(made.vid, made.generation)]
    );
    assert_eq!(bench.array.agreed().len(), 2);
}

/// An SSD takes no term that is more than 2^32 above its own, and generations of volumes start at 4,096 times
/// the term.
#[test]
fn without_voters_many_starts_without_an_ssd_leave_terms_and_generations() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = without_voters(2);
    for _ in 0..40 {
        let (array, now) = (bench.array.clone(), bench.now);
        drop(bench);
        bench = Bench::cold(&array, now);
        bench.lose(1);
        serves_after(&mut bench);
    }
    bench.find(1);
    bench.run_until_quiet();
    assert!(bench.core.absent().is_empty(), "{:?}", bench.core.absent());
    let term = bench.core.term();
    assert!(term <= 2 + 41 * 61 * 17, "{term}");
    let made = created(bench.ask(create("b")));
    assert_eq!(u64::from(made.generation), term * 4096);
}

/// Whatever the term is, SSDs take no volume of an id that had a volume of a later generation.
#[test]
fn a_daemon_that_starts_gives_a_volume_a_later_generation_than_ssds_remember() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut first = Bench::start(&array, 0);
    for round in 0..3 {
        first.ask(create("a")).unwrap();
        first.ask(delete("a", 1)).unwrap();
        first.run_for(10_000 + round);
    }
    let gone = |ssd: usize| array.ssd(ssd).gone.keys().map(|&(_, generation)| generation).max();
    let latest = gone(0).expect("it is remembered");
    // From this term on generations begin at 1.
    for ssd in 0..2 {
        let map = array.ssd(ssd).map.take().expect("it has one");
        array.ssd(ssd).map = Some(map.in_term(1 << 21));
    }
    let mut second = Bench::start(&array, first.now);
    assert!(second.core.term() > 1 << 21);
    assert_eq!(created(second.ask(create("b"))).generation, latest + 1);
}

/// Each of the two sees one of the two SSDs, as on both sides of a wire that is cut.
#[test]
fn of_two_daemons_that_start_with_different_ssds_one_is_left_when_both_are_reached() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    Bench::start(&array, 0).ask(create("a")).unwrap();
    let side = |lost: u16| {
        (0..2).for_each(|ssd| array.ssd(ssd).dead = false);
        let mut bench = Bench::cold(&array, 0);
        bench.lose(lost);
        serves_after(&mut bench);
        bench
    };
    let (mut left, mut right) = (side(1), side(0));
    for bench in [&mut left, &mut right] {
        refused(&bench.ask(write("a", 6, 1_000)), GrpcCode::Unavailable, &["is down"]);
    }
    left.find(1);
    left.run_until_quiet();
    right.find(0);
    right.run_until_quiet();
    left.run_until_quiet();
    let served = [&mut left, &mut right].map(|bench| bench.ask(write("a", 6, 1_000)).is_ok());
    assert_eq!(served.iter().filter(|&&is_served| is_served).count(), 1, "{served:?}");
}
