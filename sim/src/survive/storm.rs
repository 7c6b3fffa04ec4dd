// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults of several parts at once: some are cut off from the others, or all are killed one after another.
//! And a client's kernel that stands still, while its host follows maps.
//!
//! ```text
//!   apart   SSD a, clients  | the other SSDs, the daemon, the other clients    nothing passes, 0.5 to 4.5 s
//!   storm   each SSD is killed for 1 ms .. 8 s, the daemon, too, each at some time of the next 600 ms
//!   tear    a map is held; of two voters one does not hear that it is active; then they and the daemon die
//! ```

use crate::survive::chaos::{Ending, LEAP_IN_WAIT, TEAR};
use crate::survive::stats::Fault;
use crate::survive::wire::{Host, Way};
use crate::survive::world::World;
use gnstor_base::time::{Span, Time};

/// Parts are cut off for so long at least: longer than a serving lease.
const APART: Span = Span::from_ms(500);
/// A map that ends leases is active within this time after voters were asked to hold it.
const HELD: Span = Span::from_ms(330);
/// A daemon's start no longer waits for an SSD that is gone for so long.
const GONE: Span = Span::from_ms(3_000);
/// The ends of a storm begin within so many us.
const STORM: u32 = 600_000;

impl World {
    /// A client's kernel makes no pass for some time.
    pub(super) fn stall_kernel(&mut self) -> Option<String> {
        let client = self.any(self.clients.len());
        if self.chaos.dice.below(2) == 0 {
            self.post.stats.fault(Fault::Stalled);
            self.clients[client].stall_when_alone();
            return Some(format!(
                "the kernel of client {client} stands still when one SSD has part of a write"
            ));
        }
        let beside = self.kill_beside(2);
        // The map changes without the SSD, and once more when it is back.
        let least = if beside.is_empty() { Span::ZERO } else { APART + APART };
        let span = least + self.chaos.span(21);
        self.post.stats.fault(Fault::Stalled);
        self.clients[client].stall(span);
        let ms = span.as_ns() / 1_000_000;
        Some(format!("the kernel of client {client} stands still for {ms} ms{beside}"))
    }

    /// In one case of so many an SSD is killed soon, beside another fault. Returns what is said of it.
    pub(super) fn kill_beside(&mut self, one_in: u32) -> String {
        if self.chaos.dice.below(one_in) > 0 {
            return String::new();
        }
        let ssd = self.any(self.nodes.len());
        let at = self.post.now + self.some_us(20_000);
        let most = if self.chaos.dice.below(2) == 0 { 20 } else { 23 };
        let until = at + self.chaos.span(most);
        self.chaos.end_at(at, Ending::Down(ssd, until));
        self.chaos.disturbs(until);
        format!("; SSD {ssd} is killed")
    }

    /// An SSD and some clients are cut off from all others. Their connections break, or are only silent.
    pub(super) fn set_apart(&mut self) -> Option<String> {
        let ssd = u16::try_from(self.any(self.nodes.len())).expect("few");
        let readers: Vec<usize> =
            (0..self.clients.len()).filter(|&at| self.clients[at].is_reader()).collect();
        let sure = if readers.is_empty() { 0 } else { readers[self.any(readers.len())] };
        // The others have a map without the SSD, and write.
        let mut is_near =
            |at: usize| at == sure || self.chaos.dice.below(3) == 0 && self.clients[at].is_reader();
        let near: Vec<bool> = (0..self.clients.len()).map(&mut is_near).collect();
        let breaks = self.chaos.dice.below(4) > 0;
        let span = APART + self.chaos.span(22);
        let until = self.post.now + span;
        for (host, of) in self.pairs_apart(ssd, &near) {
            if breaks {
                for conn in self.post.find(|conn| conn.host == host && conn.ssd == of) {
                    self.post.reset(conn, &[Way::Up, Way::Down], false);
                }
            }
            [Way::Up, Way::Down].into_iter().for_each(|way| self.post.cut(host, of, way, until));
        }
        self.chaos.disturbs(until);
        self.post.stats.fault(Fault::Apart);
        let clients: Vec<usize> = (0..near.len()).filter(|&client| near[client]).collect();
        let how = if breaks { "" } else { ", in silence" };
        let ms = span.as_ns() / 1_000_000;
        Some(format!("SSD {ssd} and clients {clients:?} are cut off from the others for {ms} ms{how}"))
    }

