// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The attacks of a hostile client.
#![expect(clippy::disallowed_methods, reason = "a program of its own, which waits in real time")]

use crate::frames::{self, kind};
use crate::insider::Insider;
use crate::random::Random;
use crate::streams;
use crate::talk::{Talk, identify, request};
use gnstor_proto::fabrics::CNTLID_ANY;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Kinds of attacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// A recorded conversation in which bits are flipped.
    Bent,
    /// The frames of a conversation in any order, repeated, cut, and with other lengths.
    Shuffled,
    /// Ends of transfers that the client may not end: with other tags, for other connections, twice, with
    /// data.
    Tags,
    /// Thousands of queue pairs that stay open, and on which Connect is never sent, or is sent without its
    /// data.
    Connects,
    /// Connections on which nothing is sent, or half a frame.
    Silent,
    /// Commands whose answers the client never reads.
    Deaf,
    /// Any 64 bytes as commands.
    Capsules,
    /// Connections that open and close.
    Flicker,
    /// Connections as fast as they can be opened, on which nothing is sent. The oldest of them close.
    Flood,
    /// Thousands of admin queues whose host proves nothing. On half of the connections it begins a proof, and
    /// replies to each challenge without the secret.
    Unproven,
    /// Good frames, a byte at a time on many connections, so that each frame takes a second or longer.
    Slow,
    /// First messages of TLS handshakes that the client does not continue. A port without TLS cannot decode
    /// them as frames.
    Hellos,
    /// Good frames with a request for new TLS keys before each, and then such requests without end.
    KeyUpdates,
    /// Commands of a client that has rights to a volume. They break every rule of transfers.
    Insider,
}

impl Attack {
    /// All kinds of attacks.
    pub const ALL: [Self; 14] = [
        Self::Bent,
        Self::Shuffled,
        Self::Tags,
        Self::Connects,
        Self::Silent,
        Self::Deaf,
        Self::Capsules,
        Self::Flicker,
        Self::Flood,
        Self::Unproven,
        Self::Slow,
        Self::Hellos,
        Self::KeyUpdates,
        Self::Insider,
    ];
}

/// Number of connections whose Connects never end: a host has more queue pairs that way than may wait.
const CONNECTS: usize = 8;

/// Counts of the attacks' results.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Number of attacks of each kind, in the order of [`Attack::ALL`].
    pub attacks: [u64; Attack::ALL.len()],
    /// Frames sent.
    pub frames: u64,
    /// Attacks that the array ended: it closed the connection, or refused it.
    pub ended: u64,
    /// Attacks of each kind that got no queue from the array, so they could do nothing.
    pub refused: [u64; Attack::ALL.len()],
    /// Commands of the insider that succeeded.
    pub succeeded: u64,
    /// Commands of the insider to its controller that succeeded.
    pub won: u64,
    /// Challenges of SSDs to which a reply without the secret was sent.
    pub challenged: u64,
}

impl Attack {
    /// The attack with this name, as `Debug` prints it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attack| format!("{attack:?}").eq_ignore_ascii_case(name))
    }
}

