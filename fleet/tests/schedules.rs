// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single schedules in virtual time. Each shows that a rule of today, or one that is tempting, loses, and
//! that the rule of the crate holds. Times are in ms.

#[path = "../../proto/testing/deadline.rs"]
mod deadline;

use deadline::{Deadline, LIMIT};
use gnstor_fleet::change::{Reach, Unchanged, may_grow};
use gnstor_fleet::client::Request;
use gnstor_fleet::history::{ALL, History};
use gnstor_fleet::identity::{Returning, may_give_out};
use gnstor_fleet::leader::{Candidate, Round};
use gnstor_fleet::lease::{Asking, Lease, LeaseAsk, Timing};
use gnstor_fleet::map::{Map, Place, Row, Ssd, SsdState};
use gnstor_fleet::repair::{Held, Roles, Verdict, compare, scrub};
use gnstor_fleet::salvage::{Unsalvaged, may_merge, merge};
use gnstor_fleet::serve::{Entry, Standing};
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::space::{admit, is_full};
use gnstor_fleet::voter::{Promise, Voter};
use gnstor_fleet::{ArrayId, Refused, SsdId};
use gnstor_proto::slba::Stamp;

const ARRAY: ArrayId = ArrayId([7; 16]);
const OTHER: ArrayId = ArrayId([8; 16]);
const MS: Timing = Timing::DEFAULT_MS;
const OPEN: Entry = Entry { lease_epoch: 1, has_writer: true };

fn stamp(sequence: u64) -> Stamp {
    Stamp { lease_epoch: 1, sequence }
}

fn block(sequence: u64, sum: u32) -> Held {
    Held::Block { stamp: stamp(sequence), sum }
}

fn set(ssds: &[SsdId]) -> SsdSet {
    ssds.iter().copied().collect()
}

/// Three SSDs that vote; a group on 0 and 1, a second one on 1 and 2.
fn map() -> Map {
    let ssd = Ssd { state: SsdState::In, incarnation: 1, shrunk_at: 0 };
    let row = |a, b| {
        let mut row = Row::default();
        (row.places[0], row.places[1]) = (Place::Serving(a), Place::Serving(b));
        row
    };
    Map {
        array: ARRAY,
        term: 1,
        epoch: 1,
        voters: set(&[0, 1, 2]),
        ssds: vec![ssd; 3],
        rows: vec![row(0, 1), row(1, 2)],
    }
}

fn ask(ssd: SsdId, epoch: u64) -> LeaseAsk {
    LeaseAsk { array: ARRAY, ssd, epoch, incarnation: 1 }
}

fn standing(map: &Map, ssd: SsdId, incarnation: u32) -> Standing<'_> {
    Standing { map, ssd, incarnation, has_lease: true }
}

/// Rule 2a. SSD 0 asks at 0 and is cut off. A majority holds a map without it at 10, which is active at 320. A
/// yes of time 5 reaches SSD 0 at 290.
#[test]
fn a_late_answer_revives_no_ssd() {
    let _deadline = Deadline::after(LIMIT);
    let mut asking = Asking::new(ask(0, 1), 0);
    let mut voters = [Voter::new(map()), Voter::new(map()), Voter::new(map())];
    assert_eq!(voters[1].answer(&asking.ask), Ok(()));
    let next = map().lose(0, 2).unwrap();
    let mut round = Round::new(next.clone());
    for (v, voter) in (1..).zip(&mut voters[1..]) {
        voter.hold(2, 9, next.clone()).unwrap();
        round.held(v, next.voters, 10);
        assert_eq!(voter.answer(&ask(0, 1)), Err(Refused::Deprived), "no further lease for SSD 0");
        assert_eq!(voter.answer(&ask(1, 1)), Ok(()), "SSD 1 loses nothing in this map");
    }
    assert!(!round.may_activate(319, MS, SsdSet::EMPTY) && round.may_activate(320, MS, SsdSet::EMPTY));
    assert!(round.may_activate(10, MS, set(&[0])), "an SSD that says goodbye is not waited for");

    asking.said_yes(0);
    asking.said_yes(1);
    let from_receipt = Lease { until: 290 + MS.lease };
    assert!(from_receipt.runs(320), "the rule of today: it would serve beside the new map, until 590");
    let lease = asking.lease(next.voters, 1, MS).unwrap();
    assert!(lease.runs(299) && !lease.runs(300));
    assert_eq!(asking.lease(next.voters, 2, MS), None, "the content has become another one");
}

/// `fabric/src/runtime.rs` reads the clock before it takes in what has come. The process stops in between, from
/// 290 to 790.
#[test]
fn the_clock_is_read_after_the_command_was_taken_in() {
    let _deadline = Deadline::after(LIMIT);
    let lease = Lease { until: 300 };
    let (read_before, read_after) = (290, 790);
    assert!(lease.runs(read_before), "the order of today: it answers a read of an array that dropped it");
    assert!(!lease.runs(read_after));
}

