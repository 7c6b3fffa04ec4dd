// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records messages at the borders of SSDs and daemons, for the checkers of single commands. They see
//! capsules, responses and questions, and never the state of an SSD.
//!
//! ```text
//!   an SSD takes a capsule --> answers it, once, while its lease runs --> its host hears the answer
//!   an SSD asks voters     --> they say yes: its lease     a daemon activates a map: that lease is over
//! ```

mod copies;
mod leases;
mod look;

use crate::survive::history::seconds;
use copies::Copies;
use gnstor_base::time::{Span, Time};
use gnstor_proto::nvme::{Cqe, ReadWrite, Sqe, admin, io};
use gnstor_proto::slba::{Stamp, Vid};
use gnstor_proto::status::Status;
use leases::Leases;
use std::collections::{BTreeMap, BTreeSet};

/// An SSD answers each command within this time, or its queue is closed.
const ANSWER: Span = Span::from_ms(12_000);

/// A command that an SSD has taken and not answered.
#[derive(Clone, Copy, Debug)]
struct Taken {
    ssd: u16,
    sqe: Sqe,
    at: Time,
}

impl Taken {
    /// The command in words, with its connection and command id.
    fn say(&self, (conn, cid): (u32, u16)) -> String {
        let Self { sqe, at, .. } = self;
        format!("connection {conn}, command {cid}, opcode {:#x}, since {}", sqe.opcode, seconds(*at))
    }
}

/// The messages that were seen at the borders.
#[derive(Default)]
pub(super) struct Tap {
    /// Connections that are I/O queues.
    io: BTreeSet<u32>,
    /// By connection and command id.
    open: BTreeMap<(u32, u16), Vec<Taken>>,
    copies: Copies,
    pub(super) leases: Leases,
    broken: Option<(&'static str, String)>,
}

/// Whether the command reads or changes blocks.
fn uses_blocks(sqe: &Sqe) -> bool {
    matches!(sqe.opcode, io::READ | io::WRITE | io::WRITE_ZEROES)
}

impl Tap {
    /// Notes that a promise was broken.
    fn breaks(&mut self, rule: &'static str, facts: String) {
        self.broken.get_or_insert((rule, facts));
    }

    /// The first promise that was broken since the last look.
    pub(super) fn take_broken(&mut self) -> Option<(&'static str, String)> {
        self.broken.take()
    }

    /// An SSD has accepted a queue.
    pub(super) fn opened(&mut self, conn: u32, is_io: bool) {
        if is_io {
            self.io.insert(conn);
        }
    }

    /// An SSD takes a command.
    pub(super) fn taken(&mut self, ssd: u16, conn: u32, sqe: &Sqe, now: Time) {
        self.open.entry((conn, sqe.cid.get())).or_default().push(Taken { ssd, sqe: *sqe, at: now });
    }

    /// An SSD has closed a queue, or heard that it is closed.
    pub(super) fn closed(&mut self, conn: u32) {
        let first = (conn, 0);
        while let Some((&key, _)) = self.open.range(first..=(conn, u16::MAX)).next() {
            self.open.remove(&key);
        }
        self.io.remove(&conn);
    }

    /// An SSD is gone.
    pub(super) fn gone(&mut self, ssd: u16) {
        self.open.retain(|_, taken| taken.iter().all(|taken| taken.ssd != ssd));
        self.leases.forget(ssd);
    }

    /// An SSD answers a command; its clock shows `shown` when the answer leaves.
    pub(super) fn answers(&mut self, ssd: u16, conn: u32, cqe: &Cqe, shown: Time) {
        let key = (conn, cqe.cid.get());
        let Some(Taken { sqe, .. }) = self.end(key) else {
            let facts = format!("SSD {ssd}, connection {conn}, command id {}", key.1);
            return self.breaks("a command was answered twice, or was never there", facts);
        };
        let is_success = Status(cqe.status_word()).is_success();
        if !is_success || !self.io.contains(&conn) || !uses_blocks(&sqe) {
            return;
        }
        let rw = ReadWrite::decode(&sqe);
        if self.leases.is_over(ssd, rw.map_epoch.into(), shown) {
            let until = self.leases.longest(ssd).map_or("it had none".into(), |until| {
                format!("it ended at {} of the SSD's clock, which shows {}", seconds(until), seconds(shown))
            });
            let facts = format!("SSD {ssd} answered opcode {:#x} well; its lease: {until}", sqe.opcode);
            self.breaks("an SSD served without a lease (rule 2a)", facts);
        }
        if sqe.opcode != io::READ {
            self.copies.answered(ssd, key, &rw);
        }
    }

    /// The oldest command of this id that is not answered.
    fn end(&mut self, key: (u32, u16)) -> Option<Taken> {
        let all = self.open.get_mut(&key)?;
        let oldest = all.remove(0);
        if all.is_empty() {
            self.open.remove(&key);
        }
        Some(oldest)
    }

    /// A host hears the answer to a command.
    pub(super) fn heard(&mut self, conn: u32, cqe: &Cqe) {
        self.copies.heard((conn, cqe.cid.get()));
    }

    /// The SSDs that said that they have a write of a block, each with the epoch of the command. They are
    /// forgotten.
    pub(super) fn copies(&mut self, vid: Vid, vba: u32, stamp: Stamp) -> Vec<(u16, u64)> {
        self.copies.take(vid, vba, stamp)
    }

    /// The commands that an SSD has not answered.
    pub(super) fn open_of(&self, ssd: u16) -> usize {
        self.open.values().flatten().filter(|taken| taken.ssd == ssd).count()
    }

    /// The commands that an SSD has not answered, in words.
    pub(super) fn say_open_of(&self, ssd: u16) -> String {
        let all = self.open.iter().flat_map(|(key, all)| all.iter().map(|taken| (*key, taken)));
        let of_ssd = all.filter(|(_, taken)| taken.ssd == ssd);
        let said: Vec<String> = of_ssd.map(|(key, taken)| taken.say(key)).collect();
        said.join("; ")
    }

    /// A command that an SSD has not answered for too long.
    pub(super) fn unanswered(&self, now: Time) -> Option<String> {
        let waits =
            |taken: &&Taken| taken.at + ANSWER < now && taken.sqe.opcode != admin::ASYNC_EVENT_REQUEST;
        let late = self.open.iter().find_map(|(key, all)| Some((*key, all.iter().find(waits)?)));
        late.map(|(key, taken)| format!("SSD {}, {}", taken.ssd, taken.say(key)))
    }
}
