// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wires: connections, and what is on its way over them.
//!
//! ```text
//!   host --Up--> SSD      opening, capsules, the ends of transfers
//!   host <-Down- SSD      pulls, pushes, responses
//!   client <--> daemon    calls and answers, each by itself
//! ```
//! A connection neither loses, doubles nor reorders. A letter may be late, and all later ones of its
//! direction are then late, too. A reset delivers what arrives before a moment that the dice choose, and
//! loses the rest. The two ends hear of a reset at different times.

use crate::dice::Dice;
use crate::survive::aimed::Then;
use crate::survive::history::seconds;
use crate::survive::stats::{Fault, Stats};
use crate::survive::tap::Tap;
use gnstor_base::controller::{Outcome, Remote, TransferId};
use gnstor_base::region::LocalRef;
use gnstor_base::time::{Span, Time};
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::failure::Failure;
use gnstor_daemon::core::request::Request;
use gnstor_proto::fabrics::CmRequest;
use gnstor_proto::nvme::{Cqe, Sqe};
use std::collections::BTreeMap;

/// The owner of the host's end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Host {
    /// A client.
    Client(usize),
    /// The daemon with this number.
    Daemon(u64),
    /// Another SSD, that asks.
    Peer(u16),
}

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Way {
    Up,
    Down,
}

/// The content of a letter.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// The host opens the queue.
    Open(CmRequest),
    Capsule(Box<Sqe>),
    /// A transfer has ended; a pull brings its data.
    Moved {
        transfer: TransferId,
        local: Option<LocalRef>,
        data: Vec<u8>,
        outcome: Outcome,
    },
    Opened(Result<(), u16>),
    Pull {
        transfer: TransferId,
        remote: Remote,
        local: LocalRef,
    },
    /// `None`: nothing is said of its end.
    Push {
        transfer: Option<TransferId>,
        remote: Remote,
        data: Vec<u8>,
    },
    Response(Cqe),
    /// The connection is gone.
    Closed,
}

/// The result of a call.
pub(super) type Called = Result<Reply, Failure>;

/// Something on its way.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Letter { conn: u32, way: Way, body: Body },
    Call { client: usize, daemon: u64, call: u64, request: Box<Request> },
    Answer { client: usize, call: u64, result: Box<Called> },
}

/// A connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conn {
    pub(super) host: Host,
    pub(super) ssd: u16,
    pub(super) is_open: bool,
    /// The time of the last letter of each direction.
    last: [Time; 2],
}

/// How wires behave in a world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delays {
    /// The usual delay, at most.
    pub(super) usual: Span,
    /// One letter in so many is late; 0: none.
    pub(super) late_1_of: u32,
    /// Late by so much at most.
    pub(super) late_by: Span,
}

/// All connections, and all that is on its way.
pub(super) struct Post {
    pub(super) now: Time,
    pub(super) stats: Stats,
    /// Recorder of the messages that pass the borders of SSDs and daemons.
    pub(super) tap: Tap,
    /// Lines of the trace, if they are wanted.
    pub(super) log: Option<Vec<String>>,
    queue: BTreeMap<(Time, u64), Item>,
    conns: BTreeMap<u32, Conn>,
    /// Directions that are cut, and until when.
    cuts: BTreeMap<(Host, u16, Way), Time>,
    /// The next data of a client for an SSD is late by so much.
    pub(super) late_data: BTreeMap<(usize, u16), (Span, Then)>,
    /// Such data is on its way.
    pub(super) is_late: Option<(usize, Then)>,
    dice: Dice,
    delays: Delays,
    /// Letters are late from time to time.
    pub(super) is_rough: bool,
    next: u64,
    next_conn: u32,
}

/// An end that is not told of a reset finds out after this time.
const GIVES_UP: Span = Span::from_ms(1_000);
/// A reset takes effect within this time.
const RESET_WITHIN: u32 = 2_000_000;

impl Post {
    pub(super) fn new(dice: Dice, delays: Delays) -> Self {
        Self {
            now: Time::ZERO,
            stats: Stats::default(),
            tap: Tap::default(),
            log: None,
            queue: BTreeMap::new(),
            conns: BTreeMap::new(),
            cuts: BTreeMap::new(),
            late_data: BTreeMap::new(),
            is_late: None,
            dice,
            delays,
            is_rough: true,
            next: 0,
            next_conn: 1,
        }
    }

