// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rule 2: an SSD whose serving lease is over serves nothing, and nothing that was under way either.

use super::*;

pub(super) fn renew(harness: &mut Harness, term: u32, version: u32, ms: u32) -> Option<Refusal> {
    let sqe = Sqe { cdw2: version.into(), cdw12: ms.into(), cdw14: term.into(), ..sqe(opcode::LEASE_RENEW) };
    let (held, hold) = (std::mem::take(&mut harness.held), std::mem::replace(&mut harness.hold, false));
    let refused = harness.refused(DAEMON, sqe);
    (harness.held, harness.hold) = (held, hold);
    refused
}

fn attempts(harness: &mut Harness) -> Vec<Option<Refusal>> {
    [io::READ, io::WRITE, io::WRITE_ZEROES, io::COMPARE]
        .into_iter()
        .map(|opcode| {
            let sqe = harness.io(opcode, WRITER, 0, 1);
            harness.refused(WRITER, sqe)
        })
        .collect()
}

#[test]
fn without_a_renewal_there_is_no_lease() {
    let mut harness = Harness::new();
    harness.chmod(|entry| entry.lease_ms = u32::MAX);
    harness.advance(Span::from_ms(3_600_000));
    assert_eq!(attempts(&mut harness)[..3], [None; 3]);
}

#[test]
fn the_ssd_serves_until_the_lease_is_over_and_again_after_a_renewal() {
    let mut harness = Harness::new();
    harness.chmod(|entry| entry.lease_ms = u32::MAX);
    assert_eq!(renew(&mut harness, 1, 1, 500), None);
    harness.advance(Span::from_ms(499));
    assert_eq!(attempts(&mut harness)[..3], [None; 3]);
    harness.advance(Span::from_ms(1));
    assert_eq!(attempts(&mut harness), [Some(Refusal::NotServing); 4]);
    assert_eq!(renew(&mut harness, 1, 1, 500), None);
    assert_eq!(attempts(&mut harness)[..3], [None; 3]);
    assert_eq!(renew(&mut harness, 1, 2, 0), None, "ends at once");
    assert_eq!(attempts(&mut harness), [Some(Refusal::NotServing); 4]);
}

#[test]
fn an_older_term_or_version_renews_nothing() {
    let mut harness = Harness::new();
    assert_eq!(renew(&mut harness, 5, 7, 500), None);
    for (term, version, want) in [(4, 9, Refusal::StaleTerm), (5, 6, Refusal::StaleVersion)] {
        assert_eq!(renew(&mut harness, term, version, 60_000), Some(want));
    }
    harness.advance(Span::from_ms(500));
    assert_eq!(attempts(&mut harness)[0], Some(Refusal::NotServing));
    assert_eq!(renew(&mut harness, 6, 1, 500), None, "a new term has versions of its own");
    assert_eq!(attempts(&mut harness)[0], None);
}

#[test]
fn what_ends_behind_the_lease_is_refused() {
    let mut harness = Harness::new();
    harness.write(0, &[1]);
    assert_eq!(renew(&mut harness, 1, 1, 500), None);
    // A read has looked at its data by then: its answer may be late, and is not wrong.
    for opcode in [io::WRITE, io::COMPARE] {
        harness.hold = true;
        let sqe = harness.io(opcode, WRITER, 0, 1);
        let cid = harness.submit(WRITER, sqe);
        harness.advance(Span::from_ms(500));
        harness.release(|_| 0);
        assert_eq!(refusal(&harness.take(WRITER, cid).unwrap()), Some(Refusal::NotServing), "{opcode:02x}h");
        assert_eq!(renew(&mut harness, 1, 1, 500), None);
    }
    assert_eq!(harness.read(0), block(1), "the write was not applied");
}

#[test]
fn a_read_that_is_modelled_to_end_behind_the_lease_is_refused() {
    let mut harness = Harness::timed();
    harness.write(0, &[1]);
    harness.advance(Span::from_ms(100));
    assert_eq!(renew(&mut harness, 1, 1, 1), None);
    harness.now = harness.now + Span::from_ns(999_990);
    let sqe = harness.io(io::READ, WRITER, 0, 1);
    assert_eq!(harness.refused(WRITER, sqe), Some(Refusal::NotServing));
    assert!(harness.ssd().table.serves(harness.now), "it was taken in time");
}

#[test]
fn a_write_that_is_modelled_to_end_behind_the_lease_is_not_acknowledged() {
    for fua in [false, true] {
        let mut harness = Harness::timed();
        harness.write(0, &[1]);
        harness.advance(Span::from_ms(100));
        assert_eq!(renew(&mut harness, 1, 1, 1), None);
        harness.now = harness.now + Span::from_ns(999_990);
        let mut sqe = harness.io(io::WRITE, WRITER, 0, 1);
        sqe.cdw12 = (sqe.cdw12.get() | u32::from(fua) << 30).into();
        let cid = harness.submit(WRITER, sqe);
        assert!(harness.ssd().table.serves(harness.now), "it was taken in time");
        let end = harness.now + Span::from_ms(50);
        harness.step_to(end);
        assert_eq!(refusal(&harness.take(WRITER, cid).unwrap()), Some(Refusal::NotServing), "FUA {fua}");
        // A Flush is no volume's data: it says what is durable, lease or not.
        let cid = harness.submit(WRITER, super::sqe(io::FLUSH));
        let end = harness.now + Span::from_ms(50);
        harness.step_to(end);
        assert_eq!(refusal(&harness.take(WRITER, cid).unwrap()), None);
    }
}

#[test]
fn an_ssd_that_ever_had_a_lease_does_not_serve_after_a_restart_until_it_has_one_again() {
    for leased in [false, true] {
        let (kept, mut harness) = super::smart_counters::Kept::new();
        harness.write(0, &[1]);
        if leased {
            assert_eq!(renew(&mut harness, 2, 1, 60_000), None);
        }
        harness.ssd().shut_down().unwrap();
        let mut harness = kept.restart(harness);
        let read = |harness: &mut Harness| {
            let sqe = harness.io(io::READ, READER, 0, 1);
            harness.refused(READER, sqe)
        };
        assert_eq!(read(&mut harness), leased.then_some(Refusal::NotServing));
        assert_eq!(renew(&mut harness, 1, 9, 60_000), leased.then_some(Refusal::StaleTerm));
        assert_eq!(renew(&mut harness, 2, 1, 60_000), None);
        assert_eq!(read(&mut harness), None);
        assert_eq!(harness.peek(READER, 0), block(1));
        // A cut without a word does not make it trim, either.
        let mut harness = kept.restart(harness);
        assert_eq!(read(&mut harness), Some(Refusal::NotServing));
    }
}

#[test]
fn a_renewal_touches_no_rules_and_an_end_that_comes_nearer_has_waiting_writes_judged_again() {
    let mut harness = Harness::new();
    let state = |harness: &Harness| {
        let ssd = harness.ssd();
        (Arc::as_ptr(ssd.table.rules()), ssd.workers.version())
    };
    assert_eq!(renew(&mut harness, 1, 1, 500), None);
    let before = state(&harness);
    for version in 2..10 {
        harness.advance(Span::from_ms(100));
        assert_eq!(renew(&mut harness, 1, version, 500), None);
    }
    assert_eq!(state(&harness), before);
    assert_eq!(renew(&mut harness, 1, 10, 499), None);
    assert_eq!(state(&harness), (before.0, before.1 + 1));
    harness.advance(Span::from_ms(499));
    assert_eq!(attempts(&mut harness), [Some(Refusal::NotServing); 4]);
}
