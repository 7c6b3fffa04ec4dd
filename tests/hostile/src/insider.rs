// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client with rights to its own volume, which breaks every rule of transfers. Where SSDs ask for a proof,
//! it proves who it is.

use crate::frames::{self, Got, kind};
use crate::games::Games;
use crate::random::Random;
use crate::talk::{Talk, enable};
use gnstor_auth::Secret;
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::fabrics::CNTLID_ANY;
use gnstor_proto::nvme::{self, KeyedSgl, ReadWrite, Sqe};
use gnstor_proto::slba::{Address, ClientId, Slba, Stamp, Vid};
use std::time::Duration;
use zerocopy::FromBytes as _;

/// Largest number of blocks in one command.
const MOST_BLOCKS: usize = 8;
/// Number of commands in one attack.
const COMMANDS: usize = 128;
/// Offset of the data blocks in the memory that the array may reach.
const DATA_AT: usize = 4096;
/// One command of so many follows a game with the controller.
const GAMES: usize = 8;

/// What an attack did.
#[derive(Clone, Copy, Default, Debug)]
pub struct Done {
    /// Frames sent.
    pub frames: u64,
    /// Commands on the data path that succeeded.
    pub succeeded: u64,
    /// Commands to its controller that succeeded.
    pub won: u64,
}

/// A client, and the volume that it may write to.
#[derive(Clone, Debug)]
pub struct Insider {
    /// The client.
    pub client: ClientId,
    /// The volume.
    pub vid: Vid,
    /// Blocks of the volume.
    pub blocks: u32,
    /// Epoch of the client's write lease.
    pub lease_epoch: u32,
    /// Epoch of the fleet map.
    pub map_epoch: u32,
    /// Number of the client's registration, and its secret. Without a secret the client is not proven.
    pub registration: Option<(u64, Secret)>,
}

impl std::str::FromStr for Insider {
    type Err = ();

    /// `CLIENT,VOLUME,BLOCKS,LEASE_EPOCH,MAP_EPOCH[,REGISTRATION,SECRET]`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<&str> = text.split(',').collect();
        let (numbers, rest) = words.split_at(words.len().min(5));
        let numbers: Vec<u32> = numbers.iter().map_while(|word| word.parse().ok()).collect();
        let &[client, vid, blocks, lease_epoch, map_epoch] = &numbers[..] else { return Err(()) };
        let registration = match rest {
            [] => None,
            [serial, secret] => Some((serial.parse().map_err(drop)?, Secret::parse(secret).map_err(drop)?)),
            _ => return Err(()),
        };
        let narrow = |number: u32| u16::try_from(number).ok();
        let client = narrow(client).and_then(ClientId::new).ok_or(())?;
        let vid = narrow(vid).and_then(Vid::new).ok_or(())?;
        Ok(Self { client, vid, blocks, lease_epoch, map_epoch, registration })
    }
}

impl Insider {
    /// One command. Mostly the rules allow it; sometimes it has another volume, map, block or lease, or is
    /// noise.
    fn command(&self, random: &mut Random) -> Sqe {
        if random.below(16) == 0 {
            return Sqe::read_from_bytes(&random.bytes(64)).expect("64 bytes");
        }
        let opcodes = [
            nvme::io::READ,
            nvme::io::WRITE,
            nvme::io::WRITE,
            nvme::io::COMPARE,
            nvme::io::COMPARE,
            nvme::io::DATASET_MANAGEMENT,
            nvme::io::WRITE_ZEROES,
            nvme::io::FLUSH,
        ];
        let opcode = opcodes[random.below(opcodes.len())];
        let mut odd = |right: u32| if random.below(24) == 0 { random.word() } else { right };
        let vid = u16::try_from(odd(u32::from(self.vid.get())) & 0xFFFF).ok().and_then(Vid::new);
        let (map_epoch, lease_epoch) = (odd(self.map_epoch), odd(self.lease_epoch));
        let blocks = 1 + random.below(MOST_BLOCKS);
        let last = (self.blocks as usize).saturating_sub(blocks);
        let vba = u32::try_from(random.below(last + 1)).expect("a volume has at most 2^32 blocks");
        let mut sqe = Sqe { opcode, nsid: 1.into(), ..Sqe::default() };
        let fields = ReadWrite {
            slba: Slba::pack(Address { vid: vid.unwrap_or(self.vid), client: self.client, vba }),
            blocks: u32::try_from(blocks).expect("eight"),
            fua: random.below(8) == 0,
            map_epoch,
            // Low sequences repeat, high ones are new.
            stamp: Stamp { lease_epoch, sequence: u64::from(random.word() % 4096) },
        };
        fields.encode(&mut sqe);
        let bytes = u32::try_from(blocks).expect("eight") * BLOCK_BYTES;
        sqe.dptr = KeyedSgl::keyed(DATA_AT as u64, bytes, 1);
        sqe
    }

