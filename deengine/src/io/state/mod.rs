// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of the I/O path for commands that the firmware executes. The other modules of `io` work on it. This
//! module uses nothing above `commands`, so the SSD can hold it.

mod by_queue;
mod delays;
pub(in crate::io) mod slab;
mod starved;

use crate::commands::Command;
use crate::commands::scratch::Scratch;
use crate::commands::shares::Shares;
use crate::permission::Authorized;
use crate::request::Request;
use by_queue::ByQueue;
use delays::Delays;
pub(in crate::io) use delays::Waiting;
use gnstor_base::controller::{Effect, QueueKey};
use gnstor_base::time::Time;
use gnstor_flash::{Frame, Ppa, Ticket};
use slab::Slab;
use starved::Starved;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Most blocks that the commands of one step unmap; the others go on with the next step. One command may name
/// a million, and the engine does nothing else meanwhile. As many as a range can have: a chunk.
const STEP_BLOCKS: u32 = 1 << 12;

/// A page on its way from the medium, for a Compare or a repair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) command: u32,
    pub(crate) page: Ppa,
    pub(crate) sum: u32,
    pub(crate) to: LoadFor,
}

/// The use of a loaded page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LoadFor {
    /// A Compare: it is this block of the command.
    Compare(u32),
    /// An answer to another SSD.
    Answer,
    /// The scrub. There is no command.
    Scrub,
}

/// A read or write that the firmware has allowed, and that the worker of its queue carries out.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) queue: QueueKey,
    pub(crate) cid: u16,
    /// When the modelled firmware had taken it.
    pub(crate) at: Time,
    pub(crate) request: Authorized<Request>,
    /// Frames for the data of a write. [`Commands::shares`] counts them until the data is there.
    pub(crate) frames: Vec<Frame>,
}

/// The commands that the firmware carries out under the SSD's lock, and what they use.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(in crate::io) slots: Slab<Command>,
    by_queue: ByQueue,
    /// The commands of the transfers under way.
    transfers: Slab<u32>,
    /// Commands that wait for their volume's rate limit.
    pub(in crate::io) delays: Delays,
    /// Commands that wait for the translation layer, oldest first. Writes that wait for frames are not among
    /// them.
    pub(in crate::io) waiting: VecDeque<u32>,
    /// Writes that wait for frames.
    pub(in crate::io) starved: Starved,
    /// How often a waiting command was tried again.
    #[cfg(test)]
    pub(in crate::io) tries: u64,
    /// How often a write that waits for frames was judged by a new entry.
    #[cfg(test)]
    pub(in crate::io) judged: u64,
    /// The commands in `waiting` are being tried again.
    pub(in crate::io) is_retrying: bool,
    /// Blocks that may still be unmapped in this step.
    pub(in crate::io) trim_left: u32,
    /// Pages on their way from the medium.
    pub(in crate::io) loads: HashMap<Ticket, Load>,
    /// When such loads began, or one ended; `None`: they began after the last look.
    pub(in crate::io) loads_since: Option<Time>,
    /// Effects for the workers that were not handed to them yet.
    effects: VecDeque<Effect>,
    /// Reads and writes for the workers of their queues, those of a queue in order.
    grants: BTreeMap<(QueueKey, u64), Grant>,
    granted: u64,
    /// Queues of those among them whose workers were not told.
    untold: Vec<QueueKey>,
    /// Data of commands that are not about blocks.
    pub(in crate::io) scratch: Scratch,
    /// Frames of granted writes whose data is under way, by client.
    pub(in crate::io) shares: Shares,
}

impl Commands {
    /// # Errors
    /// No memory for the scratch buffers.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            slots: Slab::new(),
            by_queue: ByQueue::default(),
            transfers: Slab::new(),
            delays: Delays::default(),
            waiting: VecDeque::new(),
            starved: Starved::default(),
            #[cfg(test)]
            tries: 0,
            #[cfg(test)]
            judged: 0,
            is_retrying: false,
            trim_left: STEP_BLOCKS,
            loads: HashMap::new(),
            loads_since: None,
            effects: VecDeque::new(),
            grants: BTreeMap::new(),
            granted: 0,
            untold: Vec::new(),
            scratch: Scratch::new()?,
            shares: Shares::of(0),
        })
    }

    /// Shares the SSD with so many workers, which carry commands out, too.
    pub(crate) fn share(&mut self, workers: usize) {
        self.shares = Shares::of(workers);
    }

    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub(crate) fn scratch_mut(&mut self) -> &mut Scratch {
        &mut self.scratch
    }

    /// How often a waiting command was tried again, and a write that waits for frames judged by a new entry.
    #[cfg(test)]
    pub(crate) fn tried_and_judged(&self) -> (u64, u64) {
        (self.tries, self.judged)
    }

    /// Frames that a client waits for data in.
    #[cfg(test)]
    pub(crate) fn frames_of(&self, client: gnstor_proto::slba::ClientId) -> u32 {
        self.shares.held(client)
    }

    /// Number of commands, granted ones that no worker has taken over included.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() + self.grants.len()
    }

    /// Whether one more command can be numbered, and its transfer.
    pub(crate) fn has_room(&self) -> bool {
        self.slots.has_room(1) && self.transfers.has_room(1)
    }

    /// A step begins.
    pub(crate) fn begin_step(&mut self) {
        self.trim_left = STEP_BLOCKS;
    }

    pub(crate) fn insert(&mut self, command: Command) -> u32 {
        let queue = command.queue();
        let id = self.slots.insert(command);
        self.by_queue.add(&mut self.slots, queue, id);
        id
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Command> {
        self.slots.get_mut(id)
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Command> {
        let command = self.slots.remove(id)?;
        self.by_queue.remove(&mut self.slots, command.queue(), command.links());
        Some(command)
    }

    /// The numbers of a queue's commands.
    pub(crate) fn of_queue(&mut self, queue: QueueKey) -> Vec<u32> {
        self.by_queue.of(&mut self.slots, queue)
    }

    /// All commands with their numbers, by a scan.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Command)> {
        self.slots.iter()
    }

    pub(crate) fn add_transfer(&mut self, command: u32) -> u32 {
        self.transfers.insert(command)
    }

    /// The command of a transfer that has ended.
    pub(crate) fn end_transfer(&mut self, id: u32) -> Option<u32> {
        self.transfers.remove(id)
    }

    pub(crate) fn emit(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Has the worker of its queue carry out a command.
    pub(in crate::io) fn grant(&mut self, grant: Grant) {
        self.untold.push(grant.queue);
        self.granted += 1;
        self.grants.insert((grant.queue, self.granted), grant);
    }

    /// Reads and writes that no worker has taken over yet.
    pub(crate) fn granted(&self) -> impl Iterator<Item = &Grant> {
        self.grants.values()
    }

    /// The queues of the commands granted since the last call, whose workers are told now.
    pub(crate) fn untold_grants(&mut self) -> impl Iterator<Item = QueueKey> {
        self.untold.drain(..)
    }

    /// The oldest granted command of this queue.
    pub(in crate::io) fn take_grant(&mut self, queue: QueueKey) -> Option<Grant> {
        let (&oldest, _) = self.grants.range((queue, 0)..=(queue, u64::MAX)).next()?;
        self.grants.remove(&oldest)
    }

    pub(crate) fn effects(&mut self) -> &mut VecDeque<Effect> {
        &mut self.effects
    }
}
