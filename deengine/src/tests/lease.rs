// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rule 2: an SSD whose serving lease is over serves nothing, and nothing that was under way either.

use super::*;

fn renew(rig: &mut Rig, term: u32, version: u32, ms: u32) -> Option<Refusal> {
    let sqe = Sqe { cdw2: version.into(), cdw12: ms.into(), cdw14: term.into(), ..sqe(opcode::LEASE_RENEW) };
    let (held, hold) = (std::mem::take(&mut rig.held), std::mem::replace(&mut rig.hold, false));
    let refused = rig.refused(DAEMON, sqe);
    (rig.held, rig.hold) = (held, hold);
    refused
}

fn attempts(rig: &mut Rig) -> Vec<Option<Refusal>> {
    [io::READ, io::WRITE, io::WRITE_ZEROES, io::COMPARE]
        .into_iter()
        .map(|opcode| {
            let sqe = rig.io(opcode, WRITER, 0, 1);
            rig.refused(WRITER, sqe)
        })
        .collect()
}

#[test]
fn without_a_renewal_there_is_no_lease() {
    let mut rig = Rig::new();
    rig.chmod(|entry| entry.lease_ms = u32::MAX);
    rig.advance(Span::from_ms(3_600_000));
    assert_eq!(attempts(&mut rig)[..3], [None; 3]);
}

#[test]
fn the_ssd_serves_until_the_lease_is_over_and_again_after_a_renewal() {
    let mut rig = Rig::new();
    rig.chmod(|entry| entry.lease_ms = u32::MAX);
    assert_eq!(renew(&mut rig, 1, 1, 500), None);
    rig.advance(Span::from_ms(499));
    assert_eq!(attempts(&mut rig)[..3], [None; 3]);
    rig.advance(Span::from_ms(1));
    assert_eq!(attempts(&mut rig), [Some(Refusal::NotServing); 4]);
    assert_eq!(renew(&mut rig, 1, 1, 500), None);
    assert_eq!(attempts(&mut rig)[..3], [None; 3]);
    assert_eq!(renew(&mut rig, 1, 2, 0), None, "ends at once");
    assert_eq!(attempts(&mut rig), [Some(Refusal::NotServing); 4]);
}

#[test]
fn an_older_term_or_version_renews_nothing() {
    let mut rig = Rig::new();
    assert_eq!(renew(&mut rig, 5, 7, 500), None);
    for (term, version, want) in [(4, 9, Refusal::StaleTerm), (5, 6, Refusal::StaleVersion)] {
        assert_eq!(renew(&mut rig, term, version, 60_000), Some(want));
    }
    rig.advance(Span::from_ms(500));
    assert_eq!(attempts(&mut rig)[0], Some(Refusal::NotServing));
    assert_eq!(renew(&mut rig, 6, 1, 500), None, "a new term has versions of its own");
    assert_eq!(attempts(&mut rig)[0], None);
}

#[test]
fn what_ends_behind_the_lease_is_refused() {
    let mut rig = Rig::new();
    rig.write(0, &[1]);
    assert_eq!(renew(&mut rig, 1, 1, 500), None);
    // A read has looked at its data by then: its answer may be late, and is not wrong.
    for opcode in [io::WRITE, io::COMPARE] {
        rig.hold = true;
        let sqe = rig.io(opcode, WRITER, 0, 1);
        let cid = rig.submit(WRITER, sqe);
        rig.advance(Span::from_ms(500));
        rig.release(|_| 0);
        assert_eq!(refusal(&rig.take(WRITER, cid).unwrap()), Some(Refusal::NotServing), "{opcode:02x}h");
        assert_eq!(renew(&mut rig, 1, 1, 500), None);
    }
    assert_eq!(rig.read(0), block(1), "the write was not applied");
}

#[test]
fn a_read_that_is_modelled_to_end_behind_the_lease_is_refused() {
    let mut rig = Rig::timed();
    rig.write(0, &[1]);
    rig.advance(Span::from_ms(100));
    assert_eq!(renew(&mut rig, 1, 1, 1), None);
    rig.now = rig.now + Span::from_ns(999_990);
    let sqe = rig.io(io::READ, WRITER, 0, 1);
    assert_eq!(rig.refused(WRITER, sqe), Some(Refusal::NotServing));
    assert!(rig.ssd().table.serves(rig.now), "it was taken in time");
}

#[test]
fn a_write_that_is_modelled_to_end_behind_the_lease_is_not_acknowledged() {
    for fua in [false, true] {
        let mut rig = Rig::timed();
        rig.write(0, &[1]);
        rig.advance(Span::from_ms(100));
        assert_eq!(renew(&mut rig, 1, 1, 1), None);
        rig.now = rig.now + Span::from_ns(999_990);
        let mut sqe = rig.io(io::WRITE, WRITER, 0, 1);
        sqe.cdw12 = (sqe.cdw12.get() | u32::from(fua) << 30).into();
        let cid = rig.submit(WRITER, sqe);
        assert!(rig.ssd().table.serves(rig.now), "it was taken in time");
        let end = rig.now + Span::from_ms(50);
        rig.step_to(end);
        assert_eq!(refusal(&rig.take(WRITER, cid).unwrap()), Some(Refusal::NotServing), "FUA {fua}");
        // A Flush is nobody's data: it says what is durable, lease or not.
        let cid = rig.submit(WRITER, super::sqe(io::FLUSH));
        let end = rig.now + Span::from_ms(50);
        rig.step_to(end);
        assert_eq!(refusal(&rig.take(WRITER, cid).unwrap()), None);
    }
}

#[test]
fn an_ssd_that_ever_had_a_lease_does_not_serve_after_a_restart_until_it_has_one_again() {
    for leased in [false, true] {
        let (kept, mut rig) = super::odometer::Kept::new();
        rig.write(0, &[1]);
        if leased {
            assert_eq!(renew(&mut rig, 2, 1, 60_000), None);
        }
        rig.ssd().shut_down().unwrap();
        let mut rig = kept.restart(rig);
        let read = |rig: &mut Rig| {
            let sqe = rig.io(io::READ, READER, 0, 1);
            rig.refused(READER, sqe)
        };
        assert_eq!(read(&mut rig), leased.then_some(Refusal::NotServing));
        assert_eq!(renew(&mut rig, 1, 9, 60_000), leased.then_some(Refusal::StaleTerm));
        assert_eq!(renew(&mut rig, 2, 1, 60_000), None);
        assert_eq!(read(&mut rig), None);
        assert_eq!(rig.peek(READER, 0), block(1));
        // A cut without a word does not make it forget, either.
        let mut rig = kept.restart(rig);
        assert_eq!(read(&mut rig), Some(Refusal::NotServing));
    }
}
