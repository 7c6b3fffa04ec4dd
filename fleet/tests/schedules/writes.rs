// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedules of writes, repair and what a map says; most stand for bugs that the model cannot express.

use crate::deadline::{Deadline, LIMIT};
use crate::{OPEN, block, first_write, map, set, stamp, standing};
use gnstor_fleet::Refused;
use gnstor_fleet::change::{HolderState, Unchanged, may_grow};
use gnstor_fleet::client::Request;
use gnstor_fleet::identity::{Returning, may_give_out};
use gnstor_fleet::map::{Map, Place, SsdState};
use gnstor_fleet::repair::{Held, scrubs};
use gnstor_fleet::salvage::{Unsalvaged, may_merge, merge};
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::space::{admit, is_full};

/// Rule 5a. A is sent with stamp 1 and its completion is lost; B has stamp 2 and is acknowledged; A is tried
/// again.
#[test]
fn a_retry_has_the_stamp_of_the_first_try() {
    let _deadline = Deadline::after(LIMIT);
    let b = block(2, 0xB);
    assert!(b.is_older_than(stamp(3)), "with a new stamp A would replace B, which a reader has seen");
    let mut a = Request::new(stamp(1), 1);
    a.completed(0, 1);
    a.restart(2);
    assert!(!b.is_older_than(a.stamp));
    a.completed(0, 1);
    a.completed(1, 2);
    assert!(!a.is_acknowledged(set(&[0, 1])), "the completion of epoch 1 does not count in epoch 2");
    a.completed(0, 2);
    assert!(a.is_acknowledged(set(&[0, 1])) && !a.is_acknowledged(SsdSet::EMPTY));
}

/// Rule 1b. SSD 2 is to fill a hole; one of two writers has no way to it.
#[test]
fn a_map_grows_when_every_writer_reaches_the_ssd() {
    let _deadline = Deadline::after(LIMIT);
    let next = map().lose(0, 2, 2).unwrap().fill(0, (2, 1), 2, 2).unwrap();
    let reached = set(&[1]);
    let request = Request { has_it: reached, ..Request::new(stamp(1), next.epoch) };
    assert!(!request.is_acknowledged(next.rows[0].members()), "grown too early, that writer writes nothing");
    assert!(!may_grow([HolderState::Reaches, HolderState::Unknown]));
    assert!(may_grow([HolderState::Reaches, HolderState::Revoked]) && may_grow([]));
}

/// Rule 15. SSD 0 has no block left, SSD 1 has.
#[test]
fn all_members_of_a_group_refuse_alike() {
    let _deadline = Deadline::after(LIMIT);
    let free = [0u64, 1000];
    assert_ne!(free[0] > 0, free[1] > 0, "by their own fill one takes the block and the other does not");
    assert!(is_full(951, 1000) && !is_full(950, 1000));
    let mut full = map();
    full.ssds[0].state = SsdState::Full;
    assert_eq!(admit(&full, &full.rows[0], false), Err(Refused::GroupFull), "whichever member is asked");
    assert_eq!(admit(&full, &full.rows[0], true), Ok(()), "what is mapped may be overwritten");
    assert_eq!(admit(&full, &full.rows[1], false), Ok(()), "a group without that SSD");
}

/// Rule 13. The first copy of a block has rotted; both have the same stamp.
#[test]
fn a_scrub_heals_from_the_copy_that_matches_its_sum() {
    let _deadline = Deadline::after(LIMIT);
    let (rotten, good) = (block(1, 0xBAD), block(1, 0x600D));
    assert!(scrubs((good, true), (rotten, true), true), "by place alone rot would spread");
    assert!(!scrubs((good, true), (rotten, false), true));
    assert!(scrubs((rotten, false), (good, true), false));
    assert!(!scrubs((block(2, 0), false), (good, true), false), "an older copy");
    assert!(!scrubs((rotten, false), (good, false), false) && !scrubs((good, true), (good, true), true));
}

/// Rule 16. A client was killed and comes back; SSD 1 still has a command of its old queue.
#[test]
fn a_client_gets_its_id_when_its_old_queues_are_gone_everywhere() {
    let _deadline = Deadline::after(LIMIT);
    let map = map();
    let old_command = standing(&map, 1, 1).judge_write(&map.rows[0], first_write(), OPEN);
    assert_eq!(old_command, Ok(()), "nothing in the command tells the old process from the new one");
    let members = set(&[0, 1, 2]);
    assert!(!Returning { ended: set(&[0, 2]) }.may_have_its_id(members));
    assert!(Returning { ended: members }.may_have_its_id(members));
    assert!(!may_give_out(set(&[0, 1]), members, SsdSet::EMPTY), "SSD 2 has not answered");
    assert!(!may_give_out(members, members, set(&[2])) && may_give_out(members, members, SsdSet::EMPTY));
}

/// Rule 17. Both copies are lossy; the one with the acknowledged write is away.
#[test]
fn an_incomplete_set_is_not_salvaged() {
    let _deadline = Deadline::after(LIMIT);
    let (here, away) = (block(1, 0), block(2, 0));
    assert_eq!(merge([here]), here, "without the other one the acknowledged write would be gone");
    let both = set(&[0, 1]);
    assert_eq!(may_merge(both, both, set(&[0])), Err(Unsalvaged::Missing(set(&[1]))));
    assert_eq!(may_merge(both, set(&[0]), both), Err(Unsalvaged::HasGoodCopy));
    assert_eq!(may_merge(both, both, both), Ok(()));
    assert_eq!(merge([here, away]), away);
    assert_eq!(merge([Held::Tombstone { stamp: stamp(3) }, away]), Held::Tombstone { stamp: stamp(3) });
}

/// Rules 1a and 1b. An SSD that was dropped returns with a new incarnation, fills, and serves without
/// becoming the first.
#[test]
fn a_dropped_ssd_returns_with_a_new_incarnation() {
    let _deadline = Deadline::after(LIMIT);
    let shrunk = map().lose(0, 2, 2).unwrap();
    assert_eq!(shrunk.rows[0].places[..2], [Place::Empty, Place::Serving(1)], "nothing is drawn");
    assert_eq!(shrunk.fill(0, (0, 1), 2, 2), Err(Unchanged::Incarnation));
    let fills = shrunk.fill(0, (0, 2), 2, 2).unwrap();
    assert_eq!(fills.rows[0].places[..2], [Place::Filling(0), Place::Serving(1)]);
    let read = |map: &Map| standing(map, 0, 2).judge_read(&map.rows[0], map.epoch, false, OPEN);
    assert_eq!(read(&fills), Err(Refused::NotHereYet));
    let serves = fills.serve(0, 0, 2, 2).unwrap();
    assert_eq!(serves.rows[0].first(), Some(1));
    assert_eq!(read(&serves), Err(Refused::AskTheFirst));
}
