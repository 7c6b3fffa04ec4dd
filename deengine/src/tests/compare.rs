// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compare says whether the stored blocks are the host's, to hosts that may read them.

use super::*;
use crate::commands::scratch::Owner;

fn compare(harness: &mut Harness, key: QueueKey, vba: u32, tags: &[Option<u64>]) -> Option<Refusal> {
    for (index, tag) in tags.iter().enumerate() {
        harness.poke(key, index * BLOCK, &tag.map_or(vec![0; BLOCK], block));
    }
    let sqe = harness.io(io::COMPARE, key, vba, u32::try_from(tags.len()).unwrap());
    harness.refused(key, sqe)
}

#[test]
fn equal_blocks_compare_and_others_do_not() {
    let mut harness = Harness::new();
    harness.write(0, &[1, 2, 3]);
    assert_eq!(
        compare(&mut harness, READER, 0, &[Some(1), Some(2), Some(3), None]),
        None,
        "unwritten blocks are zeros"
    );
    for wrong in [[Some(2), Some(2), Some(3)], [Some(1), Some(2), None], [Some(1), Some(2), Some(4)]] {
        assert_eq!(compare(&mut harness, READER, 0, &wrong), Some(Refusal::CompareFailed));
    }
    harness.poke(READER, 2 * BLOCK, &block(3));
    let one = harness.memory[&READER][2 * BLOCK + 4095] ^ 1;
    harness.poke(READER, 2 * BLOCK + 4095, &[one]);
    let sqe = harness.io(io::COMPARE, READER, 2, 1);
    let last_byte = Sqe { dptr: KeyedSgl::keyed(2 * BLOCK as u64, 4096, KEY), ..sqe };
    let cqe = harness.run(READER, last_byte);
    assert_eq!((refusal(&cqe), cqe.status_word() & 0x7FF), (Some(Refusal::CompareFailed), 0x285));
    assert_eq!((harness.in_flight(), harness.stats().blocks_read), (0, 0));
}

#[test]
fn compare_asks_for_what_a_read_asks_for() {
    let mut harness = Harness::new();
    harness.write(0, &[1]);
    assert_eq!(compare(&mut harness, WRITER, 0, &[Some(1)]), None);
    assert_eq!(compare(&mut harness, STRANGER, 0, &[Some(1)]), Some(Refusal::NotAReader));
    let other = harness.io(io::COMPARE, WRITER, 0, 1);
    assert_eq!(harness.refused(READER, other), Some(Refusal::WrongIdentity));
    let good = harness.io(io::COMPARE, READER, 0, 1);
    let cases = [
        (Sqe { flags: FLAGS_SGL | 1, ..good }, Refusal::InvalidField),
        (Sqe { nsid: 2.into(), ..good }, Refusal::InvalidNamespace),
        (Sqe { dptr: KeyedSgl::keyed(0, 512, KEY), ..good }, Refusal::InvalidSgl),
        (Sqe { dptr: KeyedSgl::keyed(0, 4096, 1), ..good }, Refusal::TransferError),
        (Sqe { cdw12: 256.into(), ..good }, Refusal::InvalidField),
        (harness.io(io::COMPARE, READER, 15, 2), Refusal::InvalidField),
        (harness.io(io::COMPARE, READER, 512, 1), Refusal::OutOfRange),
    ];
    for (sqe, want) in cases {
        assert_eq!(harness.refused(READER, sqe), Some(want), "{sqe:?}");
    }
    assert_eq!(harness.in_flight(), 0);
}

#[test]
fn a_damaged_or_foreign_page_is_an_error_and_not_a_difference() {
    let mut harness = Harness::new();
    harness.write(0, &[1, 2]);
    harness.damage(0);
    assert_eq!(compare(&mut harness, READER, 0, &[Some(1)]), Some(Refusal::BadChecksum));
    harness.ssd().ftl().misdirect(vid(VOLUME), 0, 1);
    assert_eq!(compare(&mut harness, READER, 0, &[Some(1)]), Some(Refusal::WrongKey));
}

#[test]
fn what_is_compared_is_what_is_there_when_the_data_is() {
    let mut harness = Harness::new();
    harness.write(0, &[1]);
    harness.hold = true;
    harness.poke(READER, 0, &block(2));
    let sqe = harness.io(io::COMPARE, READER, 0, 1);
    let cid = harness.submit(READER, sqe);
    let held = std::mem::take(&mut harness.held);
    harness.hold = false;
    harness.write(0, &[2]);
    harness.held = held;
    harness.release(|_| 0);
    assert_eq!(refusal(&harness.take(READER, cid).unwrap()), None);
}