    /// Writes a line of the trace.
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>10}  {}", seconds(self.now), line()));
        }
    }

    /// A new connection. Its number is the queue's key at the SSD, and is never used again.
    pub(super) fn connect(&mut self, host: Host, ssd: u16) -> u32 {
        let conn = self.next_conn;
        self.next_conn += 1;
        self.conns.insert(conn, Conn { host, ssd, is_open: true, last: [Time::ZERO; 2] });
        conn
    }

    pub(super) fn conn(&self, conn: u32) -> Option<&Conn> {
        self.conns.get(&conn)
    }

    /// The open connections that match.
    pub(super) fn find(&self, is_one: impl Fn(&Conn) -> bool) -> Vec<u32> {
        let open = self.conns.iter().filter(|(_, conn)| conn.is_open && is_one(conn));
        open.map(|(&conn, _)| conn).collect()
    }

    fn delay(&mut self) -> Span {
        let usual = u32::try_from(self.delays.usual.as_ns()).unwrap_or(u32::MAX).max(1);
        let mut ns = 500 + u64::from(self.dice.below(usual));
        let late = self.delays.late_1_of;
        if self.is_rough && late > 0 && self.dice.below(late) == 0 {
            // Of each order of magnitude as many.
            let most = self.delays.late_by.as_ns().max(2).ilog2();
            let order = 10 + self.dice.below(most.saturating_sub(10).max(1));
            ns += 1 << order | u64::from(self.dice.below(1 << order.min(30)));
            self.stats.fault(Fault::Late);
        }
        Span::from_ns(ns)
    }

    fn put(&mut self, at: Time, item: Item) {
        self.next += 1;
        self.queue.insert((at, self.next), item);
    }

    /// Sends a letter, not before `from`. On a connection that is gone it is lost.
    pub(super) fn send_from(&mut self, from: Time, conn: u32, way: Way, body: Body) {
        let delay = self.delay();
        let Some(state) = self.conns.get_mut(&conn).filter(|state| state.is_open) else { return };
        let mut at = from.max(self.now) + delay;
        if let Some(&until) = self.cuts.get(&(state.host, state.ssd, way)).filter(|&&until| until > at) {
            at = until + delay;
        }
        if let (Host::Client(client), Way::Up, Body::Moved { data, .. }) = (state.host, way, &body)
            && !data.is_empty()
            && let Some((late, then)) = self.late_data.remove(&(client, state.ssd))
        {
            at = at + late;
            self.is_late = Some((client, then));
        }
        let last = &mut state.last[way as usize];
        at = at.max(*last + Span::from_ps(1));
        *last = at;
        self.put(at, Item::Letter { conn, way, body });
    }

    pub(super) fn send(&mut self, conn: u32, way: Way, body: Body) {
        self.send_from(self.now, conn, way, body);
    }

    /// A call to the daemon, or an answer.
    pub(super) fn say(&mut self, item: Item) {
        let at = self.now + self.delay();
        self.put(at, item);
    }

    /// One end closes the connection. The other end hears of it behind all that was sent before.
    pub(super) fn close(&mut self, conn: u32, from: Way) {
        self.send(conn, from, Body::Closed);
        if let Some(state) = self.conns.get_mut(&conn) {
            state.is_open = false;
        }
        let back = if from == Way::Up { Way::Down } else { Way::Up };
        self.queue.retain(
            |_, item| !matches!(item, Item::Letter { conn: of, way, .. } if *of == conn && *way == back),
        );
    }

    /// The connection breaks. What is on its way arrives up to some moment. `hear`: the ends that learn of it
    /// soon. The others find out when their HCA or their kernel has given up, unless the SSD is `dead`.
    pub(super) fn reset(&mut self, conn: u32, hear: &[Way], is_dead: bool) {
        let Some(state) = self.conns.get_mut(&conn).filter(|state| state.is_open) else { return };
        state.is_open = false;
        let moments = [Way::Up, Way::Down].map(|way| {
            let within = u64::from(self.dice.below(RESET_WITHIN));
            (way, self.now + Span::from_ns(within))
        });
        let is_lost = |(at, _): &(Time, u64), item: &Item| match item {
            Item::Letter { conn: of, way, .. } if *of == conn => {
                moments.iter().any(|(of, moment)| of == way && at > moment)
            }
            _ => false,
        };
        self.queue.retain(|key, item| !is_lost(key, item));
        for (way, moment) in moments {
            let within = Span::from_ns(1 + u64::from(self.dice.below(RESET_WITHIN)));
            let at = match hear.contains(&way) {
                true => moment + within,
                false if is_dead => continue,
                false => moment + GIVES_UP + within,
            };
            self.put(at, Item::Letter { conn, way, body: Body::Closed });
        }
    }

    /// Letters of this direction arrive after `until` only.
    pub(super) fn cut(&mut self, host: Host, ssd: u16, way: Way, until: Time) {
        self.cuts.insert((host, ssd, way), until);
    }

    /// All directions are whole again for what is sent from now on.
    pub(super) fn heal(&mut self) {
        self.is_rough = false;
        self.cuts.clear();
        self.late_data.clear();
    }

    /// Something arrives later: its receiver stands still.
    pub(super) fn hold(&mut self, until: Time, item: Item) {
        self.put(until, item);
    }

    /// The time of the next arrival.
    pub(super) fn next_at(&self) -> Time {
        self.queue.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at)
    }

    /// Takes the next thing that has arrived by now.
    pub(super) fn pop(&mut self) -> Option<Item> {
        let ((at, _), _) = self.queue.first_key_value()?;
        if *at > self.now { None } else { self.queue.pop_first().map(|(_, item)| item) }
    }

    /// Forgets connections that are gone and have nothing on its way.
    pub(super) fn sweep(&mut self) {
        let mut busy = std::collections::BTreeSet::new();
        for item in self.queue.values() {
            if let Item::Letter { conn, .. } = item {
                busy.insert(*conn);
            }
        }
        self.conns.retain(|conn, state| state.is_open || busy.contains(conn));
    }
}
