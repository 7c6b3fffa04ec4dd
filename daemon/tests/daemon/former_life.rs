// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD has an earlier volume of an id that a later one has by now.

use crate::array::SimArray;
use crate::bench::{Bench, config, create, created, delete, opened, write};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::three;

/// It refuses each entry of the later volume until it has deleted the earlier one.
#[test]
fn a_daemon_that_starts_has_it_deleted_and_the_ssd_takes_the_later_volume() {
    let _deadline = Deadline::after(LIMIT);
    for (config, which) in [(config(), 0), (config(), 2), (three(), 0), (three(), 2)] {
        let array = SimArray::new(3);
        let mut first = Bench::cold_with(&array, 0, config);
        first.run_for(5_000);
        let earlier = created(first.ask(create("a")));
        first.ask(delete("a", 1)).unwrap();
        first.run_for(2_000);
        let later = created(first.ask(create("b")));
        assert_eq!(later.vid, earlier.vid);
        assert!(later.generation > earlier.generation);
        let now = first.now;
        drop(first);
        array.ssd(which).table.insert(earlier.vid, earlier);
        let mut next = Bench::cold_with(&array, now, config);
        next.run_for(10_000);
        assert!(next.core.is_serving(), "{:?} {:?}", next.stopped, next.core.waits_for());
        let agreed: Vec<_> = array.agreed().iter().map(|entry| (entry.vid, entry.generation)).collect();
        assert_eq!(agreed, [(later.vid, later.generation)], "SSD {which}");
        opened(&next.ask(write("b", 7, 60_000)));
    }
}
