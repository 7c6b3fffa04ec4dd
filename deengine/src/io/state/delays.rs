// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that wait for their volume's rate limit: a line for each volume.
//!
//! ```text
//!   line of a volume:  first  second  third      a command joins at the end
//!                      `- its start is known; the limit is charged when it begins
//! ```
//! Only the first of a line has a start. A command that leaves the line without having begun costs nothing,
//! and the commands behind it move up.

use gnstor_base::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// A command in a line.
#[derive(Clone, Copy, Debug)]
pub(in crate::io) struct Waiting {
    pub(in crate::io) id: u32,
    /// When it came.
    pub(in crate::io) since: Time,
    /// Blocks that it will be charged for.
    pub(in crate::io) blocks: u32,
}

#[derive(Debug)]
struct Line {
    /// When the first one starts.
    start: Time,
    /// The waiting commands, by their turns.
    waiting: BTreeMap<u64, Waiting>,
}

/// The lines of all volumes.
#[derive(Debug, Default)]
pub(in crate::io) struct Delays {
    lines: BTreeMap<u16, Line>,
    /// Start and volume of each line.
    starts: BTreeSet<(Time, u16)>,
    turns: u64,
}

impl Delays {
    /// The number of the next command that joins a line.
    pub(in crate::io) fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// A command joins the line of its volume. The caller gives a new line its start.
    pub(in crate::io) fn join(&mut self, vid: u16, turn: u64, waiting: Waiting) {
        let line = self.lines.entry(vid).or_insert(Line { start: Time::NEVER, waiting: BTreeMap::new() });
        line.waiting.insert(turn, waiting);
    }

    /// A command leaves its line. Returns whether it was the first. Then the caller gives the line its start.
    pub(in crate::io) fn leave(&mut self, vid: u16, turn: u64) -> bool {
        let Some(line) = self.lines.get_mut(&vid) else { return false };
        let is_first = line.waiting.keys().next() == Some(&turn);
        line.waiting.remove(&turn);
        if line.waiting.is_empty() {
            self.starts.remove(&(line.start, vid));
            self.lines.remove(&vid);
        }
        is_first
    }

    pub(in crate::io) fn has_line(&self, vid: u16) -> bool {
        self.lines.contains_key(&vid)
    }

    /// The first command of a volume's line, and its turn.
    pub(in crate::io) fn first(&self, vid: u16) -> Option<(u64, Waiting)> {
        self.lines.get(&vid)?.waiting.iter().next().map(|(turn, waiting)| (*turn, *waiting))
    }

    /// Sets the start of a line's first command.
    pub(in crate::io) fn set_start(&mut self, vid: u16, start: Time) {
        let Some(line) = self.lines.get_mut(&vid) else { return };
        self.starts.remove(&(line.start, vid));
        self.starts.insert((start, vid));
        line.start = start;
    }

    /// Start and volume of a line whose first command is due.
    pub(in crate::io) fn due(&self, now: Time) -> Option<(Time, u16)> {
        self.starts.first().copied().filter(|(start, _)| *start <= now)
    }

    /// When the next command starts.
    pub(in crate::io) fn next(&self) -> Time {
        self.starts.first().map_or(Time::NEVER, |(start, _)| *start)
    }
}
