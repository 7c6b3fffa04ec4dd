// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gate of a queue pair, as in `gate.cuh`: a limit of send blocks, and a list of commands that wait for
//! one.

use std::collections::VecDeque;

/// Every eighth SEND asks for a completion (`SIGNAL_EVERY` in `abi.h`).
const SIGNAL_EVERY: u32 = 8;

/// The gate of the queue pair to one SSD. It counts blocks and responses with 32 bits.
#[derive(Debug)]
pub(super) struct Gate {
    depth: u32,
    next: u32,
    retired: u32,
    completed: u32,
    /// Ids of the commands that wait.
    waiting: VecDeque<u8>,
    /// `Some`: the queue pair has failed, and its commands get this status.
    error: Option<u32>,
}

impl Gate {
    /// A gate after Connect, which used the first block.
    pub(super) fn new(depth: u32) -> Self {
        Self { depth, next: 1, retired: 0, completed: 1, waiting: VecDeque::new(), error: None }
    }

    fn has_room(&self) -> bool {
        self.next < self.retired.min(self.completed) + self.depth
    }

    /// A command arrives at the gate. Returns whether it may be sent at once; otherwise it waits.
    pub(super) fn arrive(&mut self, cid: u8) -> bool {
        if self.waiting.is_empty() && self.has_room() {
            return true;
        }
        self.waiting.push_back(cid);
        false
    }

    /// The next waiting command, if it may be sent now.
    pub(super) fn admit(&mut self) -> Option<u8> {
        if self.has_room() { self.waiting.pop_front() } else { None }
    }

    /// Whether commands wait.
    pub(super) fn is_blocked(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the send block of a command that may be sent. Returns its index on the wire, and whether it is
    /// signalled.
    pub(super) fn take(&mut self) -> (u16, bool) {
        let index = u16::try_from(self.next & 0xFFFF).expect("16 bits");
        self.next += 1;
        (index, self.next.is_multiple_of(SIGNAL_EVERY))
    }

    /// The SEND in block `index` and all before it are done.
    pub(super) fn retire(&mut self, index: u16) {
        let low = u16::try_from(self.retired & 0xFFFF).expect("16 bits");
        self.retired += u32::from(index.wrapping_add(1).wrapping_sub(low));
    }

    /// A response has arrived.
    pub(super) fn complete(&mut self) {
        self.completed += 1;
    }

    /// Commands without an answer, waiting ones included.
    pub(super) fn load(&self) -> i32 {
        let waiting = u32::try_from(self.waiting.len()).expect("at most 128");
        (self.next + waiting - self.completed).cast_signed()
    }

    /// The status of all commands, if the queue pair has failed.
    pub(super) fn error(&self) -> Option<u32> {
        self.error
    }

    /// The queue pair fails, and no waiting command is sent any more. Returns false if it had failed before.
    pub(super) fn close(&mut self, status: u32) -> bool {
        let is_first = self.error.is_none();
        self.error.get_or_insert(status);
        self.waiting.clear();
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn commands_beyond_the_limit_wait_for_a_retired_block_and_for_a_response() {
        let _deadline = deadline();
        let mut gate = Gate::new(8);
        // Connect's block is retired together with the first signalled block.
        let sent: Vec<_> = (0..7).map(|cid| (gate.arrive(cid), gate.take())).collect();
        assert!(sent.iter().all(|(is_sent, _)| *is_sent));
        assert_eq!((sent[5].1, sent[6].1), ((6, false), (7, true)));
        assert_eq!((gate.arrive(7), gate.load()), (false, 8));
        gate.complete();
        assert_eq!(gate.admit(), None, "its response is read, and its block is not retired");
        gate.retire(7);
        assert_eq!((gate.admit(), gate.take()), (Some(7), (8, false)));
        assert!(gate.arrive(8), "Connect's response left a place, too");
        gate.take();
        assert!(!gate.arrive(9), "one response, one place");
    }

    #[test]
    fn block_numbers_wrap_on_the_wire() {
        let _deadline = deadline();
        let mut gate = Gate::new(32);
        for _ in 0..70_000 {
            assert!(gate.arrive(0));
            let (index, is_signalled) = gate.take();
            gate.complete();
            if is_signalled {
                gate.retire(index);
            }
        }
        assert_eq!((gate.retired, gate.load()), (70_000, 0));
    }
}
