// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is under way: commands of writers, and questions of SSDs with their answers.

use super::writers::Op;
use super::*;
use gnstor_base::controller::Question;
use gnstor_proto::pull::{PeerRead, Wanted};

/// A command of a writer to one SSD.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) ssd: usize,
    /// The life of the SSD that it was sent to.
    pub(super) life: u32,
    pub(super) volume: usize,
    pub(super) stamp: Stamp,
    pub(super) epoch: u64,
    pub(super) op: Op,
}

/// A question between two SSDs, or its answer.
pub(super) struct Letter {
    due: Time,
    from: usize,
    /// The life of the SSD that asked.
    life: u32,
    /// The epoch that it went by, and when it asked.
    epoch: u64,
    asked: Time,
    peer: usize,
    ask: AskId,
    /// Blocks of data in the answer.
    blocks: u64,
    content: Content,
}

enum Content {
    Question(Box<Sqe>),
    Answer(Option<(Cqe, Vec<u8>)>),
}

/// Admin queue of another SSD.
pub(super) fn peer_key(peer: usize) -> QueueKey {
    QueueKey(u32::try_from(40 + peer).expect("few"))
}

/// Most SSDs answer soon. Some answers come after the asking SSD has given up.
fn delay(dice: &mut Dice) -> Span {
    match dice.below(40) {
        0 => Span::from_ms(2_100),
        1..4 => Span::from_ms(1 + dice.below(60)),
        _ => Span::from_ns(dice.below(1_500_000)),
    }
}

impl World {
    /// Delivers one of the commands in flight.
    pub(super) fn deliver_any(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let at = self.dice.index(self.messages.len());
        let Message { ssd, life, .. } = self.messages[at];
        if self.nodes[ssd].life != life {
            // Its queue pair is gone. What is open is sent anew on the next one.
            let mut message = self.messages.swap_remove(at);
            message.life = self.nodes[ssd].life;
            return self.answered(&message, Some(Refusal::NotReady));
        }
        if !self.nodes[ssd].answers() {
            return;
        }
        let message = self.messages.swap_remove(at);
        let refused = self.execute(&message);
        self.answered(&message, refused);
    }

    fn execute(&mut self, message: &Message) -> Option<Refusal> {
        let Message { ssd, volume, stamp, epoch, ref op, .. } = *message;
        let vid = self.volumes[volume].vid();
        let harness = &mut self.nodes[ssd].harness;
        let opcode = if op.tag.is_some() { io::WRITE } else { io::WRITE_ZEROES };
        let mut sqe = sqe(opcode);
        let rw = ReadWrite {
            slba: Slba::pack(Address { vid, client: client(7), vba: op.vba }),
            blocks: op.blocks,
            fua: false,
            map_epoch: u32::try_from(epoch).expect("few"),
            stamp,
        };
        rw.encode(&mut sqe);
        if let Some(tag) = op.tag {
            for index in 0..op.blocks {
                harness.poke(WRITER, index as usize * BLOCK, &block(tag + u64::from(index)));
            }
            sqe.dptr = KeyedSgl::keyed(0, op.blocks * 4096, KEY);
        }
        harness.refused(WRITER, sqe)
    }

    /// Questions that were asked are sent.
    fn collect(&mut self) {
        for from in 0..3 {
            for (ask, peer, local) in std::mem::take(&mut self.nodes[from].harness.asked) {
                let harness = &self.nodes[from].harness;
                let region =
                    harness.regions.iter().find(|region| region.id() == local.region).expect("its own");
                let mut bytes = [0; Question::BYTES];
                region.read(local.offset, &mut bytes);
                let question = Question::decode(&bytes).expect("a question");
                let (due, life) = (self.now + delay(&mut self.dice), self.nodes[from].life);
                let epoch = PeerRead::of(&question.sqe).map_or(0, |read| u64::from(read.epoch));
                let asked = self.now;
                let content = Content::Question(Box::new(question.sqe));
                let peer = peer.into();
                self.letters.push(Letter { due, from, life, epoch, asked, peer, ask, blocks: 0, content });
            }
        }
    }

    /// Questions that were asked are sent, and what is due arrives.
    pub(super) fn post(&mut self) {
        self.collect();
        while let Some(at) = self.letters.iter().position(|letter| letter.due <= self.now) {
            let letter = self.letters.swap_remove(at);
            if self.nodes[letter.from].life != letter.life {
                continue;
            }
            match letter.content {
                Content::Question(sqe) => self.ask(Letter { content: Content::Answer(None), ..letter }, *sqe),
                Content::Answer(ref answer) => {
                    // An answer that comes too late, or after another map, is requested again.
                    let is_late = self.now >= letter.asked + Span::from_ms(2_000);
                    self.counts.lost += u64::from(is_late || answer.is_none());
                    if !is_late && self.nodes[letter.from].epoch() == letter.epoch {
                        self.budgets[letter.from].moved += letter.blocks;
                    }
                    let (from, ask) = (letter.from, letter.ask);
                    if let Content::Answer(answer) = letter.content {
                        self.hand_over(from, ask, answer);
                    }
                }
            }
        }
    }

    /// Answers to the SSD's questions no longer count.
    pub(super) fn let_go_of(&mut self, ssd: usize) {
        self.collect();
        for letter in self.letters.iter_mut().filter(|letter| letter.from == ssd) {
            letter.epoch = 0;
        }
    }

    fn ask(&mut self, letter: Letter, sqe: Sqe) {
        let due = self.now + delay(&mut self.dice);
        let is_reached = self.nodes[letter.from].is_reached && self.nodes[letter.peer].answers();
        if !is_reached {
            // The connection breaks, or nothing is heard at all.
            if self.dice.one_in(2) {
                self.letters.push(Letter { due, ..letter });
            }
            return;
        }
        let read = PeerRead::of(&sqe).expect("one of a repair");
        let (key, length) = (peer_key(letter.from), u32::try_from(read.bytes()).expect("few"));
        let other = &mut self.nodes[letter.peer].harness;
        let sqe = Sqe { dptr: KeyedSgl::keyed(0, length, KEY), flags: FLAGS_SGL, ..sqe };
        let cqe = other.run(key, sqe);
        let data = other.memory[&key][..read.bytes()].to_vec();
        let blocks = match read.wanted {
            Wanted::Blocks(mask) if refusal(&cqe).is_none() => u64::from(mask.count_ones()),
            _ => 0,
        };
        self.counts.moved += blocks;
        self.letters.push(Letter { due, blocks, content: Content::Answer(Some((cqe, data))), ..letter });
    }

    fn hand_over(&mut self, from: usize, ask: AskId, answer: Option<(Cqe, Vec<u8>)>) {
        let harness = &mut self.nodes[from].harness;
        let (cqe, data) = answer.map_or((None, Vec::new()), |(cqe, data)| (Some(cqe), data));
        harness.workers[0].answered(self.now, ask, cqe.as_ref(), &data);
        harness.pump();
    }
}
