// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes that wait for frames: a line for each client.
//!
//! ```text
//!   client 7:  first  second  third ..     only the first of a line is looked at
//!   client 9:  first  second  ..           clients take turns, one write each
//! ```
//! A client may have a hundred thousand such writes, by sending no data for those before them. When an entry
//! changes, only the writes of that volume are judged by it, a bounded number at a time.

use gnstor_proto::slba::{ClientId, Vid};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// A write in the line of its client.
#[derive(Clone, Copy, Debug)]
struct Place {
    id: u32,
    vid: Vid,
    turn: u64,
}

/// The lines of all clients, by the numbers of their commands.
#[derive(Debug, Default)]
pub(in crate::io) struct Starved {
    lines: BTreeMap<ClientId, VecDeque<Place>>,
    len: usize,
    turns: u64,
    /// The same writes, by volume and in the order in which they joined.
    of_volume: BTreeMap<(Vid, u64), u32>,
    /// Volumes whose entries have changed, and the turn of the first write that is not judged yet.
    to_judge: BTreeMap<Vid, u64>,
    /// The volume whose writes were the last ones to be judged. Volumes take turns, so one whose entry
    /// changes again and again holds up no other.
    judged: Option<Vid>,
    /// The client whose turn was the last one.
    last: Option<ClientId>,
}

impl Starved {
    /// A write joins the line of its client: at its end, or as the first one again.
    pub(in crate::io) fn join(&mut self, client: ClientId, vid: Vid, id: u32, is_first: bool) {
        self.turns += 1;
        let place = Place { id, vid, turn: self.turns };
        let line = self.lines.entry(client).or_default();
        if is_first {
            line.push_front(place);
        } else {
            line.push_back(place);
        }
        self.of_volume.insert((vid, place.turn), id);
        self.len += 1;
    }

    /// Notes that the entry of a volume has changed, so its waiting writes must be judged again. Later writes
    /// are judged by the new entry anyway.
    pub(in crate::io) fn judge(&mut self, vid: Vid) {
        if self.of_volume.range((vid, 0)..=(vid, u64::MAX)).next().is_some() {
            self.to_judge.insert(vid, 0);
        }
    }

    /// The next writes that are to be judged, at most so many. Some may have ended with their queues.
    pub(in crate::io) fn take_to_judge(&mut self, most: usize) -> Vec<u32> {
        let mut ids = Vec::new();
        while ids.len() < most
            && let Some((vid, from)) = self.next_to_judge()
        {
            self.judged = Some(vid);
            let room = most - ids.len();
            let of_volume = self.of_volume.range((vid, from)..=(vid, u64::MAX)).take(room);
            let (mut count, mut next) = (0, from);
            for (&(_, turn), &id) in of_volume {
                ids.push(id);
                (count, next) = (count + 1, turn + 1);
            }
            if count < room {
                self.to_judge.remove(&vid);
            } else {
                self.to_judge.insert(vid, next);
            }
        }
        ids
    }

    fn next_to_judge(&self) -> Option<(Vid, u64)> {
        let behind = self.judged.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.to_judge.range((behind, Bound::Unbounded)).next();
        next.or_else(|| self.to_judge.first_key_value()).map(|(&vid, &from)| (vid, from))
    }

    /// Whether writes are to be judged.
    pub(in crate::io) fn is_to_judge(&self) -> bool {
        !self.to_judge.is_empty()
    }

    /// The client whose turn it is, and the first write of its line.
    pub(in crate::io) fn next(&mut self) -> Option<(ClientId, u32)> {
        let behind = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.lines.range((behind, Bound::Unbounded)).next().or_else(|| self.lines.iter().next());
        let (client, id) = next.and_then(|(client, line)| Some((*client, line.front()?.id)))?;
        self.last = Some(client);
        Some((client, id))
    }

