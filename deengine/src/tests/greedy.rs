// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that takes what others need: frames for data that it never sends, controllers that it never
//! proves, thousands of commands.

use super::*;

/// I/O queues of client 7 on all workers, each with as many entries as a queue can have.
fn wide_queues(harness: &mut Harness) -> Vec<QueueKey> {
    let Some(Role::Admin(cntlid)) = harness.role(QueueKey(70)) else { panic!("client 7 is connected") };
    (2..14u16)
        .map(|qid| {
            let key = QueueKey(700 + u32::from(qid));
            harness.open(key, qid, 1024);
            let data = ConnectData::new(Identity::Client(client(7)), cntlid, &ssd_subnqn(0));
            let fields = ConnectFields { qid: qid.into(), sqsize_z: 1023.into(), ..Default::default() };
            assert_eq!(refusal(&harness.connect_with(key, fields, &data)), None);
            key
        })
        .collect()
}

/// A write of client 8 to a volume of its own.
fn write_of_other(harness: &mut Harness) -> Sqe {
    let mut sqe = harness.io(io::WRITE, READER, 0, 4);
    let mut fields = ReadWrite::decode(&sqe);
    fields.slba = Slba::pack(Address { vid: vid(6), client: client(8), vba: 0 });
    fields.encode(&mut sqe);
    sqe
}

#[test]
fn a_client_that_sends_no_data_leaves_frames_to_others() {
    let mut harness = Harness::new();
    let other = VolumeEntry { owner: client(8), writer: Some(client(8)), ..entry(6) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &other)), None);
    let queues = wide_queues(&mut harness);
    let all = harness.free_frames();
    harness.hold = true;
    // Four times as many as there are frames, and their data never comes.
    let commands = 4 * all / 16;
    for nth in 0..commands as usize {
        let key = queues[nth % queues.len()];
        let sqe = harness.io(io::WRITE, WRITER, 0, 16);
        harness.submit(key, sqe);
    }
    let left = harness.free_frames();
    assert!(left < all / 2, "its writes wait for their data: {left} of {all} frames are left");
    assert!(left >= 512, "{left} of {all} frames are left");
    // Another client's writes succeed on each worker, one after the other.
    let taken = std::mem::take(&mut harness.held);
    harness.hold = false;
    for _ in 0..64 {
        let sqe = write_of_other(&mut harness);
        assert_eq!(harness.refused(READER, sqe), None);
    }
    // The data comes after all, and every write ends.
    harness.held = taken;
    // Commands that begin meanwhile wait for their turns.
    harness.hold = true;
    for _ in 0..200 {
        while let Some(effect) = harness.held.pop() {
            harness.carry_out(effect);
        }
        harness.advance(Span::from_ms(1));
    }
    let done = harness.completions.iter().filter(|done| queues.contains(&done.queue)).count();
    assert_eq!(done, commands as usize, "each write is answered");
    assert_eq!((harness.in_flight(), harness.frames_are_whole()), (0, true));
    let shares = (0..WORKERS).map(|nth| harness.workers[nth].share_of(client(7))).sum::<u32>();
    assert_eq!((shares, harness.ssd().commands.frames_of(client(7))), (0, 0));
}

/// How often waiting commands are tried again in 20 ms.
fn tries(harness: &mut Harness) -> u64 {
    let before = harness.ssd().commands.tried_and_judged().0;
    harness.step_to(harness.now + Span::from_ms(20));
    harness.ssd().commands.tried_and_judged().0 - before
}

/// Each try is judged, under the lock of the SSD.
#[test]
fn writes_that_find_no_frames_are_tried_again_only_when_there_are_some() {
    let mut harness = Harness::new();
    let queues = wide_queues(&mut harness);
    harness.hold = true;
    // Four times as many blocks as there are frames, and their data never comes.
    let commands = 4 * harness.free_frames() as usize / 16;
    for nth in 0..commands {
        let sqe = harness.io(io::WRITE, WRITER, 0, 16);
        harness.submit(queues[nth % queues.len()], sqe);
    }
    let pulled = harness.held.len() / 16;
    assert!(pulled < commands / 2, "{pulled} of {commands} writes have frames");
    let before = tries(&mut harness);
    assert!(before < 100, "{before} tries, and no frame came back");
    // The data of the last twenty comes. The firmware pulled it, so the client may have as many frames anew.
    let taken = harness.held.split_off(harness.held.len() - 16 * 20);
    taken.into_iter().for_each(|effect| harness.carry_out(effect));
    let after = tries(&mut harness);
    let now_pulled = harness.held.len() / 16;
    assert!(now_pulled > pulled - 20, "{now_pulled} of {pulled} writes wait for data: none goes on");
    assert!(after < 1000, "{after} tries");
}

