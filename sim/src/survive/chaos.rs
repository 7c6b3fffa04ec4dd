// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults: which happens next, and how it ends.
//!
//! An SSD loses writes only while the array is whole and each volume has another copy. So whatever happens,
//! no acknowledged write may be lost.

use crate::dice::Dice;
use crate::survive::daemon::Daemon;
use crate::survive::history::Life;
use crate::survive::leave::Leaving;
use crate::survive::rot::Rotted;
use crate::survive::stats::Fault;
use crate::survive::wire::{Host, Way};
use crate::survive::world::World;
use gnstor_base::time::{Span, Time};
use gnstor_daemon::core::report::SsdView;
use gnstor_proto::placement::map3::State3;
use std::collections::BTreeMap;

/// The end of a fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    Start(usize),
    /// An SSD of a storm is killed, until then.
    Down(usize, Time),
    EndDaemon,
    /// The daemon with this number reaches this SSD no more; then both and another SSD are killed.
    Tear(u64, u16),
    Torn(u64, [usize; 2]),
    NewDaemon,
    Heal(usize),
    /// A client is killed, until then.
    Die(usize, Time),
    /// An SSD loses its power, until then.
    Cut(usize, Time),
    /// The operator takes an SSD back that was to leave.
    Stay(u16),
    /// The clock of the daemon with this number leaps.
    Leap(u64, Span),
    /// An SSD that is stopped in order awaits that its goodbye is heard.
    Leave(Leaving),
    /// The operator adds an SSD.
    Join,
}

/// The faults of a world.
pub(super) struct Chaos {
    pub(super) dice: Dice,
    /// When faults end.
    pub(super) until: Time,
    next_at: Time,
    /// Whether faults have begun.
    pub(super) has_begun: bool,
    endings: BTreeMap<(Time, u64), Ending>,
    count: u64,
    /// Numbers of the faults that are left out, ascending.
    pub(super) without: Vec<u64>,
    drawn: u64,
    /// The faults that happened, for people.
    pub(super) list: Vec<(u64, String)>,
    /// Whether an SSD lost writes, or may have, since the array was last whole.
    pub(super) is_lossy: bool,
    /// A power cut comes at this time. Until then the array counts as lossy, however whole it is.
    pub(super) lossy_until: Time,
    /// Another fault happened meanwhile. So copies may be lost, and the operator may say so.
    pub(super) has_overlap: bool,
    /// Some fault still acts until then, also if the daemon has not noticed it.
    pub(super) disturbed_until: Time,
    /// Blocks that rotted beside load.
    pub(super) rotted: BTreeMap<(Life, u32), Rotted>,
}

/// Kinds of faults that only happen when voters are asked to hold a map.
pub(super) const TEAR: usize = 16;
pub(super) const LEAP_IN_WAIT: usize = 19;
/// Kind of a fault that only happens when a daemon has carried a Delete out.
pub(super) const DELETED: usize = 21;
/// An aimed fault happens within this number of us.
const AIMED: u32 = 400_000;
/// After the end of a fault an SSD may still be dropped because of it. An end that was not told of a reset
/// notices a second later. The daemon then waits for answers and leases.
const ECHO: Span = Span::from_ms(3_000);

impl Chaos {
    pub(super) fn new(dice: Dice, until: Time, without: Vec<u64>) -> Self {
        Self {
            dice,
            until,
            next_at: Time::NEVER,
            has_begun: false,
            endings: BTreeMap::new(),
            count: 0,
            without,
            drawn: 0,
            list: Vec::new(),
            is_lossy: false,
            lossy_until: Time::ZERO,
            has_overlap: false,
            disturbed_until: Time::ZERO,
            rotted: BTreeMap::new(),
        }
    }

    /// From now on faults happen, for this time.
    pub(super) fn begin(&mut self, now: Time, runs: Span) -> Time {
        self.has_begun = true;
        (self.next_at, self.until) = (now, now + runs);
        now
    }

