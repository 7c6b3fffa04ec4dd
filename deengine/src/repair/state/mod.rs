// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of an SSD's repairs: walks, their windows and questions, and the scrub. The other modules of
//! `repair` work on it. This module uses nothing above `commands`, so the SSD can hold it.

mod pace;
mod scrub;

pub(in crate::repair) use pace::{Pace, Work};
pub(in crate::repair) use scrub::{Range, Scrub, Wrong};

use crate::commands::cold::Cold;
use crate::commands::scratch::Buffer;
use gnstor_base::controller::AskId;
use gnstor_base::time::Time;
use gnstor_durable::Seq;
use gnstor_proto::pull::{PeerRead, Row};
use gnstor_proto::slba::Vid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of tries for a block that the other SSD cannot read.
const TRIES: u32 = 3;

/// Which walk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::repair) enum Name {
    Fill,
    Settle(Vid),
    Scrub,
}

/// Blocks of one volume that are compared with one SSD's.
#[derive(Debug)]
pub(in crate::repair) struct Window {
    pub(in crate::repair) vid: Vid,
    pub(in crate::repair) generation: u32,
    pub(in crate::repair) first: u32,
    pub(in crate::repair) blocks: u32,
    /// Index of the SSD that is asked.
    pub(in crate::repair) peer: u16,
    /// Whether its digests have come.
    pub(in crate::repair) is_digested: bool,
    /// First block and number of blocks of the parts whose digests differ: their rows are to be compared.
    pub(in crate::repair) to_list: VecDeque<(u32, u32)>,
    /// Blocks whose data is to be fetched, ascending.
    pub(in crate::repair) pull: VecDeque<u32>,
    pub(in crate::repair) ask: Option<AskId>,
    pub(in crate::repair) retry_at: Time,
    /// The SSD did not answer, or refused.
    pub(in crate::repair) waits: bool,
    /// A block that the SSD could not read, and how often it was asked for.
    pub(in crate::repair) tried: (u32, u32),
    /// The first block of `pull`, while other SSDs are asked for it.
    pub(in crate::repair) unread: Option<Unread>,
    /// A block for which all SSDs were asked in vain. The first is asked once more.
    pub(in crate::repair) alone: Option<u32>,
}

/// A block that the first of its group cannot read. Another SSD that serves it may have a good copy.
#[derive(Debug)]
pub(in crate::repair) struct Unread {
    /// What the first has.
    pub(in crate::repair) row: Row,
    /// SSDs that serve the block; the next one to be asked comes first.
    pub(in crate::repair) peers: VecDeque<u16>,
    /// An SSD that does not answer until then counts as one without a good copy.
    pub(in crate::repair) until: Time,
}

impl Window {
    /// Notes that the SSD could not read a block once more. Returns whether it was the last try.
    pub(in crate::repair) fn gives_up(&mut self, block: u32) -> bool {
        let before = if self.tried.0 == block { self.tried.1 } else { 0 };
        self.tried = (block, before + 1);
        before + 1 >= TRIES
    }

    /// The block, if it comes first, needs no data any more.
    pub(in crate::repair) fn pulled(&mut self, block: u32) {
        self.unread = None;
        if self.pull.front() == Some(&block) {
            self.pull.pop_front();
        }
    }

    /// Index of the SSD that gets the next question.
    pub(in crate::repair) fn asks(&self) -> u16 {
        let other = self.unread.as_ref().and_then(|unread| unread.peers.front().copied());
        other.unwrap_or(self.peer)
    }

    pub(in crate::repair) fn is_done(&self) -> bool {
        self.is_digested && self.to_list.is_empty() && self.pull.is_empty() && self.ask.is_none()
    }
}