/// A fence does not wait for them, and their queues stay open.
#[test]
fn writes_that_find_no_frames_are_judged_by_each_new_entry_at_once() {
    let mut harness = Harness::new();
    let mut frames = Vec::new();
    harness.ssd().ftl().take_frames(u32::MAX, |frame| frames.push(frame));
    let cids: Vec<u16> = (0..20)
        .map(|nth| {
            let sqe = harness.io(io::WRITE, WRITER, nth, 1);
            harness.submit(WRITER, sqe)
        })
        .collect();
    let chmod = harness.chmod(|entry| entry.readers.clear());
    assert_eq!(refusal(&harness.take(DAEMON, chmod).expect("nothing to wait for")), None);
    assert!(cids.iter().all(|&cid| harness.take(WRITER, cid).is_none()), "they still may");
    let chmod = harness.chmod(|entry| entry.writer = None);
    assert_eq!(refusal(&harness.take(DAEMON, chmod).expect("nothing to wait for")), None);
    for &cid in &cids {
        let refused = refusal(&harness.take(WRITER, cid).expect("it is refused"));
        assert_eq!(refused, Some(Refusal::LeaseExpired));
    }
    harness.ssd().ftl().give_frames(frames.into_iter());
    harness.advance(Span::from_ms(1));
    assert_eq!((harness.in_flight(), harness.closed.len(), harness.frames_are_whole()), (0, 0, true));
}

/// A client may have a hundred thousand of them, and each change of an entry takes the lock of the SSD.
#[test]
fn a_change_of_rights_judges_few_waiting_writes_at_a_time_and_none_of_other_volumes() {
    let mut harness = Harness::new();
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &entry(6))), None);
    let mut frames = Vec::new();
    harness.ssd().ftl().take_frames(u32::MAX, |frame| frames.push(frame));
    let queues = wide_queues(&mut harness);
    let commands = 5000;
    for nth in 0..commands {
        let sqe = harness.io(io::WRITE, WRITER, 0, 1);
        harness.submit(queues[nth % queues.len()], sqe);
    }
    let judged = |harness: &Harness| harness.ssd().commands.tried_and_judged().1;
    let ended =
        |harness: &Harness| harness.completions.iter().filter(|done| queues.contains(&done.queue)).count();
    let other = VolumeEntry { version: 2, writer: None, ..entry(6) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_CHMOD, &other)), None);
    assert_eq!((judged(&harness), ended(&harness)), (0, 0), "the volume of no waiting write has changed");
    let chmod = harness.chmod(|entry| entry.writer = None);
    let first = ended(&harness);
    assert!((1..commands / 2).contains(&first), "{first} of {commands} at once");
    assert!(harness.take(DAEMON, chmod).is_none(), "some are not judged yet");
    harness.step_to(harness.now + Span::from_ms(1));
    assert_eq!(refusal(&harness.take(DAEMON, chmod).expect("all are judged")), None);
    assert_eq!((judged(&harness), ended(&harness)), (commands as u64, commands));
    harness.ssd().ftl().give_frames(frames.into_iter());
    harness.advance(Span::from_ms(1));
    assert_eq!((harness.in_flight(), harness.frames_are_whole()), (0, true));
}

