// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any capsule bytes, in any order, with transfers that end in any way: a status each, never a panic,
//! nothing lost.

use super::oracle::Dice;
use super::voting::PEER;
use super::*;
use proptest::prelude::*;
use zerocopy::FromBytes;

#[derive(Clone, Debug)]
enum Step {
    /// A capsule on one of the queues: any bytes, with the first few turned into something likelier.
    Capsule { queue: u8, bytes: [u8; 64], shape: u8 },
    /// A transfer that is under way ends.
    End { which: u16, how: u8 },
    /// A transfer ends that the SSD may not know.
    Stray { transfer: u32 },
    /// A connection closes and opens again.
    Reopen { queue: u8 },
    /// Time passes.
    Wait { ms: u16 },
}

const QUEUES: [QueueKey; 7] = [DAEMON, QueueKey(70), WRITER, READER, STRANGER, QueueKey(300), PEER];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (any::<u8>(), any::<[u8; 64]>(), any::<u8>())
            .prop_map(|(queue, bytes, shape)| Step::Capsule { queue, bytes, shape }),
        5 => (any::<u16>(), any::<u8>()).prop_map(|(which, how)| Step::End { which, how }),
        1 => any::<u32>().prop_map(|transfer| Step::Stray { transfer }),
        1 => any::<u8>().prop_map(|queue| Step::Reopen { queue }),
        1 => (0u16..1500).prop_map(|ms| Step::Wait { ms }),
    ];
    proptest::collection::vec(step, 1..120)
}

/// Random bytes seldom get past the first check: most capsules get a known opcode, and many a good frame
/// and address.
fn shaped(harness: &mut Harness, key: QueueKey, bytes: [u8; 64], shape: u8) -> Sqe {
    let mut sqe = Sqe::read_from_bytes(&bytes).unwrap();
    if shape & 7 == 7 {
        let mut dice = Dice(u64::from_le_bytes(bytes[..8].try_into().expect("eight")));
        let (command, data) = opcodes::of_the_fleet(&mut dice, &voting::voted(&[0]));
        if harness.memory.contains_key(&key) {
            harness.poke(key, 0, &data);
        }
        return command;
    }
    if shape & 7 != 0 {
        let codes = opcodes::all();
        sqe.opcode = codes[usize::from(bytes[0]) % codes.len()];
    }
    if shape & 8 != 0 {
        sqe.flags = FLAGS_SGL;
        sqe.nsid = u32::from(bytes[4] % 2).into();
        let length = [4096, 16, 1024, 8192, 65_536, 1 << 20][usize::from(bytes[5]) % 6];
        sqe.dptr = KeyedSgl::keyed(u64::from(bytes[6] % 4) * 4096, length, KEY);
        sqe.cdw10 = (length / 4).into();
        sqe.cdw12 = u32::from(bytes[7] % 8).into();
    }
    if shape & 16 != 0 && matches!(sqe.opcode, io::READ | io::WRITE | io::WRITE_ZEROES) {
        let raw = u32::from(bytes[8] % 32);
        let blocks = u32::from(bytes[9] % 4) + 1;
        sqe = harness.io(sqe.opcode, key, raw, blocks);
    }
    if shape & 32 != 0 && sqe.opcode == gnstor_proto::fabrics::OPCODE {
        let kind = [fctype::CONNECT, fctype::DISCONNECT, fctype::PROPERTY_GET, fctype::PROPERTY_SET]
            [usize::from(bytes[9]) % 4];
        sqe.nsid = u32::from(kind).into();
    }
    sqe
}

fn end(harness: &mut Harness, which: u16, how: u8) {
    if harness.held.is_empty() {
        return;
    }
    let effect = harness.held.remove(usize::from(which) % harness.held.len());
    let (transfer, queue) = match effect {
        Effect::Pull { transfer, queue, .. } | Effect::Push { transfer, queue, .. } => (transfer, queue),
        _ => unreachable!("only transfers are held"),
    };
    match how % 8 {
        0 => harness.answer(queue, transfer, Outcome::BadChecksum),
        1 => harness.answer(queue, transfer, Outcome::RemoteAccess),
        2 => harness.answer(queue, transfer, Outcome::ConnectionLost),
        3 => harness.answer(queue, transfer, Outcome::Done { sum: u32::from(which) }),
        _ => harness.carry_out(effect),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_capsule_is_answered_or_dies_with_its_queue(votes in any::<bool>(), steps in steps()) {
        let mut harness = if votes { voting::with(&voting::voted(&[0])) } else { Harness::new() };
        if votes {
            harness.step_to(harness.now + Span::from_ms(1));
        } else {
            harness.connect(PEER, 0, Identity::Peer(1), CNTLID_ANY);
        }
        harness.write(0, &[1, 2, 3, 4]);
        harness.open(QueueKey(300), 0, 16);
        harness.hold = true;
        for step in steps {
            match step {
                Step::Capsule { queue, bytes, shape } => {
                    let key = QUEUES[usize::from(queue) % QUEUES.len()];
                    let sqe = shaped(&mut harness, key, bytes, shape);
                    if harness.memory.contains_key(&key) && shape & 64 != 0 {
                        harness.poke(key, 0, entry(VOLUME).encode().as_bytes());
                    }
                    harness.submit(key, sqe);
                }
                Step::End { which, how } => end(&mut harness, which, how),
                Step::Stray { transfer } => {
                    let known = harness.held.iter().any(|effect| match effect {
                        Effect::Pull { transfer: held, .. } | Effect::Push { transfer: held, .. } => {
                            held.0 == transfer
                        }
                        _ => false,
                    });
                    if !known {
                        harness.answer(DAEMON, TransferId(transfer), Outcome::Done { sum: 0 });
                    }
                }
                Step::Reopen { queue } => {
                    let key = QUEUES[usize::from(queue) % QUEUES.len()];
                    harness.memory.remove(&key);
                    harness.close_queue(harness.now, key);
                    harness.pump();
                    harness.open(key, u16::from(queue % 2), 16);
                }
                Step::Wait { ms } => harness.advance(Span::from_ms(ms.into())),
            }
        }
        harness.release(|left| left - 1);
        for key in QUEUES {
            harness.memory.remove(&key);
            harness.close_queue(harness.now, key);
        }
        for raw in [80u32, 90] {
            harness.close_queue(harness.now, QueueKey(raw));
        }
        harness.pump();
        prop_assert_eq!(harness.in_flight(), 0);
        let stats = harness.stats();
        prop_assert_eq!(stats.permits_issued, stats.permits_spent + stats.permits_forfeited);
        prop_assert!(harness.frames_are_whole());
    }
}
