// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gate of a queue pair, as `gate.cuh` has it: send blocks up to a limit, and a waiting list behind it.

use gnstor_proto::nvme::Sqe;
use std::collections::VecDeque;

/// Every eighth SEND asks for a completion (`SIGNAL_EVERY` in `abi.h`).
const SIGNAL_EVERY: u32 = 8;

/// The gate of the queue pair to one SSD. Blocks are counted by 32 bits.
#[derive(Debug)]
pub(crate) struct Gate {
    depth: u32,
    next: u32,
    retired: u32,
    completed: u32,
    waiting: VecDeque<Sqe>,
}

impl Gate {
    pub(crate) fn new(depth: u32) -> Self {
        Self { depth, next: 0, retired: 0, completed: 0, waiting: VecDeque::new() }
    }

    fn has_room(&self) -> bool {
        self.next < self.retired.min(self.completed) + self.depth
    }

    /// A command comes to the gate. It is given back where it may be sent at once.
    pub(crate) fn arrive(&mut self, sqe: Sqe) -> Option<Sqe> {
        if self.waiting.is_empty() && self.has_room() {
            return Some(sqe);
        }
        self.waiting.push_back(sqe);
        None
    }

    /// The next waiting command, if it may be sent now.
    pub(crate) fn admit(&mut self) -> Option<Sqe> {
        if self.has_room() { self.waiting.pop_front() } else { None }
    }

    /// Whether commands wait.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The send block of a command that may be sent: its index on the wire, and whether it is signalled.
    pub(crate) fn take(&mut self) -> (u16, bool) {
        let index = u16::try_from(self.next & 0xFFFF).expect("16 bits");
        self.next += 1;
        (index, self.next.is_multiple_of(SIGNAL_EVERY))
    }

    /// The SEND in block `index` and all before it are done.
    pub(crate) fn retire(&mut self, index: u16) {
        let low = u16::try_from(self.retired & 0xFFFF).expect("16 bits");
        self.retired += u32::from(index.wrapping_add(1).wrapping_sub(low));
    }

    /// A response has come.
    pub(crate) fn complete(&mut self) {
        self.completed += 1;
    }

    /// Commands that are not answered, waiting ones included.
    pub(crate) fn load(&self) -> i32 {
        let waiting = i32::try_from(self.waiting.len()).expect("at most 128");
        i32::try_from(self.next - self.completed).expect("at most the depth") + waiting
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
        let command = |cid: u16| Sqe { cid: cid.into(), ..Sqe::default() };
        let arrive = |gate: &mut Gate, cid| gate.arrive(command(cid)).map(|_| gate.take());
        let sent: Vec<_> = (0..8).filter_map(|cid| arrive(&mut gate, cid)).collect();
        assert_eq!((sent.len(), sent[6], sent[7]), (8, (6, false), (7, true)));
        assert_eq!((arrive(&mut gate, 8), gate.load()), (None, 9));
        gate.complete();
        assert!(gate.admit().is_none(), "its response is read, and its block is not retired");
        gate.retire(7);
        assert_eq!(gate.admit().map(|sqe| sqe.cid.get()), Some(8));
        assert_eq!(gate.take(), (8, false));
        assert!(arrive(&mut gate, 9).is_none(), "one response, one place");
    }

    #[test]
    fn block_numbers_wrap_on_the_wire() {
        let _deadline = deadline();
        let mut gate = Gate::new(32);
        for _ in 0..70_000 {
            assert!(gate.arrive(Sqe::default()).is_some());
            let (index, is_signalled) = gate.take();
            gate.complete();
            if is_signalled {
                gate.retire(index);
            }
        }
        assert_eq!((gate.retired, gate.load()), (70_000, 0));
    }
}