/// One walk over the blocks of all volumes, or of one.
#[derive(Debug)]
pub(in crate::repair) struct Walk {
    pub(in crate::repair) name: Name,
    /// Volume and block to go on with; `None`: all have their windows.
    pub(in crate::repair) next: Option<(Vid, u64)>,
    pub(in crate::repair) windows: Vec<Window>,
    /// Ranges that were under way when a newer map came: another SSD may decide there now.
    pub(in crate::repair) again: Vec<(Vid, u64)>,
    /// Volumes that were added while the walk was under way, and the block to go on with in each.
    pub(in crate::repair) added: BTreeMap<Vid, u64>,
    /// Blocks of the volumes whose windows have begun.
    pub(in crate::repair) walked: u64,
    pub(in crate::repair) pulled: u64,
    /// Blocks among the pulled ones that the other SSD could not read.
    pub(in crate::repair) unreadable: u64,
    /// SSDs that did not answer a question about a block that the first cannot read. They are asked no more.
    pub(in crate::repair) silent: BTreeSet<u16>,
    /// The last transaction that the walk made.
    pub(in crate::repair) last: Seq,
    pub(in crate::repair) is_durable: bool,
    /// State of the volume's entry that a settle is for.
    pub(in crate::repair) serial: u64,
}

impl Walk {
    pub(in crate::repair) fn from(name: Name, vid: Vid, serial: u64) -> Self {
        let (windows, again, added, next) = (Vec::new(), Vec::new(), BTreeMap::new(), Some((vid, 0)));
        let (walked, pulled, unreadable, last, is_durable) = (0, 0, 0, 0, false);
        let silent = BTreeSet::new();
        Self {
            name,
            next,
            windows,
            again,
            added,
            walked,
            pulled,
            unreadable,
            silent,
            last,
            is_durable,
            serial,
        }
    }

    pub(in crate::repair) fn is_over(&self) -> bool {
        self.has_compared_all() && self.is_durable
    }

    pub(in crate::repair) fn has_compared_all(&self) -> bool {
        self.next.is_none() && self.windows.is_empty() && self.again.is_empty() && self.added.is_empty()
    }

    /// Adds a volume to the walk, which may be past its id, or over.
    pub(in crate::repair) fn add(&mut self, vid: Vid) {
        self.added.insert(vid, 0);
        self.is_durable = false;
    }

    /// Restarts the open windows, of all volumes or of one. Answers that are on their way no longer count.
    pub(in crate::repair) fn restart_windows(&mut self, of: Option<Vid>) {
        let ended = self.windows.extract_if(.., |window| of.is_none_or(|vid| window.vid == vid));
        self.again.extend(ended.map(|window| (window.vid, window.first.into())));
        self.again.sort_unstable();
        self.again.dedup();
        self.silent.clear();
    }

    pub(in crate::repair) fn waits_for(&self) -> Option<u16> {
        self.windows.iter().find(|window| window.waits).map(Window::asks)
    }
}

/// A question under way.
#[derive(Debug)]
pub(in crate::repair) struct Open {
    pub(in crate::repair) name: Name,
    pub(in crate::repair) read: PeerRead,
    pub(in crate::repair) buffer: Buffer,
    pub(in crate::repair) until: Time,
}

/// The repairs of this SSD.
#[derive(Debug, Default)]
pub(crate) struct Repair {
    /// Groups and places that it fills, and for which numbers of replicas the copies merge there.
    pub(in crate::repair) places: Vec<(u32, usize, u8)>,
    pub(in crate::repair) walks: BTreeMap<Name, Walk>,
    pub(in crate::repair) open: BTreeMap<AskId, Open>,
    pub(in crate::repair) last: u32,
    pub(in crate::repair) scrub: Scrub,
    /// Pages that were loaded for the scrub, and how many are being loaded.
    pub(in crate::repair) cold: (Cold, u32),
    /// Answers whose pages are being loaded.
    pub(in crate::repair) tells: u32,
    pub(in crate::repair) pace: Pace,
    /// Term of the daemon that has paused all fills.
    pub(in crate::repair) paused_in: Option<u64>,
    /// Epoch of the map by which the SSD filled before its last start, if that map also gives it serving
    /// places.
    forgotten_in: Option<u64>,
}

impl Repair {
    /// The SSD filled by the map of this epoch before its last start, and that map also gives it serving
    /// places. It has forgotten which blocks it has.
    pub(crate) fn forget_fill(&mut self, epoch: Option<u64>) {
        self.forgotten_in = epoch;
    }

    /// Whether the SSD has forgotten its fill by the map of this epoch.
    pub(crate) fn has_forgotten(&self, epoch: u64) -> bool {
        self.forgotten_in == Some(epoch)
    }
}