    /// The map changes, or a daemon starts: the next fault comes soon. Returns when.
    pub(super) fn aim(&mut self, now: Time) -> Time {
        let within = Span::from_ns(u64::from(1 + self.dice.below(AIMED)) * 1_000);
        self.next_at = self.next_at.min(now + within);
        self.next_at
    }

    /// Notes that a fault acts until this time.
    pub(super) fn disturbs(&mut self, until: Time) {
        self.disturbed_until = self.disturbed_until.max(until + ECHO);
    }

    /// A time of each order of magnitude from 2^10 us on, below 2^`most` us.
    pub(super) fn span(&mut self, most: u32) -> Span {
        let order = 10 + self.dice.below(most - 10);
        Span::from_ns((u64::from(1u32 << order) + u64::from(self.dice.below(1 << order))) * 1_000)
    }

    /// When the next end of a fault is due.
    pub(super) fn ends_at(&self) -> Time {
        self.endings.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at)
    }

    pub(super) fn end_at(&mut self, at: Time, ending: Ending) {
        self.count += 1;
        self.endings.insert((at, self.count), ending);
    }
}

impl World {
    /// Ends faults that are over, and begins others. Returns the time of the next call.
    pub(super) fn chaos(&mut self) -> Time {
        let now = self.post.now;
        while let Some(entry) = self.chaos.endings.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Ending::Start(ssd) => self.start(ssd),
                Ending::Down(ssd, until) => self.storms(ssd, until),
                Ending::EndDaemon => _ = self.end_daemon(),
                Ending::Tear(daemon, ssd) => self.tears(daemon, ssd),
                Ending::Torn(daemon, ssds) => self.torn(daemon, ssds),
                Ending::NewDaemon => self.new_daemon(),
                Ending::Heal(ssd) => self.nodes[ssd].bench.faults.clear(),
                Ending::Die(client, until) => self.client_dies(client, until),
                Ending::Cut(ssd, until) => self.power_is_cut(ssd, until),
                Ending::Stay(ssd) => self.stays(ssd),
                Ending::Leave(leaving) => self.leaves(leaving),
                Ending::Join => self.joins(),
                Ending::Leap(daemon, by) => self.leaps_in_wait(daemon, by),
            }
        }
        if now >= self.chaos.next_at && now < self.chaos.until {
            let every = self.shape.every.as_ps();
            let wait = every / 1000 * u64::from(self.chaos.dice.below(2_000));
            self.chaos.next_at = now + Span::from_ps(wait.max(1_000_000));
            self.fault();
            if self.shape.pairs && self.chaos.dice.below(3) == 0 {
                self.fault();
            }
        }
        let next = if now < self.chaos.until { self.chaos.next_at } else { Time::NEVER };
        next.min(self.chaos.ends_at())
    }

    /// One fault. The dice are thrown for a fault that is left out, too.
    fn fault(&mut self) {
        let odds = self.shape.odds.all();
        let sum: u32 = odds.iter().sum();
        if sum == 0 {
            return;
        }
        let mut drawn = self.chaos.dice.below(sum);
        let mut kind = 0;
        while drawn >= odds[kind] {
            drawn -= odds[kind];
            kind += 1;
        }
        self.happens(kind);
    }

    /// A fault of this kind.
    pub(super) fn happens(&mut self, kind: usize) {
        let number = self.chaos.drawn;
        self.chaos.drawn += 1;
        let own = self.chaos.dice.bits();
        if self.chaos.without.contains(&number) || self.chaos.is_lossy && self.shape.one_loss {
            return;
        }
        let was_lossy = self.chaos.is_lossy;
        // Each fault has dice of its own, so that one that is left out changes no other.
        let before = std::mem::replace(&mut self.chaos.dice, Dice::new(own, number));
        let what = match kind {
            0 => self.reset_any(),
            1 => self.still_any(),
            2 => self.kill_any(),
            3 => self.cut_power(),
            4 => self.cut_link(),
            5 => self.end_daemon(),
            6 => self.end_client(),
            7 => self.spoil_media(),
            8 => self.stall_kernel(),
            9 => self.set_apart(),
            11 => self.late_data(),
            12 => self.hand_on(),
            13 => self.overtake(),
            14 => self.drain_any(),
            15 => self.lose_last(),
            TEAR => self.begin_tear(),
            17 => self.leap_any(),
            18 => self.rot_any(),
            20 => self.stop_any(),
            LEAP_IN_WAIT => self.leap_in_wait(),
            DELETED => self.ends_behind_delete(),
            _ => self.begin_storm(),
        };
        self.chaos.dice = before;
        if let Some(what) = what {
            self.chaos.has_overlap |= was_lossy;
            self.say(|| format!("fault {number}: {what}"));
            self.chaos.list.push((number, what));
        }
    }

    pub(super) fn any(&mut self, count: usize) -> usize {
        self.chaos.dice.below(u32::try_from(count).expect("few")) as usize
    }

    fn reset_any(&mut self) -> Option<String> {
        let conns = self.post.find(|_| true);
        let conn = *conns.get(self.any(conns.len().max(1)))?;
        let hear: &[Way] = match self.chaos.dice.below(8) {
            0 => &[Way::Up],
            1 => &[Way::Down],
            _ => &[Way::Up, Way::Down],
        };
        let (host, ssd) = self.post.conn(conn).map(|conn| (conn.host, conn.ssd))?;
        self.post.reset(conn, hear, false);
        if !matches!(host, Host::Client(_)) {
            self.chaos.disturbs(self.post.now);
        }
        self.post.stats.fault(Fault::Reset);
        Some(format!("a connection of {host:?} to SSD {ssd} is reset"))
    }

    fn still_any(&mut self) -> Option<String> {
        let ssd = self.any(self.nodes.len());
        let span = self.chaos.span(22);
        let (now, until) = (self.post.now, self.post.now + span);
        self.nodes[ssd].is_up().then_some(())?;
        self.nodes[ssd].stand_still(now, until);
        self.chaos.disturbs(until);
        self.post.stats.fault(Fault::Still);
        Some(format!("SSD {ssd} stands still for {} ms", span.as_ns() / 1_000_000))
    }

    fn kill_any(&mut self) -> Option<String> {
        let ssd = self.any(self.nodes.len());
        self.nodes[ssd].is_up().then_some(())?;
        let span = self.chaos.span(23);
        self.post.stats.fault(Fault::Killed);
        self.down(ssd, true);
        self.chaos.end_at(self.post.now + span, Ending::Start(ssd));
        self.chaos.disturbs(self.post.now + span);
        Some(format!("SSD {ssd} is killed, for {} ms", span.as_ns() / 1_000_000))
    }

    fn cut_link(&mut self) -> Option<String> {
        let ssd = u16::try_from(self.any(self.nodes.len())).expect("few");
        let span = self.chaos.span(22);
        let host = match self.chaos.dice.below(4) {
            0 => Host::Daemon(self.daemons.last()?.number),
            1 => {
                let other = u16::try_from(1 + self.any(self.nodes.len() - 1)).expect("few");
                Host::Peer((ssd + other) % self.shape.all_ssds())
            }
            _ => Host::Client(self.any(self.clients.len())),
        };
        let way = if self.chaos.dice.below(2) == 0 { Way::Up } else { Way::Down };
        self.post.cut(host, ssd, way, self.post.now + span);
        let beside = if matches!(host, Host::Client(_)) { self.kill_beside(4) } else { String::new() };
        if !matches!(host, Host::Client(_)) {
            self.chaos.disturbs(self.post.now + span);
        }
        self.post.stats.fault(Fault::LinkCut);
        Some(format!(
            "{host:?} and SSD {ssd}: nothing goes {way:?} for {} ms{beside}",
            span.as_ns() / 1_000_000
        ))
    }

    pub(super) fn end_daemon(&mut self) -> Option<String> {
        let span = self.chaos.span(21);
        let now = self.post.now;
        let daemon = self.daemons.last_mut()?;
        let number = daemon.number;
        self.post.stats.fault(Fault::DaemonKilled);
        self.chaos.end_at(now + span, Ending::NewDaemon);
        if self.chaos.dice.below(3) == 0 {
            // This daemon only stands still, and later goes on beside the next one.
            let longer = self.chaos.span(23);
            if let Some(daemon) = self.daemons.last_mut() {
                daemon.still_until = now + span + longer;
            }
            return Some(format!("daemon {number} stands still, another one starts beside it"));
        }
        self.kill_daemon(number);
        Some(format!("daemon {number} is killed, the next starts in {} ms", span.as_ns() / 1_000_000))
    }

    fn end_client(&mut self) -> Option<String> {
        let client = self.any(self.clients.len());
        let span = self.chaos.span(22);
        self.post.stats.fault(Fault::ClientKilled);
        let until = self.post.now + span;
        self.clients[client].die(&mut self.post, until);
        self.wake_client(client, until);
        let beside = self.kill_beside(4);
        Some(format!("client {client} is killed, for {} ms{beside}", span.as_ns() / 1_000_000))
    }

    /// Each SSD serves, and no change is under way, as the daemon tells an operator.
    pub(super) fn is_whole(&self) -> bool {
        let up = self.nodes.iter().all(|node| node.is_up() && node.still_until <= self.post.now);
        let Some(daemon) = self.leader().filter(|daemon| daemon.still_until <= self.post.now) else {
            return false;
        };
        let Some(fleet) = daemon.core.fleet().filter(|_| daemon.core.is_serving()) else { return false };
        // An SSD may be out where others have all of its places. The daemon may not have noticed that one has
        // lost writes.
        let is_well = |ssd: &SsdView| {
            // The number of a witness's content does not matter: it has no blocks.
            let is_same = ssd.is_witness || self.content(ssd.index) == Some(ssd.incarnation);
            let has_state = is_same && !ssd.leaves && matches!(ssd.state, State3::In);
            (has_state || ssd.state == State3::Out) && ssd.away.is_none() && ssd.filling == 0 && !ssd.flaps
        };
        let copies =
            fleet.groups_by_copies.iter().take(usize::from(fleet.replicas)).all(|groups| *groups == 0);
        let is_still = fleet.next.is_none() && fleet.settles.is_empty();
        up && self.has_joined()
            && daemon.core.has_voters() == self.shape.has_voters()
            && copies
            && is_still
            && fleet.ssds.iter().all(is_well)
    }

    /// The daemon of the highest term. Another one may not know yet that it is deposed.
    pub(super) fn leader(&self) -> Option<&Daemon> {
        self.daemons.iter().max_by_key(|daemon| (daemon.core.term(), daemon.number))
    }

    /// The number of an SSD's content.
    pub(super) fn content(&self, ssd: u16) -> Option<u32> {
        self.nodes[usize::from(ssd)].worker().map(|worker| worker.ssd().identity().incarnation)
    }

    /// Ends all faults, and lets no further one happen.
    pub(super) fn end_faults(&mut self) {
        self.chaos.until = self.post.now;
        while let Some((_, ending)) = self.chaos.endings.pop_first() {
            match ending {
                Ending::Start(ssd) => self.start(ssd),
                Ending::NewDaemon => self.new_daemon(),
                Ending::Leave(leaving) => self.stops(leaving),
                Ending::Down(..) | Ending::EndDaemon | Ending::Heal(_) => {}
                Ending::Tear(..) | Ending::Torn(..) | Ending::Join => {}
                Ending::Die(..) | Ending::Cut(..) | Ending::Stay(_) | Ending::Leap(..) => {}
            }
        }
        for ssd in 0..self.nodes.len() {
            let node = &mut self.nodes[ssd];
            node.bench.faults.clear();
            // An armed cut does not happen any more.
            node.bench.power.restore();
            self.start(ssd);
        }
        self.post.heal();
        self.clients.iter_mut().for_each(|client| client.forget_late_data());
    }
}
