// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The course of a world: load and faults, then rest. Without faults everything must heal within 60 s of
//! virtual time, by itself, but for what only an operator may decide. Then media and reads are audited.

use crate::survive::client::Client;
use crate::survive::history::seconds;
use crate::survive::stats::Path;
use crate::survive::world::World;
use gnstor_base::time::Span;

/// Everything is well within this time after the last fault.
const HEALS: Span = Span::from_ms(60_000);
/// No fault happens before that time, and none before the first write, if it comes soon.
const UNDISTURBED: Span = Span::from_ms(300);
const FIRST_WRITE: Span = Span::from_ms(3_000);
const SOON: Span = Span::from_ms(20);
/// Interval of checks whether everything is well.
const LOOK: Span = Span::from_ms(250);
/// A read has brought data so long after that: an open may have to wait for a settle.
const FIRST_READ: Span = Span::from_ms(15_000);
/// How long clients read after that.
const READS: Span = Span::from_ms(400);

impl World {
    /// Plays the world to its end, or until something is wrong.
    pub(super) fn play(&mut self) {
        self.set_out();
        self.run(self.chaos.until);
        if self.history.violation.is_some() {
            return;
        }
        self.say(|| "no further fault".into());
        self.end_faults();
        self.clients.iter_mut().for_each(|client| client.rests = true);
        if !self.heals() || !self.scrub_if_rotten() || self.shape.drills && !(self.drill() && self.heals()) {
            return;
        }
        self.count_joined();
        if self.shape.witness {
            self.post.stats.path(Path::Witnessed);
        }
        if !self.shape.has_voters() {
            self.post.stats.path(Path::TwoAlone);
        }
        if self.shape.stops && !self.stop_at_rest() {
            return;
        }
        if self.shape.swaps && !(self.swap() && self.heals()) {
            return;
        }
        if !self.take_back() || self.shape.rots && !(self.rot() && self.heals()) {
            return;
        }
        self.say(|| "all is at rest".into());
        if !self.check_memory() || !self.check_list() {
            return;
        }
        self.audit();
        self.clients_read();
        let read = self.post.stats.of_path(Path::ReadDone);
        let (most, has_volumes) = (self.post.now + FIRST_READ, !self.history.lives().is_empty());
        self.run(self.post.now + READS);
        while has_volumes
            && self.post.stats.of_path(Path::ReadDone) == read
            && self.history.violation.is_none()
        {
            if self.post.now >= most {
                let (now, facts) = (self.post.now, "all is whole, and clients read".into());
                return self.history.broken(now, "no read brings data", facts);
            }
            self.run(self.post.now + LOOK);
        }
        if self.history.violation.is_none() {
            self.check_room();
        }
    }

    /// The array starts. In most worlds no fault happens before a write is acknowledged: otherwise many never
    /// serve.
    fn set_out(&mut self) {
        self.run(self.post.now + UNDISTURBED);
        let most = self.post.now + FIRST_WRITE;
        while !self.shape.early
            && self.post.stats.of_path(Path::WriteAcked) == 0
            && self.post.now < most
            && self.history.violation.is_none()
        {
            self.run(self.post.now + SOON);
        }
        self.begin_faults();
    }

    /// Waits until all is well. Returns false if something is wrong.
    pub(super) fn heals(&mut self) -> bool {
        let end = self.post.now + HEALS;
        while !self.is_at_rest() {
            if self.post.now >= end {
                let facts = self.unrest();
                let now = self.post.now;
                self.history.broken(now, "the array is not whole 60 s after the last fault", facts);
                return false;
            }
            self.run(self.post.now + LOOK);
            if self.history.violation.is_some() {
                return false;
            }
            self.operate();
        }
        true
    }

    /// From now on clients open volumes again, and read.
    pub(super) fn clients_read(&mut self) {
        self.clients.iter_mut().for_each(Client::read_only);
        (0..self.clients.len()).for_each(|client| self.wake_client(client, self.post.now));
    }

    fn is_at_rest(&self) -> bool {
        let has_answered = self.daemons.iter().all(|daemon| daemon.calls.is_empty());
        has_answered && self.is_whole() && self.clients.iter().all(|client| client.is_at_rest())
    }

    pub(super) fn unrest(&self) -> String {
        let restless = self.clients.iter().filter(|client| !client.is_at_rest()).count();
        let Some(daemon) = self.leader() else { return "no daemon".into() };
        let Some(fleet) = daemon.core.fleet() else {
            return format!("the daemon waits for {:?}", daemon.core.waits_for());
        };
        let ssds = fleet.ssds.iter().map(|ssd| {
            format!(
                "SSD {} {:?} content {:?} named {} away {:?} serving {} filling {} {:?}",
                ssd.index,
                ssd.state,
                self.content(ssd.index),
                ssd.incarnation,
                ssd.away,
                ssd.serving,
                ssd.filling,
                ssd.fill
            )
        });
        let ssds: Vec<String> = ssds.collect();
        format!(
            "{restless} clients are busy, epoch {}, next {:?}, settles {:?}, copies {:?}; {}",
            fleet.epoch,
            fleet.next,
            fleet.settles,
            fleet.groups_by_copies,
            ssds.join("; ")
        )
    }

    /// The copies of each block are equal, and each is what was acknowledged or newer.
    fn audit(&mut self) {
        let now = self.post.now;
        for entry in self.history.lives() {
            let Some(wrong) = self.audit_volume(&entry) else { continue };
            let facts = format!("volume {}, {wrong} at {}", entry.vid.get(), seconds(now));
            return self.history.broken(now, "copies are not what was acknowledged, or not equal", facts);
        }
    }
}
