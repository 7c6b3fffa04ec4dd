// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts and ends of daemons and SSDs.

use crate::survive::clock::Clock;
use crate::survive::daemon::Daemon;
use crate::survive::stats::{Fault, Path};
use crate::survive::wire::{Host, Way};
use crate::survive::world::World;

impl World {
    pub(super) fn new_daemon(&mut self) {
        self.daemon_number += 1;
        let (now, number) = (self.post.now, self.daemon_number);
        let clock = self.draw_clock();
        self.daemons.push(Daemon::new(number, now, &self.shape, clock));
        self.clients.iter_mut().for_each(|client| client.daemon = number);
        self.say(|| format!("daemon {number} starts"));
        self.wake_daemons(now);
        if number > 1 {
            self.aim();
        }
    }

    /// A clock of this world, for an SSD or a daemon.
    pub(super) fn draw_clock(&mut self) -> Clock {
        let most = self.shape.drift_ppm;
        let drawn = self.clocks.below(2 * most + 1).cast_signed() - most.cast_signed();
        if drawn != 0 {
            self.post.stats.fault(Fault::Drift);
        }
        Clock::new(drawn)
    }

    /// A daemon that was deposed ends; if it was the newest one, another one starts.
    pub(super) fn daemons_stopped(&mut self) {
        let newest = self.daemons.last().map(|daemon| daemon.number);
        let stopped: Vec<u64> = self
            .daemons
            .iter()
            .filter(|daemon| daemon.stopped.is_some())
            .map(|daemon| daemon.number)
            .collect();
        for number in stopped {
            self.kill_daemon(number);
            if newest == Some(number) {
                self.new_daemon();
            }
        }
    }

    /// An SSD is gone; its hosts hear of it, or do not.
    pub(super) fn down(&mut self, ssd: usize, keeps: bool) {
        let seed = self.chaos.dice.bits();
        let is_silent = self.chaos.dice.below(3) == 0;
        if let Err(cause) = self.nodes[ssd].stop(seed, keeps) {
            let now = self.post.now;
            self.history.broken(now, "an SSD cannot be stopped", format!("SSD {ssd}: {cause}"));
        }
        self.nodes[ssd].stopped_at = self.post.now;
        let index = self.nodes[ssd].index;
        self.post.tap.gone(index);
        let hear: &[Way] = if is_silent { &[] } else { &[Way::Down] };
        for conn in self.post.find(|conn| conn.ssd == index) {
            self.post.reset(conn, hear, true);
        }
        for conn in self.post.find(|conn| conn.host == Host::Peer(index)) {
            self.post.reset(conn, &[Way::Up], true);
        }
        self.peers.retain(|(own, _), _| *own != index);
    }

    pub(super) fn start(&mut self, ssd: usize) {
        if self.nodes[ssd].is_up() {
            return;
        }
        let now = self.post.now;
        if let Err(cause) = self.nodes[ssd].start() {
            return self.history.broken(now, "an SSD does not start", format!("SSD {ssd}: {cause}"));
        }
        self.nodes[ssd].started_at = now;
        let is_lossy = self.nodes[ssd].worker().is_some_and(|worker| worker.ssd().boot().is_lossy());
        if is_lossy {
            self.post.stats.path(Path::Lossy);
        }
        self.say(|| format!("SSD {ssd} starts{}", if is_lossy { ", and has lost writes" } else { "" }));
        self.wake_node(ssd, now);
    }

    /// The daemon with this number is gone.
    pub(super) fn kill_daemon(&mut self, number: u64) {
        for conn in self.post.find(|conn| conn.host == Host::Daemon(number)) {
            self.post.reset(conn, &[Way::Up], true);
        }
        self.daemons.retain(|daemon| daemon.number != number);
    }
}