    /// Ends a transfer, as the rules say or otherwise.
    fn answer(talk: &mut Talk, got: &Got, random: &mut Random) -> std::io::Result<u64> {
        if !matches!(got.kind, kind::TO_OWNER | kind::FROM_OWNER) {
            return Ok(0);
        }
        let (conn, tag) = (got.conn, got.word(0));
        let asked = if got.kind == kind::FROM_OWNER { got.word(16) as usize } else { 0 };
        let bytes = asked.min(MOST_BLOCKS * BLOCK_BYTES as usize);
        let data = random.bytes(bytes);
        let right = frames::done(conn, tag, 0, &data);
        let ends = match random.below(12) {
            // Ends the transfer too early, and then once more correctly.
            0 => vec![frames::done(conn, tag, 0, &[]), right],
            1 => vec![right.clone(), right.clone(), right],
            2 => vec![frames::done_with(conn, tag, 0, random.word(), &data)],
            3 => vec![frames::done(conn, tag ^ 1 << random.below(31), 0, &data), right],
            4 => vec![frames::done(conn ^ 3, tag, 0, &data), right],
            5 => vec![frames::done(conn, tag, 1 + random.word() % 3, &[])],
            6 => vec![frames::done(conn, tag.wrapping_add(1), 0, &data), right],
            7 => vec![],
            _ => vec![right],
        };
        ends.iter().try_for_each(|frame| talk.send(frame))?;
        Ok(ends.len() as u64)
    }

    /// Sends commands that keep the rules, and commands that break them. Between them it plays with its
    /// controller. Without any frame in the result the array refused this client a queue.
    ///
    /// # Errors
    /// An error of the operating system, or the end of the stream.
    pub fn attack(&self, talk: &mut Talk, ssd: u16, random: &mut Random) -> std::io::Result<Done> {
        talk.client = self.client;
        talk.serial = self.registration.as_ref().map_or(0, |(serial, _)| *serial);
        if !talk.open(1, ssd, 0)? {
            return Ok(Done::default());
        }
        let cntlid = talk.connect_queue(1, ssd, 0, CNTLID_ANY)?;
        if let Some((_, secret)) = &self.registration
            && !talk.prove(1, ssd, secret.clone())?
        {
            return Ok(Done::default());
        }
        talk.command(1, enable())?;
        let mut games = Games::new(ssd, cntlid);
        if !games.open_io(talk)? {
            return Ok(Done::default());
        }
        let (mut frames, mut succeeded) = (0, 0);
        for _ in 0..COMMANDS {
            let sqe = self.command(random);
            if random.below(GAMES) == 0 && !games.play(talk, random)? {
                break;
            }
            talk.post(games.io, sqe)?;
            talk.sent.clear();
            frames += 1;
            while let Some(got) = talk.receive(Duration::from_millis(u64::from(random.word() % 2)))? {
                frames += Self::answer(talk, &got, random)?;
                // Status in the upper half of the fourth word, above the phase.
                succeeded +=
                    u64::from((got.kind, got.conn) == (kind::RESPONSE, games.io) && got.word(12) >> 17 == 0);
            }
        }
        Ok(Done { frames: frames + games.frames, succeeded, won: games.won })
    }
}