    /// The ways between the two sides.
    fn pairs_apart(&self, ssd: u16, near: &[bool]) -> Vec<(Host, u16)> {
        let others = || (0..self.shape.all_ssds()).filter(move |&other| other != ssd);
        let peers = others().flat_map(|other| [(Host::Peer(ssd), other), (Host::Peer(other), ssd)]);
        let daemons = self.daemons.iter().map(|daemon| (Host::Daemon(daemon.number), ssd));
        let mut pairs: Vec<(Host, u16)> = peers.chain(daemons).collect();
        for (client, is_near) in near.iter().enumerate() {
            match is_near {
                true => pairs.extend(others().map(|other| (Host::Client(client), other))),
                false => pairs.push((Host::Client(client), ssd)),
            }
        }
        pairs
    }

    /// Each SSD is killed at some time, and the daemon, too. What SSDs acknowledged is kept. Without a pause
    /// between two storms nothing would ever serve.
    pub(super) fn begin_storm(&mut self) -> Option<String> {
        self.leader().filter(|daemon| daemon.core.is_serving())?;
        let now = self.post.now;
        for ssd in 0..self.nodes.len() {
            let at = now + self.some_us(STORM);
            let until = at + self.chaos.span(23);
            self.chaos.end_at(at, Ending::Down(ssd, until));
            self.chaos.disturbs(until);
        }
        let at = now + self.some_us(STORM);
        self.chaos.end_at(at, Ending::EndDaemon);
        self.post.stats.fault(Fault::Storm);
        Some("each SSD is killed, and the daemon, within 600 ms".into())
    }

    pub(super) fn some_us(&mut self, most: u32) -> Span {
        Span::from_ns(1_000 * u64::from(1 + self.chaos.dice.below(most)))
    }

    /// An SSD of a storm is killed.
    pub(super) fn storms(&mut self, ssd: usize, until: Time) {
        if self.nodes[ssd].is_up() {
            self.say(|| format!("SSD {ssd} is killed"));
            self.post.stats.fault(Fault::Killed);
            self.down(ssd, true);
            self.chaos.end_at(until, Ending::Start(ssd));
        }
    }

    /// Voters are asked to hold a map. In some worlds its way to be active is then torn, or
    /// a clock leaps.
    pub(super) fn map_is_held(&mut self) {
        self.aim();
        if !self.chaos.has_begun || self.post.now >= self.chaos.until {
            return;
        }
        if self.shape.tears && self.chaos.dice.below(4) == 0 {
            self.happens(TEAR);
            self.wake_chaos();
        }
        if self.shape.leaps && self.chaos.dice.below(2) == 0 {
            self.happens(LEAP_IN_WAIT);
            self.wake_chaos();
        }
    }

    pub(super) fn begin_tear(&mut self) -> Option<String> {
        let daemon = self.leader()?;
        let (number, voters) = (daemon.number, daemon.core.fleet()?.voters);
        let up: Vec<usize> =
            voters.into_iter().map(usize::from).filter(|&ssd| self.nodes[ssd].is_up()).collect();
        (up.len() > 1).then_some(())?;
        let first = self.any(up.len());
        let other = (first + 1 + self.any(up.len() - 1)) % up.len();
        let ssds = [up[first], up[other]];
        let (soon, then) = (self.some_us(10_000), HELD + self.some_us(100_000));
        let now = self.post.now;
        self.chaos.end_at(now + soon, Ending::Tear(number, self.nodes[ssds[0]].index));
        self.chaos.end_at(now + then, Ending::Torn(number, ssds));
        // An SSD that the map drops knows neither it nor that it is held. It may be one of a new majority.
        if self.chaos.dice.below(2) == 0 {
            let back = now + then + self.some_us(40_000);
            let down: Vec<usize> = (0..self.nodes.len()).filter(|&ssd| !self.nodes[ssd].is_up()).collect();
            down.into_iter().for_each(|ssd| self.chaos.end_at(back, Ending::Start(ssd)));
        }
        self.chaos.disturbs(now + then);
        self.post.stats.fault(Fault::Torn);
        Some(format!("SSD {} does not hear that a map is active, and dies with SSD {}", ssds[0], ssds[1]))
    }

    pub(super) fn tears(&mut self, daemon: u64, ssd: u16) {
        self.post.cut(Host::Daemon(daemon), ssd, Way::Up, self.post.now + HELD + HELD);
    }

    pub(super) fn torn(&mut self, daemon: u64, [first, other]: [usize; 2]) {
        let now = self.post.now;
        if self.daemons.iter().any(|of| of.number == daemon) {
            self.post.stats.fault(Fault::DaemonKilled);
            self.kill_daemon(daemon);
            let span = self.chaos.span(17);
            self.chaos.end_at(now + span, Ending::NewDaemon);
        }
        let (soon, late) = (self.chaos.span(16), GONE + self.chaos.span(22));
        self.storms(first, now + soon);
        self.storms(other, now + late);
        self.chaos.disturbs(now + late);
    }
}
