// SPDX-License-Identifier: Apache-2.0 OR MIT
//! After a cut a voter still has its promises and its held map. A store of an earlier version has no place
//! for them.

use super::*;
use crate::{DurableError, Grant, HeldMap, MetadataStore, SsdIdentity};

fn held(term: u64, bytes: usize) -> HeldMap {
    HeldMap { term, map: vec![u8::try_from(term).unwrap(); bytes] }
}

fn hold(metadata: &mut MetadataStore, held: HeldMap) -> Result<(), DurableError> {
    metadata.start_hold(held);
    metadata.finish()
}

#[test]
fn grant_and_held_map_stand_beside_what_was_there() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let mut metadata = bench.format().metadata;
    let identity = SsdIdentity { uuid: [7; 16], incarnation: 3 };
    metadata.set_openings(&[4, 5]).unwrap();
    metadata.set_identity(identity, Some(9)).unwrap();
    metadata.set_map(&[1; 100]).unwrap();
    metadata.start_grant(Grant { term: 6, instance: 77 });
    hold(&mut metadata, held(6, 6000)).unwrap();
    let contents = bench.open().metadata.contents().clone();
    assert_eq!(contents, *metadata.contents());
    assert_eq!((contents.term, contents.grant), (6, Some(Grant { term: 6, instance: 77 })));
    assert_eq!((contents.held, contents.map), (Some(held(6, 6000)), Some(vec![1; 100])));
    assert_eq!(
        (contents.identity, contents.filling, contents.openings),
        (Some(identity), Some(9), vec![4, 5])
    );
    let too_long = hold(&mut metadata, held(7, 6001)).unwrap_err();
    assert!(matches!(too_long, DurableError::TooLarge { has: 6001, room: 6000, .. }), "{too_long}");
    assert_eq!(bench.open().metadata.contents().held, Some(held(6, 6000)), "the last one stands");
}

#[test]
fn a_cut_while_a_map_is_to_be_held_leaves_the_old_one_or_the_new_one() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let mut metadata = bench.format().metadata;
    hold(&mut metadata, held(1, 50)).unwrap();
    let before = bench.power.ops();
    hold(&mut metadata, held(2, 60)).unwrap();
    let end = bench.power.ops() - before;
    assert!(end >= 4, "two copies, each with its sync");
    let mut seen = [false; 2];
    for cut in 1..=end {
        let bench = Bench::new();
        let mut metadata = bench.format().metadata;
        hold(&mut metadata, held(1, 50)).unwrap();
        bench.power.arm(cut, cut);
        assert!(hold(&mut metadata, held(2, 60)).is_err());
        bench.power.restore();
        bench.ram.after_power_cut(cut);
        let found = bench.open().metadata.contents().held.clone().expect("one of both");
        assert!(found == held(1, 50) || found == held(2, 60));
        seen[usize::from(found.term == 2)] = true;
    }
    assert!(seen[0], "a cut at the first write leaves the old one");
}

#[test]
fn a_store_of_an_earlier_version_opens_and_has_no_room_for_a_held_map() {
    let _deadline = crate::tests::deadline();
    let old = Sizes { held_map: false, ..SIZES };
    assert!(old.store_bytes() < SIZES.store_bytes());
    let store: Arc<dyn Store> = Arc::new(RamStore::new(old.store_bytes(), Arc::new(Power::steady())));
    drop(Durable::format(Arc::clone(&store), old, 1).unwrap());
    let mut opened = Durable::open(store, SIZES).unwrap();
    assert!(!opened.metadata.can_hold() && opened.metadata.lost().is_empty());
    assert_eq!(*opened.durable.sizes(), old);
    let refused = hold(&mut opened.metadata, held(1, 10)).unwrap_err();
    assert!(matches!(refused, DurableError::TooLarge { room: 0, .. }), "{refused}");
    opened.metadata.set_term(3).expect("it goes on");
}