/// A volume that is deleted ends all commands that wait for its rate. Its id may live again before all have
/// ended.
#[test]
fn a_volume_with_thousands_of_delayed_commands_is_deleted_a_part_at_a_time() {
    let mut harness = Harness::new();
    harness.chmod(|entry| entry.limits = Limits { max_iops: 1, max_bytes_per_s: 0 });
    let queues = wide_queues(&mut harness);
    harness.completions.clear();
    let commands = 5000;
    for nth in 0..commands {
        let sqe = harness.io(io::WRITE, WRITER, 0, 1);
        harness.submit(queues[nth % queues.len()], sqe);
    }
    let ended = |harness: &Harness, with: fn(Option<Refusal>) -> bool| {
        let own = harness.completions.iter().filter(|done| queues.contains(&done.queue));
        own.filter(|done| with(refusal(&done.cqe))).count()
    };
    let begun = ended(&harness, |_| true);
    assert!(begun < 100, "{begun} of {commands} have begun");
    harness.submit(DAEMON, Harness::delete_sqe(1, 3));
    harness.advance(Span::ZERO);
    // Each worker has made a step.
    let first = ended(&harness, |_| true) - begun;
    assert!((1..=WORKERS * 1024).contains(&first), "{first} of {commands} at once");
    let again = VolumeEntry { generation: 2, ..entry(VOLUME) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &again)), None);
    harness.step_to(harness.now + Span::from_ms(1));
    let deleting = ended(&harness, |refused| refused == Some(Refusal::Deleting));
    let unknown = ended(&harness, |refused| refused == Some(Refusal::UnknownVolume));
    assert_eq!((begun + deleting + unknown, harness.in_flight()), (commands, 0));
    assert!(unknown > 0, "some find another volume with the id");
    assert_eq!(harness.mapped_blocks(), 0, "none of them writes to it");
}

#[test]
fn frames_of_a_client_that_leaves_count_for_it_no_more() {
    let mut harness = Harness::new();
    let queues = wide_queues(&mut harness);
    harness.hold = true;
    let all = harness.free_frames();
    let commands = 2 * all / 16;
    for nth in 0..commands as usize {
        let sqe = harness.io(io::WRITE, WRITER, 0, 16);
        harness.submit(queues[nth % queues.len()], sqe);
    }
    assert!(harness.free_frames() < all / 2, "its writes wait for their data");
    for &key in &queues {
        harness.close_queue(harness.now, key);
    }
    for effect in std::mem::take(&mut harness.held) {
        let (Effect::Pull { queue, transfer, .. } | Effect::Push { queue, transfer, .. }) = effect else {
            panic!("not a transfer")
        };
        harness.hold = false;
        harness.answer(queue, transfer, Outcome::ConnectionLost);
    }
    harness.advance(Span::from_ms(10));
    let shares = (0..WORKERS).map(|nth| harness.workers[nth].share_of(client(7))).sum::<u32>();
    assert_eq!((shares, harness.ssd().commands.frames_of(client(7))), (0, 0));
    assert!(harness.frames_are_whole());
}

/// All ranges of a Dataset Management may be the same chunk, so a small volume is enough for a million
/// blocks.
#[test]
fn a_client_that_unmaps_a_million_blocks_leaves_turns_to_others() {
    let mut harness = Harness::new();
    let cids: Vec<u16> = (0..16)
        .map(|_| {
            let mut sqe = harness.io(io::DATASET_MANAGEMENT, WRITER, 0, 1);
            let slba = ReadWrite::decode(&sqe).slba.0.to_le_bytes();
            let range =
                [[0; 4], 16u32.to_le_bytes(), slba[..4].try_into().unwrap(), slba[4..].try_into().unwrap()];
            harness.poke(WRITER, 0, &range.concat().repeat(256));
            sqe.dptr = KeyedSgl::keyed(0, 4096, KEY);
            (sqe.cdw10, sqe.cdw11) = (255.into(), 4.into());
            harness.submit(WRITER, sqe)
        })
        .collect();
    let answered = |harness: &Harness| harness.completions.iter().filter(|done| done.queue == WRITER).count();
    assert!(answered(&harness) <= 2, "{} of them at once", answered(&harness));
    // Another command is answered meanwhile.
    let identify = Sqe { cdw10: 1.into(), dptr: KeyedSgl::keyed(0, 4096, KEY), ..sqe(admin::IDENTIFY) };
    assert_eq!(harness.refused(QueueKey(80), identify), None);
    assert!(answered(&harness) <= 4, "{} of them before it", answered(&harness));
    for _ in 0..40 {
        harness.advance(Span::from_ns(50_000));
    }
    for cid in cids {
        assert_eq!(refusal(&harness.take(WRITER, cid).expect("each is answered")), None);
    }
}
