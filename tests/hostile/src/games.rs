// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a client with rights may do to its own controller, in any order and all the time. It has Abort,
//! Disconnect, resets, shutdowns, properties, features, event requests and Keep Alive.

use crate::frames::{Got, kind};
use crate::random::Random;
use crate::talk::{Talk, enable, request, set_cc};
use gnstor_proto::fabrics::{self, CNTLID_ANY, PropertyFields, fctype, property};
use gnstor_proto::nvme::{Sqe, admin};
use std::time::Duration;

/// The admin queue's number of the client.
const ADMIN: u32 = 1;
/// Keep Alives in a row.
const KEEP_ALIVES: usize = 32;
/// Event requests in a row, of which a controller holds four.
const EVENT_REQUESTS: usize = 8;
/// CC.SHN, both kinds of shutdown.
const SHUTDOWN: u64 = 3 << 14;
/// CC.AMS, weighted round robin.
const WEIGHTED: u64 = 1 << 11;

/// A controller, and the I/O queue that it has now.
#[derive(Debug)]
pub(crate) struct Games {
    ssd: u16,
    cntlid: u16,
    /// The client's number of the I/O queue. Its queue id is one less.
    pub(crate) io: u32,
    /// Games whose commands the array carried out.
    pub(crate) won: u64,
    pub(crate) frames: u64,
}

fn has_succeeded(got: Option<&Got>) -> bool {
    // Status in the upper half of the fourth word, above the phase.
    got.is_some_and(|got| got.kind == kind::RESPONSE && got.word(12) >> 17 == 0)
}

impl Games {
    /// A proven controller, which has no I/O queue yet.
    pub(crate) fn new(ssd: u16, cntlid: u16) -> Self {
        Self { ssd, cntlid, io: ADMIN, won: 0, frames: 0 }
    }

    /// Opens the next I/O queue. Returns whether the array gave it.
    pub(crate) fn open_io(&mut self, talk: &mut Talk) -> std::io::Result<bool> {
        self.io += 1;
        self.frames += 2;
        let qid = u16::try_from(self.io - 1).expect("a few hundred");
        Ok(talk.open_with(self.io, self.ssd, &request(qid, 32))?
            && talk.connect_queue(self.io, self.ssd, qid, self.cntlid)? != 0)
    }

    fn ask(&mut self, talk: &mut Talk, conn: u32, sqe: Sqe) -> std::io::Result<()> {
        self.frames += 1;
        let got = talk.command(conn, sqe)?;
        self.won += u64::from(has_succeeded(got.as_ref()));
        Ok(())
    }

    /// Plays one game. False: the array gave no further I/O queue.
    pub(crate) fn play(&mut self, talk: &mut Talk, random: &mut Random) -> std::io::Result<bool> {
        let io = self.io;
        match random.below(8) {
            0 => {
                // Commands that are under way, or never were, on its own queues and on others.
                for _ in 0..16 {
                    let queue = [0, io - 1, random.word() & 0xFFFF][random.below(3)];
                    let cdw10 = (random.word() % 512) << 16 | queue;
                    let sqe = Sqe { opcode: admin::ABORT, cdw10: cdw10.into(), ..Sqe::default() };
                    self.ask(talk, ADMIN, sqe)?;
                }
            }
            1 => {
                let disconnect = fabrics::command(fctype::DISCONNECT, &PropertyFields::default());
                self.ask(talk, io, disconnect)?;
                self.ask(talk, io, disconnect)?;
                self.ask(talk, ADMIN, disconnect)?;
                return self.open_io(talk);
            }
            2 => {
                // A reset in the middle of commands. The I/O queues are gone.
                talk.post(io, Sqe { opcode: random.bytes(1)[0], ..Sqe::default() })?;
                self.ask(talk, ADMIN, set_cc(0))?;
                let weighted = if random.below(2) == 0 { WEIGHTED } else { 0 };
                self.ask(talk, ADMIN, set_cc(property::CC_ENABLE | weighted | 6 << 16 | 4 << 20))?;
                return self.open_io(talk);
            }
            3 => {
                self.ask(talk, ADMIN, set_cc(property::CC_ENABLE | SHUTDOWN))?;
                self.ask(talk, ADMIN, enable())?;
            }
            4 => {
                for _ in 0..KEEP_ALIVES {
                    self.frames += 1;
                    talk.post(ADMIN, Sqe { opcode: admin::KEEP_ALIVE, ..Sqe::default() })?;
                }
                self.ask(talk, io, Sqe { opcode: admin::KEEP_ALIVE, ..Sqe::default() })?;
            }
            5 => self.properties(talk, random)?,
            6 => self.features(talk, random)?,
            _ => {
                for _ in 0..EVENT_REQUESTS {
                    self.frames += 1;
                    talk.post(ADMIN, Sqe { opcode: admin::ASYNC_EVENT_REQUEST, ..Sqe::default() })?;
                }
                // Connects of queues that are connected.
                talk.connect_queue(ADMIN, self.ssd, 0, CNTLID_ANY)?;
                talk.connect_queue(io, self.ssd, 1, self.cntlid)?;
                self.frames += 2;
            }
        }
        while talk.receive(Duration::from_millis(1))?.is_some() {}
        Ok(true)
    }

    fn properties(&mut self, talk: &mut Talk, random: &mut Random) -> std::io::Result<()> {
        let offset = [property::CAP, property::CC, property::CSTS, random.word()][random.below(4)];
        let fields = PropertyFields {
            attrib: random.bytes(1)[0] & 7,
            offset: offset.into(),
            value: u64::from(random.word()).into(),
            ..PropertyFields::default()
        };
        // A value that is no reset: that is a game of its own.
        let kind = if offset == property::CC { fctype::PROPERTY_GET } else { fctype::PROPERTY_SET };
        self.ask(talk, ADMIN, fabrics::command(kind, &fields))?;
        self.ask(talk, self.io, fabrics::command(fctype::PROPERTY_GET, &fields))
    }

    fn features(&mut self, talk: &mut Talk, random: &mut Random) -> std::io::Result<()> {
        let feature = random.word() & 0x1F;
        let cdw10 = if random.below(8) == 0 { random.word() } else { feature };
        let [get, set] = [admin::GET_FEATURES, admin::SET_FEATURES].map(|opcode| Sqe {
            opcode,
            cdw10: cdw10.into(),
            ..Sqe::default()
        });
        self.ask(talk, ADMIN, get)?;
        self.ask(talk, ADMIN, Sqe { cdw11: random.word().into(), ..set })
    }
}
