// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any bytes as frames, and recorded conversations that are bent, against an array with an SSD.

use super::*;
use crate::tcp::limits;
use gnstor_base::testing::deadline;
use gnstor_hostile::mutate::{bent, inputs, seeds};
use gnstor_hostile::random::Random;
use std::collections::VecDeque;
use std::io::Write;

/// Frames of a client with an SSD: Connect, capsules, data and ends of transfers (`gnstor-hostile record`).
const CONVERSATION: &[u8] = include_bytes!("../../../../tests/hostile/corpus/conversation.bin");

/// The bytes of the recorded frames, each with its length.
fn recorded() -> Vec<Vec<u8>> {
    inputs(CONVERSATION)
}

/// Frames that an array sends.
fn of_an_array() -> Vec<Vec<u8>> {
    let frames = [
        Frame::Accept { conn: 1, refused: 0 },
        Frame::Ack { conn: 1, count: 1 },
        Frame::ToOwner { conn: 1, tag: 7, address: 0, key: 1, sum: Some(9), data: vec![5; 64] },
        Frame::FromOwner { conn: 1, tag: 8, address: 64, key: 1, bytes: 4096 },
        Frame::Response { conn: 1, cqe: [1; 16] },
        Frame::Closed { conn: 1 },
        Frame::End { why: 2 },
    ];
    let encoded = frames.iter().map(|frame| {
        let mut out = VecDeque::new();
        frame.encode(&mut out);
        Vec::from(out)
    });
    encoded.collect()
}

#[test]
fn any_bytes_are_one_frame_or_none_and_a_frame_is_the_same_after_a_round() {
    let _deadline = deadline();
    let corpus = [recorded(), of_an_array()].concat();
    assert!(corpus.iter().all(|frame| Frame::decode(&frame[4..]).is_some()), "the corpus holds frames");
    let mut taken = 0;
    let count = seeds(200, |seed| {
        let mut random = Random::new(seed);
        for _ in 0..100 {
            let input = bent(&mut random, &corpus);
            let Some(frame) = Frame::decode(input.get(4..).unwrap_or(&input)) else { continue };
            taken += 1;
            let mut again = VecDeque::new();
            frame.encode(&mut again);
            let again = Vec::from(again);
            assert_eq!(Frame::decode(&again[4..]).as_ref(), Some(&frame), "seed {seed}");
        }
    });
    assert!(taken > 10 * count, "{taken} frames in {count} seeds");
}

/// The queues that a controller may have commands of.
fn open_queues(puppet: &Puppet) -> Vec<QueueKey> {
    let seen = puppet.seen();
    let count = |list: &[QueueKey], queue| list.iter().filter(|&&other| other == queue).count();
    let is_open = |&queue: &QueueKey| count(&seen.opened, queue) > count(&seen.closed, queue);
    seen.opened.iter().copied().filter(is_open).collect()
}

/// An array in virtual time, with its controller and its memory.
struct World {
    array: RcTransport,
    puppet: Puppet,
    flash: Arc<HostRegion>,
    now: Time,
    seed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let (puppet, flash) = (Puppet::default(), HostRegion::alloc(1 << 16).unwrap());
        let config = TransportConfig { link: LinkConfig::UNLIMITED, ..TransportConfig::default() };
        let mut array = RcTransport::new(config);
        array.add_target(Box::new(puppet.clone()), vec![Arc::clone(&flash)]);
        Self { array, puppet, flash, now: Time::ZERO, seed }
    }

    fn steps(&mut self, count: u32) {
        for _ in 0..count {
            self.now = self.now + Span::from_ns(1000);
            self.array.step(self.now);
        }
    }

    /// Checks that an honest client beside the others can connect.
    fn let_in(&mut self) -> Wire {
        let (before, seed) = (self.puppet.seen().opened.len(), self.seed);
        let (mut honest, far) = pair();
        self.array.add_peer(far);
        honest.send(&Frame::Connect { conn: 1, ssd: 0, request: CmRequest::default() });
        let mut answer = None;
        for _ in 0..100_000 {
            honest.flush();
            self.steps(1);
            answer = honest.poll();
            if answer.is_some() {
                break;
            }
        }
        assert_eq!(answer, Some(Frame::Accept { conn: 1, refused: 0 }), "seed {seed}");
        assert_eq!(self.puppet.seen().opened.len(), before + 1, "seed {seed}");
        honest
    }
}

/// Sends the frame, another one, or a mutated one.
fn one_of(random: &mut Random, frame: &[u8], recorded: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = match random.below(4) {
        0 => bent(random, recorded),
        1 => recorded[random.below(recorded.len())].clone(),
        _ => frame.to_vec(),
    };
    // The length is right, so that what follows is heard, or it is not.
    if let Some(head) = frame.get(..4).map(<[u8]>::len)
        && random.below(8) > 0
    {
        let length = u32::try_from(frame.len() - head).unwrap().to_le_bytes();
        frame[..4].copy_from_slice(&length);
    }
    frame
}