/// Attacks the array for this time, in one way or in all. Given the same answers of the array, the seed
/// determines all that is sent. Without an insider, the insider's attack is left out. Each attack is at one
/// of these SSDs, which are reached at the address.
///
/// # Panics
/// Without an SSD.
pub fn run(
    address: SocketAddr,
    ssds: &[u16],
    seed: u64,
    time: Duration,
    only: Option<Attack>,
    insider: Option<Insider>,
) -> Tally {
    let until = Instant::now() + time;
    let (mut random, mut tally) = (Random::new(seed), Tally::default());
    let mut recorded = Vec::new();
    let mut held = Vec::new();
    let flood = if only == Some(Attack::Flood) { streams::flood_alone() } else { streams::FLOOD };
    while Instant::now() < until {
        // A port with TLS answers no conversation.
        if recorded.is_empty()
            && !matches!(only, Some(Attack::Hellos | Attack::Flood))
            && let Ok(mut talk) = Talk::connect(address)
        {
            let _ = talk.conversation(ssds[0]);
            recorded = talk.sent;
        }
        let any = random.below(Attack::ALL.len() - usize::from(insider.is_none()));
        let place = Attack::ALL.iter().position(|&attack| Some(attack) == only).unwrap_or(any);
        let mut attacker = Attacker {
            address,
            ssd: ssds[random.below(ssds.len())],
            nth: tally.attacks[place],
            random: &mut random,
            recorded: &recorded,
            flood,
            frames: 0,
            succeeded: 0,
            won: 0,
            challenged: 0,
            refused: false,
        };
        tally.attacks[place] += 1;
        let ended = match Attack::ALL[place] {
            Attack::Bent => attacker.bent(),
            Attack::Shuffled => attacker.shuffled(),
            Attack::Tags => attacker.tags(),
            Attack::Connects => attacker.connects(&mut held),
            Attack::Silent => attacker.silent(&mut held),
            Attack::Deaf => attacker.deaf(&mut held),
            Attack::Capsules => attacker.capsules(),
            Attack::Flicker => attacker.flicker(),
            Attack::Flood => attacker.flood(&mut held),
            Attack::Unproven => attacker.unproven(&mut held),
            Attack::Slow => attacker.slow(),
            Attack::Hellos => attacker.hellos(&mut held),
            Attack::KeyUpdates => attacker.key_updates(),
            Attack::Insider => attacker.insider(insider.as_ref()),
        };
        tally.frames += attacker.frames;
        tally.refused[place] += u64::from(attacker.refused);
        tally.succeeded += attacker.succeeded;
        tally.won += attacker.won;
        tally.challenged += attacker.challenged;
        tally.ended += u64::from(ended.is_err());
    }
    tally
}

/// The Connect command of a queue, without its data.
fn connect_command(qid: u16) -> gnstor_proto::nvme::Sqe {
    let fields =
        gnstor_proto::fabrics::ConnectFields { qid: qid.into(), sqsize_z: 1.into(), ..Default::default() };
    let mut sqe = gnstor_proto::fabrics::command(gnstor_proto::fabrics::fctype::CONNECT, &fields);
    sqe.dptr = gnstor_proto::nvme::KeyedSgl::keyed(0, 1024, 1);
    sqe
}

pub(crate) struct Attacker<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) ssd: u16,
    /// Number of attacks of this kind before.
    pub(crate) nth: u64,
    pub(crate) random: &'a mut Random,
    pub(crate) recorded: &'a [Vec<u8>],
    /// Connections that a flood holds.
    pub(crate) flood: usize,
    pub(crate) frames: u64,
    /// Commands of the insider that succeeded, on the data path and to its controller.
    succeeded: u64,
    won: u64,
    pub(crate) challenged: u64,
    /// The array gave the attack no queue.
    refused: bool,
}