/// A full write buffer is no reason to call a healthy block unreadable.
#[test]
fn a_compare_needs_no_frame_of_the_write_buffer() {
    let mut harness = Harness::new();
    harness.write(0, &[1, 2]);
    let mut frames = Vec::new();
    harness.ssd().ftl().take_frames(u32::MAX, |frame| frames.push(frame));
    assert_eq!(harness.free_frames(), 0);
    assert_eq!(compare(&mut harness, READER, 0, &[Some(1), Some(2)]), None);
    assert_eq!(compare(&mut harness, READER, 0, &[Some(1), Some(3)]), Some(Refusal::CompareFailed));
    harness.ssd().ftl().give_frames(frames.into_iter());
    assert!(harness.frames_are_whole());
}

#[test]
fn a_reader_revoked_while_the_data_travels_learns_nothing() {
    let mut harness = Harness::new();
    harness.write(0, &[1]);
    harness.hold = true;
    harness.poke(READER, 0, &block(1));
    let sqe = harness.io(io::COMPARE, READER, 0, 1);
    let cid = harness.submit(READER, sqe);
    let chmod = harness.chmod(|entry| entry.readers.clear());
    assert!(harness.take(DAEMON, chmod).is_none(), "the fence waits for it");
    harness.release(|_| 0);
    assert_eq!(refusal(&harness.take(READER, cid).unwrap()), Some(Refusal::NotAReader));
    assert_eq!(refusal(&harness.take(DAEMON, chmod).unwrap()), None);
}

#[test]
fn a_compare_without_a_buffer_may_be_tried_again_and_one_whose_queue_goes_gives_its_back() {
    let mut harness = Harness::new();
    harness.chmod(|entry| entry.capacity_blocks = 1 << 20);
    harness.hold = true;
    // 16 blocks need a large buffer, of which there are eight.
    let results: Vec<_> = (0..9)
        .map(|_| {
            let sqe = harness.io(io::COMPARE, READER, 0, 16);
            let cid = harness.submit(READER, sqe);
            harness.take(READER, cid).map(|cqe| refusal(&cqe))
        })
        .collect();
    // A client may have half of the large buffers.
    assert_eq!(results[..4], [None; 4]);
    assert!(results[4..].iter().all(|result| *result == Some(Some(Refusal::NotReady))), "{results:?}");
    harness.memory.remove(&READER);
    harness.close_queue(harness.now, READER);
    harness.release(|_| 0);
    assert_eq!(harness.in_flight(), 0);
    for _ in 0..8 {
        assert!(harness.ssd().commands.scratch_mut().take(Owner::Daemon, 65_536).is_some_and(|buffer| {
            let _ = buffer;
            true
        }));
    }
}

/// Two client ids, perhaps of one principal, have all large buffers that the daemon leaves.
#[test]
fn a_host_that_keeps_scratch_memory_loses_its_queue_when_others_want_some() {
    let mut harness = Harness::new();
    harness.chmod(|entry| entry.any_reader = true);
    harness.hold = true;
    let ask = |harness: &mut Harness, key: QueueKey| {
        let sqe = harness.io(io::COMPARE, key, 0, 16);
        let cid = harness.submit(key, sqe);
        harness.take(key, cid).map(|cqe| refusal(&cqe))
    };
    for _ in 0..4 {
        assert_eq!(ask(&mut harness, READER), None);
    }
    harness.advance(Span::from_ms(500));
    for _ in 0..3 {
        assert_eq!(ask(&mut harness, WRITER), None);
    }
    assert_eq!(ask(&mut harness, STRANGER), Some(Some(Refusal::NotReady)));
    harness.advance(Span::from_ms(1_499));
    assert!(harness.role(READER).is_some(), "a host has a buffer for 2 s");
    assert_eq!(ask(&mut harness, STRANGER), Some(Some(Refusal::NotReady)));
    harness.advance(Span::from_ms(1));
    assert!(harness.role(READER).is_none(), "the one that has had one for the longest");
    assert!(harness.role(WRITER).is_some());
    harness.release(|_| 0);
    assert_eq!(ask(&mut harness, STRANGER), Some(Some(Refusal::CompareFailed)), "it has a buffer");
}

#[test]
fn a_host_keeps_scratch_memory_while_there_is_enough_or_no_other_asks() {
    for others_ask in [false, true] {
        let mut harness = Harness::new();
        harness.hold = true;
        for _ in 0..if others_ask { 3 } else { 4 } {
            let sqe = harness.io(io::COMPARE, READER, 0, 16);
            harness.submit(READER, sqe);
        }
        harness.advance(Span::from_ms(10_000));
        if others_ask {
            let sqe = harness.io(io::COMPARE, WRITER, 0, 16);
            harness.submit(WRITER, sqe);
        }
        harness.advance(Span::from_ms(10_000));
        assert!(harness.role(READER).is_some());
    }
}
