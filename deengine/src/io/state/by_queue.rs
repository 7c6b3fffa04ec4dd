// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands of each queue, in lists through their slots. A queue that closes finds its own commands
//! without a look at those of all others, of which there may be a hundred thousand.

#[cfg(test)]
use super::Commands;
use super::slab::Slab;
use crate::commands::Command;
use crate::commands::links::{Links, NONE};
use gnstor_base::controller::QueueKey;
use rustc_hash::FxHashMap;

/// The first command of each queue that has one.
#[derive(Debug, Default)]
pub(super) struct ByQueue(FxHashMap<QueueKey, u32>);

impl ByQueue {
    /// Puts a command, which is in its slot, into the list of its queue.
    pub(super) fn add(&mut self, slots: &mut Slab<Command>, queue: QueueKey, id: u32) {
        let Some(after) = self.0.insert(queue, id) else { return };
        if let Some(command) = slots.get_mut(id) {
            command.links_mut().after = after;
        }
        if let Some(command) = slots.get_mut(after) {
            command.links_mut().before = id;
        }
    }

    /// Takes a command, which has left its slot, out of the list of its queue.
    pub(super) fn remove(&mut self, slots: &mut Slab<Command>, queue: QueueKey, links: Links) {
        let Links { before, after } = links;
        match (slots.get_mut(before), after) {
            (Some(command), _) => command.links_mut().after = after,
            (None, NONE) => _ = self.0.remove(&queue),
            (None, _) => _ = self.0.insert(queue, after),
        }
        if let Some(command) = slots.get_mut(after) {
            command.links_mut().before = before;
        }
    }

    /// The numbers of a queue's commands.
    pub(super) fn of(&self, slots: &mut Slab<Command>, queue: QueueKey) -> Vec<u32> {
        let mut next = self.0.get(&queue).copied().unwrap_or(NONE);
        let mut all = Vec::new();
        while let Some(command) = slots.get_mut(next) {
            all.push(next);
            next = command.links().after;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_proto::placement::mix64;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn a_queue_lists_each_of_its_commands_from_the_insertion_to_the_removal() {
        let _deadline = crate::deadline::deadline();
        let mut commands = Commands::new().expect("memory");
        let mut model: BTreeMap<QueueKey, BTreeSet<u32>> = BTreeMap::new();
        for step in 0..20_000u64 {
            let dice = |nth: u64, sides: u64| mix64(3 * step + nth) % sides;
            let queue = QueueKey(u32::try_from(dice(0, 5)).expect("small"));
            let own = model.entry(queue).or_default();
            let at = usize::try_from(dice(1, own.len().max(1) as u64)).expect("small");
            match own.iter().nth(at).copied() {
                Some(id) if dice(2, 2) == 0 => {
                    assert!(commands.remove(id).is_some() && own.remove(&id));
                    assert!(commands.remove(id).is_none(), "only once");
                }
                _ => assert!(own.insert(commands.insert(Command::of_gone_queue(queue)))),
            }
            let listed = commands.of_queue(queue);
            assert_eq!(listed.len(), own.len());
            assert!(listed.iter().all(|id| own.contains(id)));
        }
    }
}
