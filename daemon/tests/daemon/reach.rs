// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon that has just started does not know which SSDs a writer reaches.

use crate::bench::{Bench, opened, renew, write};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::{DROP_MS, newest, serving, three};
use gnstor_daemon::core::request::Request;
use gnstor_proto::placement::map3::FleetMap3;

/// The holes of a lost SSD go to others after 30 s.
const REBUILD_MS: u64 = 31_000;

fn fills(map: &FleetMap3, ssd: u16) -> bool {
    map.rows.iter().any(|row| row.places.iter().flatten().any(|place| place.ssd == ssd && place.filling))
}

/// SSD 4 was away while no daemon ran, so the writer's connection to it broke.
#[test]
fn an_ssd_gets_no_place_of_a_lost_one_before_a_writer_says_that_it_reaches_it() {
    let _deadline = Deadline::after(LIMIT);
    for reaches in [0b01_1111, 0b00_1111] {
        let mut first = serving(6);
        let lease_epoch = opened(&first.ask(write("a", 7, 60_000))).lease_epoch;
        first.lose(5);
        first.run_for(DROP_MS);
        let (array, now) = (first.array.clone(), first.now);
        drop(first);
        let mut next = Bench::cold_with(&array, now, three());
        next.run_for(1_000);
        assert!(next.core.is_serving(), "{:?}", next.core.waits_for());
        let says = |bench: &mut Bench| {
            let mut request = renew("a", 7, lease_epoch, 60_000);
            if let Request::Renew { reaches: said, .. } = &mut request {
                *said = Some(reaches);
            }
            bench.ask(request).is_ok()
        };
        let (mut is_writer, end) = (true, next.now + REBUILD_MS + 6_000);
        while next.now < end {
            is_writer = says(&mut next);
            next.run_for(100);
            let misses = is_writer && reaches >> 4 & 1 == 0;
            assert!(!(misses && fills(&newest(&next), 4)), "SSD 4 fills at {} ms", next.now);
        }
        assert_eq!(is_writer, reaches >> 4 & 1 == 1, "a writer that does not reach it loses its lease");
        let holes = newest(&next).rows.iter().any(|row| row.places[..2].contains(&None));
        assert!(!holes, "the places of SSD 5 have other SSDs");
    }
}
