// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rule 2: an SSD whose serving lease is over serves nothing, and nothing that was under way either.

use super::*;
use gnstor_proto::vendor::{SERVING_LEASE_MS, WRITE_LEASE_MS};

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
    harness.chmod(|entry| entry.lease_ms = *WRITE_LEASE_MS.end());
    harness.advance_alive(Span::from_ms(3_599_999));
    assert_eq!(attempts(&mut harness)[..3], [None; 3]);
}

#[test]
fn the_ssd_serves_until_the_lease_is_over_and_again_after_a_renewal() {
    let mut harness = Harness::new();
    harness.chmod(|entry| entry.lease_ms = *WRITE_LEASE_MS.end());
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
    assert_eq!(renew(&mut harness, 1, 1, 10), None);
    harness.now = harness.now + Span::from_ns(9_999_990);
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
        assert_eq!(renew(&mut harness, 1, 1, 10), None);
        harness.now = harness.now + Span::from_ns(9_999_990);
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
        (Arc::as_ptr(ssd.table.rules()), ssd.workers().version())
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

/// The metadata as it is written: a start takes an entry with any lease, of any daemon.
fn write_entry(harness: &mut Harness, entry: &VolumeEntry) {
    let mut ssd = harness.ssd();
    let metadata = ssd.admin.volumes_mut().metadata_mut();
    metadata.start_entry(entry.vid, entry.encode().as_bytes());
    assert!(matches!(metadata.poll(), std::task::Poll::Ready(Ok(()))));
}

#[test]
fn a_serving_lease_out_of_its_bounds_is_refused_even_from_the_daemon_and_changes_nothing() {
    let (least, most) = SERVING_LEASE_MS.into_inner();
    let mut harness = Harness::new();
    for ms in [1, least - 1, most + 1, u32::MAX] {
        assert_eq!(renew(&mut harness, 9, 9, ms), Some(Refusal::InvalidField), "{ms} ms");
    }
    assert_eq!(attempts(&mut harness)[0], None, "no lease has begun");
    assert_eq!(renew(&mut harness, 1, 1, least), None, "the term of a refused one is not taken");
    harness.advance(Span::from_ms(least.into()));
    assert_eq!(attempts(&mut harness)[0], Some(Refusal::NotServing));
    for ms in [most, 0] {
        assert_eq!(renew(&mut harness, 1, 2, ms), None);
    }
}

#[test]
fn a_write_lease_out_of_its_bounds_is_refused_even_from_the_daemon_and_changes_nothing() {
    let (least, most) = WRITE_LEASE_MS.into_inner();
    let mut harness = Harness::new();
    let with =
        |raw: u16, version: u64, lease_ms: u32| VolumeEntry { version, lease_ms, term: 1, ..entry(raw) };
    for ms in [1, least - 1, most + 1, u32::MAX] {
        for (code, volume) in
            [(opcode::VOLUME_CHMOD, with(VOLUME, 2, ms)), (opcode::VOLUME_ADD, with(6, 1, ms))]
        {
            let volume = VolumeEntry { term: 9, ..volume };
            let cqe = harness.volume_command(code, &volume);
            assert_eq!(refusal(&cqe), Some(Refusal::InvalidField), "{code:02x}h, {ms} ms");
        }
    }
    assert!(harness.ssd().table.volume(vid(6)).is_none());
    for (version, ms) in [(2, least), (3, most), (4, 0)] {
        let cqe = harness.volume_command(opcode::VOLUME_CHMOD, &with(VOLUME, version, ms));
        assert_eq!(refusal(&cqe), None, "{ms} ms, with a term below the refused one");
    }
}

#[test]
fn an_entry_with_any_lease_is_read_from_the_metadata_of_an_earlier_program() {
    for lease_ms in [1, u32::MAX] {
        let (kept, mut harness) = super::smart_counters::Kept::new();
        harness.write(0, &[1]);
        write_entry(&mut harness, &VolumeEntry { version: 2, lease_ms, ..entry(VOLUME) });
        harness.ssd().shut_down().unwrap();
        let mut harness = kept.restart(harness);
        assert_eq!(harness.ssd().table.volume(vid(VOLUME)).unwrap().entry().lease_ms, lease_ms);
        assert_eq!(
            attempts(&mut harness)[1],
            Some(Refusal::NotServing),
            "its clock stopped with the power, and the daemon has not said yet that the lease runs"
        );
    }
}