impl Attacker<'_> {
    pub(crate) fn say(&mut self, talk: &mut Talk, bytes: &[u8]) -> std::io::Result<()> {
        self.frames += 1;
        talk.send(bytes)
    }

    /// Reads for a moment what the array sends.
    fn listen(&mut self, talk: &mut Talk) -> std::io::Result<()> {
        let wait = Duration::from_millis(u64::from(self.random.word() % 3));
        while talk.receive(wait)?.is_some() {}
        Ok(())
    }

    fn bent(&mut self) -> std::io::Result<()> {
        let mut talk = Talk::connect(self.address)?;
        let victim = self.random.below(self.recorded.len().max(1));
        for (i, frame) in self.recorded.iter().enumerate() {
            let mut frame = frame.clone();
            if i == victim || self.random.below(16) == 0 {
                // The length field stays as it is: with a larger length the array would only wait for more
                // bytes.
                let at = 4 + self.random.below(frame.len() - 4);
                frame[at] ^= 1 << self.random.below(8);
            }
            self.say(&mut talk, &frame)?;
            self.listen(&mut talk)?;
        }
        Ok(())
    }

    fn shuffled(&mut self) -> std::io::Result<()> {
        let mut talk = Talk::connect(self.address)?;
        for _ in 0..64 {
            let mut frame = self.recorded[self.random.below(self.recorded.len())].clone();
            match self.random.below(16) {
                0 => frame.truncate(5 + self.random.below(frame.len() - 4)),
                1 => frame[self.random.below(4)] ^= 1 << self.random.below(8),
                _ => {}
            }
            self.say(&mut talk, &frame)?;
        }
        self.listen(&mut talk)
    }

    fn tags(&mut self) -> std::io::Result<()> {
        let mut talk = Talk::connect(self.address)?;
        self.refused = !talk.open(1, self.ssd, 0)? || !talk.open(2, self.ssd, 0)?;
        if self.refused {
            return Ok(());
        }
        // An array that asks for a proof lets a client do nothing before the proof.
        talk.post(1, connect_command(0))?;
        while let Some(got) = talk.receive(Duration::from_millis(100))? {
            if !matches!(got.kind, kind::TO_OWNER | kind::FROM_OWNER) {
                continue;
            }
            let tag = got.word(0);
            let data = self.random.bytes(4096);
            for near in 0..8 {
                let any = self.random.word();
                self.say(&mut talk, &frames::done(1, tag.wrapping_add(near) ^ 1 << 31, 0, &data))?;
                self.say(&mut talk, &frames::done(1, tag.wrapping_sub(near + 1), 0, &data))?;
                self.say(&mut talk, &frames::done(2, tag, 0, &data))?;
                self.say(&mut talk, &frames::done(any, any, any, &[]))?;
            }
            let sum = self.random.word();
            let end = match self.random.below(3) {
                0 => frames::done(1, tag, 0, &[]),
                1 => frames::done(1, tag, 0, &data),
                _ => frames::done_with(1, tag, 0, sum, &data),
            };
            self.say(&mut talk, &end)?;
            self.say(&mut talk, &end)?;
        }
        Ok(())
    }

    fn connects(&mut self, held: &mut Vec<Talk>) -> std::io::Result<()> {
        if held.len() >= CONNECTS {
            held.retain_mut(|talk| self.open_again(talk).is_ok());
            return Ok(());
        }
        let mut talk = Talk::connect(self.address)?;
        let with_capsule = self.random.below(2) == 0;
        let depth = if self.random.below(2) == 0 { 2 } else { 1024 };
        for conn in 1..=512 {
            self.say(&mut talk, &frames::connect(conn, self.ssd, &request(1, depth)))?;
            if with_capsule {
                talk.post(conn, connect_command(1))?;
            }
        }
        let heard = self.listen(&mut talk);
        held.push(talk);
        heard
    }

    /// Asks anew for each queue pair that the array has closed.
    fn open_again(&mut self, talk: &mut Talk) -> std::io::Result<()> {
        while let Some(got) = talk.receive(Duration::from_millis(1))? {
            if got.kind == kind::CLOSED {
                self.say(talk, &frames::connect(got.conn, self.ssd, &request(1, 2)))?;
            }
        }
        Ok(())
    }

    fn deaf(&mut self, held: &mut Vec<Talk>) -> std::io::Result<()> {
        let mut talk = Talk::connect(self.address)?;
        self.refused = !talk.open(1, self.ssd, 0)?;
        if self.refused {
            return Ok(());
        }
        talk.connect_queue(1, self.ssd, 0, CNTLID_ANY)?;
        // More answers than the operating system takes. It takes all commands, so nothing waits here.
        for _ in 0..1500 {
            self.frames += 1;
            talk.post(1, identify())?;
        }
        // All outboxes together are bounded, too.
        if held.len() > 150 {
            held.clear();
        }
        held.push(talk);
        Ok(())
    }

    fn capsules(&mut self) -> std::io::Result<()> {
        let mut talk = Talk::connect(self.address)?;
        self.refused = !talk.open(1, self.ssd, 0)?;
        if self.refused {
            return Ok(());
        }
        if self.random.below(4) > 0 {
            talk.connect_queue(1, self.ssd, 0, CNTLID_ANY)?;
        }
        for _ in 0..256 {
            let mut capsule = [0; 64];
            capsule.copy_from_slice(&self.random.bytes(64));
            if self.random.below(2) == 0 {
                capsule[1] = gnstor_proto::nvme::FLAGS_SGL;
            }
            self.say(&mut talk, &frames::send(1, &capsule))?;
        }
        self.listen(&mut talk)
    }

    fn insider(&mut self, insider: Option<&Insider>) -> std::io::Result<()> {
        let mut talk = Talk::connect(self.address)?;
        let Some(insider) = insider else { return Ok(()) };
        let done = insider.attack(&mut talk, self.ssd, self.random)?;
        self.frames += done.frames;
        self.succeeded += done.succeeded;
        self.won += done.won;
        self.refused = done.frames == 0;
        Ok(())
    }
}