    /// The first write of a client leaves its line.
    pub(in crate::io) fn leave(&mut self, client: ClientId) {
        let Some(line) = self.lines.get_mut(&client) else { return };
        if let Some(Place { vid, turn, .. }) = line.pop_front() {
            self.len -= 1;
            self.of_volume.remove(&(vid, turn));
        }
        if line.is_empty() {
            self.lines.remove(&client);
        }
    }

    /// Number of clients that have a line.
    pub(in crate::io) fn clients(&self) -> usize {
        self.lines.len()
    }

    pub(in crate::io) fn len(&self) -> usize {
        self.len
    }

    pub(in crate::io) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_turns_and_each_line_keeps_its_order() {
        let _deadline = crate::deadline::deadline();
        let client = |raw| ClientId::new(raw).expect("an id");
        let mut starved = Starved::default();
        let vid = Vid::new(5).expect("an id");
        (0..3)
            .for_each(|nth| [7, 8, 9].into_iter().for_each(|raw| starved.join(client(raw), vid, nth, false)));
        let mut order = Vec::new();
        while let Some((next, id)) = starved.next() {
            order.push((next.get(), id));
            starved.leave(next);
            if order.len() == 1 {
                starved.join(next, vid, 0, true);
            }
        }
        let rounds = (0..3).flat_map(|nth| [(7, nth), (8, nth), (9, nth)]);
        // The write of client 7 that found no frames after all comes again with the client's next turn.
        let mut expected: Vec<(u16, u32)> = rounds.collect();
        expected.insert(3, (7, 0));
        let of = |order: &[(u16, u32)], raw| -> Vec<u32> {
            order.iter().filter(|(other, _)| *other == raw).map(|(_, nth)| *nth).collect()
        };
        for raw in [7, 8, 9] {
            assert_eq!(of(&order, raw), of(&expected, raw));
        }
        assert_eq!(order[..4].iter().map(|(raw, _)| *raw).collect::<Vec<_>>(), [7, 8, 9, 7]);
        assert!(starved.is_empty() && starved.of_volume.is_empty());
    }

    #[test]
    fn writes_of_the_volume_that_changed_are_judged_some_at_a_time_and_no_others() {
        let _deadline = crate::deadline::deadline();
        let (client, vid) = (|raw| ClientId::new(raw).expect("an id"), |raw| Vid::new(raw).expect("an id"));
        let mut starved = Starved::default();
        (0..10).for_each(|id| starved.join(client(7), vid(5), id, false));
        (10..15).for_each(|id| starved.join(client(8), vid(6), id, false));
        starved.judge(vid(4));
        assert!(!starved.is_to_judge(), "it has none");
        starved.judge(vid(5));
        assert_eq!(starved.take_to_judge(4), [0, 1, 2, 3]);
        // One has left its line, and one joins under the new entry.
        (0..5).for_each(|_| starved.leave(client(7)));
        starved.join(client(7), vid(5), 20, false);
        starved.judge(vid(6));
        assert_eq!(starved.take_to_judge(7), [10, 11, 12, 13, 14, 5, 6]);
        assert!(starved.is_to_judge());
        // The entry changes again meanwhile.
        starved.judge(vid(6));
        assert_eq!(starved.take_to_judge(100), [10, 11, 12, 13, 14, 7, 8, 9, 20]);
        assert!(!starved.is_to_judge() && starved.take_to_judge(100).is_empty());
    }

    #[test]
    fn a_volume_whose_entry_changes_again_and_again_holds_up_no_other() {
        let _deadline = crate::deadline::deadline();
        let (client, vid) = (|raw| ClientId::new(raw).expect("an id"), |raw| Vid::new(raw).expect("an id"));
        let mut starved = Starved::default();
        (0..10).for_each(|id| starved.join(client(7), vid(5), id, false));
        (10..12).for_each(|id| starved.join(client(8), vid(6), id, false));
        starved.judge(vid(6));
        let mut judged = Vec::new();
        for _ in 0..3 {
            starved.judge(vid(5));
            judged.extend(starved.take_to_judge(4));
        }
        assert!(judged.contains(&10) && judged.contains(&11), "{judged:?}");
    }
}