/// Rule 1a. SSD 1 lost its writes in epoch 1. SSD 0 is dropped; the map of epoch 2 was made for that.
#[test]
fn an_epoch_made_for_another_ssd_does_not_end_the_loss() {
    let _deadline = Deadline::after(LIMIT);
    let (lossy_since, incarnation) = (1, 2);
    let next = map().lose(2, 2).unwrap();
    assert!(next.epoch > lossy_since, "the rule of today: any newer epoch ends the state of filling");
    let history = History::new(4);
    let as_today = standing(&next, 1, 1).judge_read(&next.rows[1], 2, false, &history);
    assert_eq!(as_today, Ok(()), "it would answer with zeros");
    let judged = standing(&next, 1, incarnation).judge_read(&next.rows[1], 2, false, &history);
    assert_eq!(judged, Err(Refused::NotServing));
    assert_eq!(next.serve(1, 1, incarnation, 2), Err(Unchanged::Incarnation), "nor does a confirmation of it");
}

/// Rule 1c. The first of a group is lossy: it refuses reads, and the other one says "ask the first".
#[test]
fn an_epoch_drops_a_lossy_first() {
    let _deadline = Deadline::after(LIMIT);
    let (now, history) = (map(), History::new(4));
    let read = |map: &Map, ssd, incarnation| {
        standing(map, ssd, incarnation).judge_read(&map.rows[0], map.epoch, false, &history)
    };
    assert_eq!(read(&now, 0, 2), Err(Refused::NotServing));
    assert_eq!(read(&now, 1, 1), Err(Refused::AskTheFirst), "today: no SSD answers, for ever");
    let next = now.lose(0, 2).unwrap();
    assert_eq!(read(&next, 1, 1), Ok(()));
    let last = next.lose(1, 2).unwrap();
    assert_eq!(last.ssds[1].state, SsdState::Absent, "the last copy is not dropped");
    assert_eq!(read(&last, 1, 1), Err(Refused::NotServing));
    assert_eq!(last.rows[1].places[0], Place::Empty, "its other group has another copy, and goes on");
    assert_eq!(last.back(1, 2, 3), Err(Unchanged::Lossy));
    assert_eq!(read(&last.back(1, 1, 3).unwrap(), 1, 1), Ok(()), "back with its content it serves again");
}

/// Rule 3a. Two daemons read the same highest term, 4, and start together.
#[test]
fn two_daemons_that_start_together_do_not_share_a_term() {
    let _deadline = Deadline::after(LIMIT);
    let today = |known: u64, term: u64| term >= known;
    assert!(today(4, 5) && today(5, 5), "the rule of today: no lower term, so both have term 5");
    let mut voters = [Voter::new(map()), Voter::new(map()), Voter::new(map())];
    let mut candidates = [Candidate::new(ARRAY, 5, 100), Candidate::new(ARRAY, 5, 200)];
    for (order, v) in [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)] {
        let candidate: &mut Candidate<Map> = &mut candidates[order];
        if let Ok(promise) = voters[v].take_term(ARRAY, candidate.term, candidate.instance) {
            candidate.promised(u16::try_from(v).unwrap(), promise);
        }
    }
    let elected = candidates.map(|candidate| candidate.elected().is_some());
    assert_eq!(elected, [true, false]);
}

/// Rule 3b. An SSD of another array, with epoch 90, stands at an address of this one.
#[test]
fn an_ssd_of_another_array_does_not_win_the_start() {
    let _deadline = Deadline::after(LIMIT);
    let foreign = Map { array: OTHER, epoch: 90, ..map() };
    let newest = [map(), foreign.clone(), map()].into_iter().max_by_key(|map| (map.epoch, map.term)).unwrap();
    assert_eq!(newest.array, OTHER, "the rule of today: the newest map wins");
    let mut candidate = Candidate::new(ARRAY, 5, 100);
    candidate.promised(1, Promise { array: OTHER, active: foreign.clone(), held: None });
    candidate.promised(0, Promise { array: ARRAY, active: map(), held: None });
    assert_eq!(candidate.elected(), None, "one of three");
    candidate.promised(2, Promise { array: ARRAY, active: map(), held: None });
    assert_eq!(candidate.elected().unwrap().active, map());
    let mut voter = Voter::new(foreign);
    assert_eq!(voter.take_term(ARRAY, 5, 100), Err(Refused::OtherArray));
    assert_eq!(voter.hold(5, 100, map()), Err(Refused::OtherArray));
    assert_eq!(voter.activate(map()), Err(Refused::OtherArray));
    assert_eq!(voter.answer(&ask(0, 1)), Err(Refused::OtherArray));
}

