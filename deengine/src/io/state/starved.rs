// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes that wait for frames: a line for each client.
//!
//! ```text
//!   client 7:  first  second  third ..     only the first of a line is looked at
//!   client 9:  first  second  ..           clients take turns, one write each
//! ```
//! A client may have a hundred thousand such writes, by sending no data for those before them.

use gnstor_proto::slba::ClientId;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// The lines of all clients, by the numbers of their commands.
#[derive(Debug, Default)]
pub(in crate::io) struct Starved {
    lines: BTreeMap<ClientId, VecDeque<u32>>,
    len: usize,
    /// The client whose turn was the last one.
    last: Option<ClientId>,
}

impl Starved {
    /// A write joins the line of its client: at its end, or as the first one again.
    pub(in crate::io) fn join(&mut self, client: ClientId, id: u32, is_first: bool) {
        let line = self.lines.entry(client).or_default();
        if is_first {
            line.push_front(id);
        } else {
            line.push_back(id);
        }
        self.len += 1;
    }

    /// The client whose turn it is, and the first write of its line.
    pub(in crate::io) fn next(&mut self) -> Option<(ClientId, u32)> {
        let behind = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.lines.range((behind, Bound::Unbounded)).next().or_else(|| self.lines.iter().next());
        let (client, id) = next.and_then(|(client, line)| Some((*client, *line.front()?)))?;
        self.last = Some(client);
        Some((client, id))
    }

    /// The first write of a client leaves its line.
    pub(in crate::io) fn leave(&mut self, client: ClientId) {
        let Some(line) = self.lines.get_mut(&client) else { return };
        self.len -= usize::from(line.pop_front().is_some());
        if line.is_empty() {
            self.lines.remove(&client);
        }
    }

    /// Number of clients that have a line.
    pub(in crate::io) fn clients(&self) -> usize {
        self.lines.len()
    }

    /// All writes. Some may have ended with their queues.
    pub(in crate::io) fn all(&self) -> Vec<u32> {
        self.lines.values().flatten().copied().collect()
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
        (0..3).for_each(|nth| [7, 8, 9].into_iter().for_each(|raw| starved.join(client(raw), nth, false)));
        let mut order = Vec::new();
        while let Some((next, id)) = starved.next() {
            order.push((next.get(), id));
            starved.leave(next);
            if order.len() == 1 {
                starved.join(next, 0, true);
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
        assert!(starved.is_empty() && starved.all().is_empty());
    }
}
