// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults that make one schedule each, which faults at any time hardly ever meet.
//!
//! ```text
//!   late data    data of a write is on its way for 0.4 to 3 s; then an SSD or the client dies beside it
//!   hand on      SSD f hears neither its writer nor other SSDs; the writer dies; others open the volume;
//!                f dies
//!   overtaken    SSD f is out; zeroes overtake a write whose kernel then stands still until f fills
//! ```

use crate::survive::chaos::Ending;
use crate::survive::stats::{Fault, Path};
use crate::survive::wire::{Host, Way};
use crate::survive::world::World;
use gnstor_base::time::{Span, Time};

/// Time after which an SSD that is gone is out of the map.
pub(super) const OUT: Span = Span::from_ms(450);

/// Time from a lease's end until others may get it (`CoreConfig::drift_ms`).
const FREE: Span = Span::from_ms(500);

/// The consequence when the data of a write becomes late.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    Nothing,
    /// The client is killed after this time, for that time. Others go on with its volume.
    Die(Span, Span),
}

impl World {
    /// The data of a client's next write to an SSD is late.
    pub(super) fn late_data(&mut self) -> Option<String> {
        let client = self.any_writer()?;
        let ssd = self.any(self.shape.with_blocks().into());
        let other = (ssd + 1 + self.any(self.nodes.len() - 1)) % self.nodes.len();
        let span = Span::from_ms(400) + self.some_ms(2_600);
        let soon = self.some_ms(20);
        let ms = span.as_ns() / 1_000_000;
        let then = match self.chaos.dice.below(4) {
            0 => Then::Nothing,
            1 => Then::Die(soon, span + span),
            _ => {
                // The data must be late from just before the other SSD fills. A fence would wait for data
                // that is late earlier.
                let back = self.post.now + soon + self.some_ms(60);
                self.chaos.end_at(self.post.now + soon, Ending::Down(other, back));
                self.chaos.disturbs(back);
                let (late, fills) = (self.nodes[ssd].index, self.nodes[other].index);
                self.clients[client].late_when_back(fills, late, span);
                return Some(format!(
                    "SSD {other} is killed; when client {client} has said that it reaches it, data for SSD {ssd} is \
                     late by {ms} ms"
                ));
            }
        };
        self.post.late_data.insert((client, self.nodes[ssd].index), (span, then));
        Some(format!("data of client {client} for SSD {ssd} is late by {ms} ms; {then:?}"))
    }

    /// Counts the fault when a write's data becomes late, and arranges its consequence `then`.
    pub(super) fn data_is_late(&mut self, client: usize, then: Then) {
        let now = self.post.now;
        self.post.stats.fault(Fault::LateData);
        if now >= self.chaos.until {
            return;
        }
        match then {
            Then::Nothing => {}
            Then::Die(after, span) => {
                self.chaos.end_at(now + after, Ending::Die(client, now + after + span));
                self.hand_to_others(client, now + span + span);
            }
        }
        self.wake_chaos();
    }

    /// A client that has a write lease.
    fn any_writer(&mut self) -> Option<usize> {
        let writers: Vec<usize> =
            (0..self.clients.len()).filter(|&at| self.clients[at].write_lease().is_some()).collect();
        (!writers.is_empty()).then(|| writers[self.any(writers.len())])
    }

    fn hand_to_others(&mut self, client: usize, until: Time) {
        let Some(volume) = self.clients[client].volume() else { return };
        for other in (0..self.clients.len()).filter(|&other| other != client) {
            self.clients[other].go_to(volume, until);
            self.wake_client(other, self.post.now);
        }
    }

    /// A writer dies when one SSD lacks its last writes. The others cannot compare with that SSD, and it
    /// dies, too, when the lease is over. Meanwhile others open the volume.
    pub(super) fn hand_on(&mut self) -> Option<String> {
        let client = self.any_writer()?;
        let (_, lease) = self.clients[client].write_lease()?;
        let f = self.any(self.shape.with_blocks().into());
        self.nodes[f].is_up().then_some(())?;
        let (now, index) = (self.post.now, self.nodes[f].index);
        let dies = now + Span::from_ms(20) + self.some_ms(60);
        let ends = dies + lease + FREE;
        let falls = ends + self.some_ms(900);
        let until = falls + Span::from_ms(500);
        self.post.cut(Host::Client(client), index, Way::Up, until);
        for other in (0..self.shape.all_ssds()).filter(|&other| other != index) {
            self.post.cut(Host::Peer(other), index, Way::Up, until);
        }
        self.chaos.end_at(dies, Ending::Die(client, until + Span::from_ms(2_000)));
        let back = falls + Span::from_ms(600) + self.some_ms(3_000);
        self.chaos.end_at(falls, Ending::Down(f, back));
        self.hand_to_others(client, until);
        self.chaos.disturbs(back);
        self.post.stats.fault(Fault::HandedOn);
        Some(format!("SSD {f} hears neither client {client}, which dies, nor other SSDs, and dies later"))
    }

    /// An SSD is killed, and is back while a write stands still that zeroes have overtaken.
    pub(super) fn overtake(&mut self) -> Option<String> {
        let client = self.any_writer()?;
        let f = self.any(self.shape.with_blocks().into());
        self.nodes[f].is_up().then_some(())?;
        let now = self.post.now;
        let back = now + OUT + Span::from_ms(150) + self.some_ms(900);
        self.chaos.end_at(now, Ending::Down(f, back));
        self.chaos.disturbs(back);
        let index = self.nodes[f].index;
        self.clients[client].stall_when_overtaken(index, now + OUT);
        self.post.stats.fault(Fault::Overtaken);
        Some(format!(
            "SSD {f} is killed; the kernel of client {client} stands still when zeroes overtook a write"
        ))
    }

    /// A client is gone until then.
    pub(super) fn client_dies(&mut self, client: usize, until: Time) {
        self.say(|| format!("client {client} is killed"));
        self.post.stats.fault(Fault::ClientKilled);
        self.clients[client].die(&mut self.post, until);
        self.wake_client(client, until);
    }

    /// A client's kernel stands still, and a part of its write went to this SSD, which is killed.
    pub(super) fn part_is_alone(&mut self, ssd: u16) {
        let at = self.post.now + Span::from_ms(4) + self.some_ms(12);
        let until = at + self.some_ms(60);
        self.chaos.end_at(at, Ending::Down(ssd.into(), until));
        self.chaos.disturbs(until);
        self.post.stats.path(Path::PartAlone);
        self.wake_chaos();
    }

    pub(super) fn some_ms(&mut self, most: u32) -> Span {
        Span::from_ms(u64::from(1 + self.chaos.dice.below(most)))
    }
}