/// Rule 6a. Write 1 of block 300 reaches one of two replicas and waits for the other. 4,096 writes of other
/// blocks go by: 128 slots do not bound the sequences in flight.
#[test]
fn a_window_that_forgets_leaves_a_bit_for_the_region() {
    let _deadline = Deadline::after(LIMIT);
    let mut history = History::new(4096);
    history.record(300, stamp(1));
    for sequence in 2..=4097 {
        history.record(u32::try_from(sequence).unwrap() * 1000, stamp(sequence));
    }
    let in_window = (2..=4097u64).any(|sequence| sequence * 1000 == 300);
    assert!(!in_window, "the rule of today: a settle by the window alone leaves the replicas different");
    assert!(history.unsettled().includes(300) && history.unsettled().includes(256));
    assert!(!history.unsettled().includes(100_000_000));
    history.settle(stamp(4000));
    assert!(!history.unsettled().includes(300), "the mark has passed what left the window");
    assert!(history.unsettled().includes(4_050_000));
    history.settle(ALL);
    assert!(!history.unsettled().includes(4_050_000), "a settled volume needs no window");
    history.granted(2);
    assert!(!history.is_settled() && history.mark() > stamp(4097), "stamps of the last lease stay settled");
    history.tear();
    assert!(history.unsettled().includes(5), "after a power cut: everything of the lease epoch");
}

/// Rule 8a. The daemon is away for ten minutes; an SSD restarts. The writer holds its lease.
#[test]
fn no_clock_of_an_ssd_ends_a_write_lease() {
    let _deadline = Deadline::after(LIMIT);
    let (renewed_at, lease_ms, now) = (0u64, 100_000u64, 600_000u64);
    assert!(now >= renewed_at + lease_ms, "the rule of today: every SSD refuses the writer");
    let (map, history) = (map(), History::new(4));
    let write = |entry| standing(&map, 0, 1).judge_write(&map.rows[0], 1, stamp(1), entry, &history, 2);
    assert_eq!(write(OPEN), Ok(()));
    let taken_away = Entry { has_writer: false, ..OPEN };
    assert_eq!(write(taken_away), Err(Refused::LeaseExpired), "CHMOD ends it");
}

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
    let next = map().lose(0, 2).unwrap().fill(0, 2, 1, 2).unwrap();
    let reached = set(&[1]);
    let request = Request { has_it: reached, ..Request::new(stamp(1), next.epoch) };
    assert!(!request.is_acknowledged(next.rows[0].members()), "grown too early, that writer writes nothing");
    assert!(!may_grow([Reach::Yes, Reach::Unknown]));
    assert!(may_grow([Reach::Yes, Reach::Revoked]) && may_grow([]));
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
    let from_first = Roles::BothServing { peer_is_first: true };
    assert_eq!(compare(from_first, good, rotten, None), Verdict::Take, "by place alone rot would spread");
    assert_eq!(scrub(from_first, (good, true), (rotten, false), None), Verdict::Keep);
    let from_second = Roles::BothServing { peer_is_first: false };
    assert_eq!(scrub(from_second, (rotten, false), (good, true), None), Verdict::Take);
    assert_eq!(scrub(from_second, (block(2, 0), false), (good, true), None), Verdict::Keep, "an older copy");
    assert_eq!(scrub(from_second, (rotten, false), (good, false), None), Verdict::Keep);
}

/// Rule 16. A client was killed and comes back; SSD 1 still has a command of its old queue.
#[test]
fn a_client_gets_its_id_when_its_old_queues_are_gone_everywhere() {
    let _deadline = Deadline::after(LIMIT);
    let map = map();
    let old_command = standing(&map, 1, 1).judge_write(
        &map.rows[0],
        1,
        stamp(1),
        OPEN,
        &History::new(4),
        2,
    );
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
    let shrunk = map().lose(0, 2).unwrap();
    assert_eq!(shrunk.rows[0].places[..2], [Place::Empty, Place::Serving(1)], "nothing is drawn");
    assert_eq!(shrunk.fill(0, 0, 1, 2), Err(Unchanged::Incarnation));
    let fills = shrunk.fill(0, 0, 2, 2).unwrap();
    assert_eq!(fills.rows[0].places[..2], [Place::Filling(0), Place::Serving(1)]);
    let history = History::new(4);
    let read = |map: &Map| standing(map, 0, 2).judge_read(&map.rows[0], map.epoch, false, &history);
    assert_eq!(read(&fills), Err(Refused::NotHereYet));
    let serves = fills.serve(0, 0, 2, 2).unwrap();
    assert_eq!(serves.rows[0].first(), Some(1));
    assert_eq!(read(&serves), Err(Refused::AskTheFirst));
}
