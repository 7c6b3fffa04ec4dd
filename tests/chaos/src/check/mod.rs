// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The judge of histories. It sees lines that clients and the conductor wrote, and nothing of the array.
//!
//! | promise | rule of `docs/protocol-fleet.md` and `docs/protocol.md` |
//! |---|---|
//! | an acknowledged write is found by each later read | 5a |
//! | one writer at a time | 8 |
//! | a value that was read stays, unless an epoch takes a place from an SSD; a value that went stays away | 7a |
//! | no bytes of another place, volume or life; nothing of a deleted volume | 10 |
//! | no block of two writes | 5a |
//! | copies are equal in the quiet | 14 |
//! | the array is healthy in time, and no call fails where one SSD alone is faulty | 1b, 2b |

mod block;
#[cfg(test)]
mod forged;
mod leases;
mod outcomes;

use crate::block::{Life, Stamp};
use crate::history::{Call, Event, Outcome, Time};
use block::{Block, ReadOf, Version};
pub use outcomes::Counts;
use outcomes::Round;
use std::collections::{BTreeMap, HashMap};

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The promise.
    pub rule: &'static str,
    /// What the lines say.
    pub facts: String,
}

/// A call, with its end if there is one yet.
#[derive(Clone, Debug)]
struct Op {
    who: String,
    begin: Time,
    end: Option<Time>,
    call: Call,
    outcome: Option<Outcome>,
}

#[derive(Default, Debug)]
struct Volume {
    blocks: HashMap<u32, Block>,
    /// Write leases, each with the time at which its client was told.
    grants: Vec<(u32, Time)>,
    /// When a call to delete it began first, and when one ended well.
    deleting: Option<Time>,
    deleted: Option<Time>,
}

/// What is known of all lines until now.
#[derive(Default, Debug)]
pub struct Judge {
    volumes: BTreeMap<Life, Volume>,
    /// Calls without an end.
    open: HashMap<(String, u64), (Time, Call)>,
    rounds: Vec<Round>,
    counts: Counts,
    broken: Vec<Violation>,
}

fn blocks_of(call: &Call) -> Option<(Life, u32, u32)> {
    match *call {
        Call::Write { life, block, blocks, .. }
        | Call::Zero { life, block, blocks, .. }
        | Call::Read { life, block, blocks, .. }
        | Call::Copy { life, block, blocks, .. } => Some((life, block, blocks)),
        Call::Create { .. } | Call::Open { .. } | Call::Release { .. } | Call::Delete { .. } => None,
    }
}

/// The stamp of a call that changes blocks, and whether it unmaps them.
fn change_of(call: &Call) -> Option<(Stamp, bool)> {
    match *call {
        Call::Write { stamp, .. } => Some((stamp, false)),
        Call::Zero { stamp, .. } => Some((stamp, true)),
        _ => None,
    }
}

impl Judge {
    /// Judges more lines. No call is under way at their end, except calls of killed clients.
    /// Returns what they break.
    pub fn judge(&mut self, mut events: Vec<Event>) -> Vec<Violation> {
        events.sort_by_key(Event::at);
        let ops = self.calls_of(events);
        for op in &ops {
            self.note(op);
        }
        for op in &ops {
            self.leases_of(op);
        }
        for op in &ops {
            self.judge_read(op);
            self.outcome_of(op);
        }
        self.copies_of(&ops);
        for volume in self.volumes.values_mut() {
            volume.blocks.values_mut().for_each(Block::forget_older);
        }
        std::mem::take(&mut self.broken)
    }

    /// How calls ended.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    fn breaks(&mut self, rule: &'static str, facts: String) {
        self.broken.push(Violation { rule, facts });
    }

    /// The calls that ended, in the order of their ends; behind them, calls that began and have no end.
    fn calls_of(&mut self, events: Vec<Event>) -> Vec<Op> {
        let (mut ended, mut begun) = (Vec::new(), Vec::new());
        for event in events {
            match event {
                Event::Begin { who, id, at, call } => {
                    begun.push((who.clone(), id));
                    self.open.insert((who, id), (at, call));
                }
                Event::End { who, id, at, outcome } => {
                    let Some((begin, call)) = self.open.remove(&(who.clone(), id)) else {
                        self.breaks(
                            "each call ends once",
                            format!("call {id} of {who} ends, and did not begin"),
                        );
                        continue;
                    };
                    ended.push(Op { who, begin, end: Some(at), call, outcome: Some(outcome) });
                }
                Event::Round { round, at, alone, faults } => {
                    self.rounds = vec![Round { round, begins: at, ends: Time::MAX, alone, faults }];
                }
                Event::Healed { at, lacks } => {
                    if let Some(round) = self.rounds.last_mut() {
                        round.ends = at;
                    }
                    if let Some(lacks) = lacks {
                        self.breaks("the array is healthy again in time", lacks);
                    }
                }
            }
        }
        let without_end = begun.into_iter().filter_map(|key| {
            let (begin, call) = self.open.get(&key)?;
            Some(Op { who: key.0, begin: *begin, end: None, call: call.clone(), outcome: None })
        });
        ended.extend(without_end);
        ended
    }

    /// Notes what calls change, so that reads beside them can be judged.
    fn note(&mut self, op: &Op) {
        let is_done = op.outcome == Some(Outcome::Done);
        if let Call::Delete { life } = op.call {
            let volume = self.volumes.entry(life).or_default();
            volume.deleting = Some(volume.deleting.map_or(op.begin, |at| at.min(op.begin)));
            if is_done {
                volume.deleted = volume.deleted.or(op.end);
            }
        }
        let Some((stamp, is_zeros)) = change_of(&op.call) else { return };
        let Some((life, first, count)) = blocks_of(&op.call) else { return };
        let acked = op.end.filter(|_| is_done);
        let volume = self.volumes.entry(life).or_default();
        for block in first..first + count {
            let block = volume.blocks.entry(block).or_default();
            block.add(Version { stamp, is_zeros, begin: op.begin, acked, gone: None });
        }
    }

    fn judge_read(&mut self, op: &Op) {
        let Some(Outcome::Values(values, shrunk)) = &op.outcome else { return };
        let Some((life, first, _)) = blocks_of(&op.call) else { return };
        let (is_writer, epoch) = match op.call {
            Call::Read { writer, epoch, .. } => (writer, epoch),
            // A copy by itself shows what it has, whichever the first is.
            _ => (true, 0),
        };
        let volume = self.volumes.entry(life).or_default();
        if volume.deleted.is_some_and(|deleted| deleted < op.begin) {
            let facts = format!("{} read life {life:#x}, block {first}, after it was deleted", op.who);
            return self.breaks("nothing of a deleted volume is read", facts);
        }
        let end = op.end.unwrap_or(Time::MAX);
        let last = volume.grants.iter().filter(|(_, told)| *told < op.begin).map(|(lease, _)| *lease).max();
        let read = ReadOf {
            life,
            begin: op.begin,
            end,
            is_writer,
            epoch,
            shrunk: *shrunk,
            lease: last.unwrap_or(0),
        };
        let mut broken = Vec::new();
        for (number, found) in (first..).zip(values) {
            let block = volume.blocks.entry(number).or_default();
            if let Err((rule, why)) = block.read(&read, number, found) {
                let facts = format!("{} read life {life:#x}, block {number}, at {}: {why}", op.who, op.begin);
                broken.push(Violation { rule, facts });
            }
        }
        self.broken.extend(broken);
    }
}