/// The end of the honest client's transfer or of a later one. Length and sum of its data are right.
fn fitting_end(random: &mut Random, honest: u32) -> Vec<u8> {
    let data = vec![LANDED; 4096];
    let (conn, tag) = (1 + random.word() % 2, honest.wrapping_add(random.word() % 16));
    let (sum, mut out) = (crate::tcp::data_sum(&data), VecDeque::new());
    Frame::Done { conn, tag, status: COPY_OK, sum, data }.encode(&mut out);
    Vec::from(out)
}

/// A transfer that a client other than the honest one may end, as it likes.
fn ask_for_a_transfer(random: &mut Random, world: &World, honest: QueueKey) {
    let mut open = open_queues(&world.puppet);
    open.retain(|&queue| queue != honest);
    if let Some(&queue) = open.get(random.below(open.len().max(1))) {
        let memory = Memory { address: 0, key: 0 };
        let transfer = TransferId(random.word());
        let local = world.flash.slice(0, 4096);
        let pull = Effect::Pull { transfer, queue, cid: 0, remote: memory, local };
        world.puppet.seen().on_submit = vec![pull];
    }
}

/// Where the data of the honest client goes, and what is there before.
const HONEST_AT: u64 = 8192;
const BEFORE: [u8; 4096] = [0x5A; 4096];
/// What other clients send, as far as it fits a transfer of theirs.
const LANDED: u8 = 0x77;

/// An honest client whose data the array has asked for.
struct Honest {
    wire: Wire,
    queue: QueueKey,
    tag: u32,
}

impl Honest {
    fn new(world: &mut World) -> Self {
        world.flash.write(HONEST_AT, &BEFORE);
        let mut wire = world.let_in();
        let queue = *world.puppet.seen().opened.last().expect("its queue");
        let (remote, local) = (Memory { address: 0, key: 0 }, world.flash.slice(HONEST_AT, 4096));
        let pull = Effect::Pull { transfer: TransferId(1), queue, cid: 0, remote, local };
        world.puppet.seen().on_submit = vec![pull];
        wire.send(&Frame::Send { conn: 1, capsule: [0; 64] });
        for _ in 0..100_000 {
            wire.flush();
            world.steps(1);
            if let Some(Frame::FromOwner { tag, .. }) = wire.poll() {
                return Self { wire, queue, tag };
            }
        }
        panic!("seed {}: the array asks for no data", world.seed);
    }

    /// Checks that no other client has written where its data goes. Then it sends the data, which arrives.
    fn ends_its_transfer(mut self, world: &mut World) {
        let (mut found, seed) = ([0; 4096], world.seed);
        world.flash.read(HONEST_AT, &mut found);
        assert!(found == BEFORE, "seed {seed}: another client wrote into the honest one's block");
        let ended = world.puppet.seen().ended.len();
        let data = vec![7; 4096];
        let sum = crate::tcp::data_sum(&data);
        self.wire.send(&Frame::Done { conn: 1, tag: self.tag, status: COPY_OK, sum, data });
        for _ in 0..100_000 {
            self.wire.flush();
            world.steps(1);
            if world.puppet.seen().ended.len() > ended {
                break;
            }
        }
        let last = world.puppet.seen().ended.last().cloned();
        assert!(matches!(last, Some(Outcome::Done { .. })), "seed {seed}: it ends with {last:?}");
        world.flash.read(HONEST_AT, &mut found);
        assert!(found == [7; 4096], "seed {seed}: its data arrived");
    }
}

#[test]
fn a_bent_conversation_harms_no_other_client_and_leaves_nothing_behind() {
    let _deadline = deadline();
    let (recorded, mut landed) = (recorded(), 0);
    seeds(150, |seed| {
        let mut random = Random::new(seed);
        let (mut world, mut streams) = (World::new(seed), Vec::new());
        let honest = Honest::new(&mut world);
        for _ in 0..3 {
            let (mut client, far) = super::streams();
            world.array.add_peer(Wire::new(far).unwrap());
            for frame in &recorded {
                let frame = match random.below(16) {
                    0 => fitting_end(&mut random, honest.tag),
                    _ => one_of(&mut random, frame, &recorded),
                };
                ask_for_a_transfer(&mut random, &world, honest.queue);
                // The array may have closed the stream.
                let _ = client.write_all(&frame);
                world.steps(3);
            }
            streams.push(client);
        }
        assert!(world.array.transfers.len() <= 3 * limits::TRANSFERS + recorded.len(), "seed {seed}");
        let mut first = [0];
        world.flash.read(0, &mut first);
        landed += u32::from(first[0] == LANDED);
        let late = world.let_in();
        world.puppet.seen().on_submit.clear();
        honest.ends_its_transfer(&mut world);
        // All clients leave, and nothing of them stays.
        drop((streams, late));
        for _ in 0..100_000 {
            world.steps(1);
            if world.array.transfers.is_empty() && world.array.conns.iter().next().is_none() {
                return;
            }
        }
        panic!("seed {seed}: {} transfers and some connections stay", world.array.transfers.len());
    });
    assert!(landed > 0, "no other client has ended a transfer of its own");
}
