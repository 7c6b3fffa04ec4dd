// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands with one purpose: a read of the present content, a late write, much journal.

use super::super::*;
use super::work::{CHUNK, Campaign, Life, SLOTS, Sent};

impl Campaign {
    /// Reads blocks. No other command runs in between.
    pub(super) fn read_now(
        &mut self,
        raw: u16,
        vba: u32,
        blocks: u32,
    ) -> (Vec<Option<u64>>, Option<Refusal>) {
        let Life::There(entry) = &self.table[&raw] else { panic!("volume {raw} is not there") };
        let key = (raw, entry.generation, vba);
        let mut sqe = self.sqe_for(io::READ, READER, (key, blocks), Stamp::default());
        sqe.dptr = KeyedSgl::keyed(u64::from(SLOTS * CHUNK) * 4096, blocks * 4096, KEY);
        let hold = std::mem::replace(&mut self.harness.hold, false);
        let cid = self.harness.submit(READER, sqe);
        let mut answer = self.harness.take(READER, cid);
        for _ in 0..1000 {
            // The firmware may be busy.
            if answer.is_some() {
                break;
            }
            self.pass(1_000);
            answer = self.harness.take(READER, cid);
        }
        self.harness.hold = hold;
        let cqe = answer.expect("a read is answered soon");
        let found = (0..blocks).map(|index| self.content(READER, SLOTS * CHUNK + index, key)).collect();
        (found, refusal(&cqe))
    }

    /// A write with a stamp that some block of the volume has seen already.
    pub(super) fn write_late(&mut self, raw: u16) {
        let Life::There(entry) = &self.table[&raw] else { return };
        let (generation, blocks) = (entry.generation, entry.capacity_blocks);
        let lease = entry.lease_epoch;
        let vba = u32::try_from(self.dice.below(blocks)).expect("small");
        let key = (raw, generation, vba);
        let held = self.oracle.acked(key);
        let stamp =
            Stamp { sequence: held.sequence - u64::from(self.dice.one_in(2) && held.sequence > 0), ..held };
        // A lease epoch of the past is refused: only blocks written under this one can be late.
        if held.lease_epoch != lease || self.is_busy(WRITER) {
            return;
        }
        let Some(slot) = self.slots.get_mut(&WRITER).expect("its slots").pop_first() else { return };
        self.commands += 1;
        self.tag += 1;
        let (command, tag) = (self.commands, self.tag);
        self.harness.poke(WRITER, (slot * CHUNK) as usize * BLOCK, &block(tag));
        self.oracle.sent(command, key, stamp, Some(tag));
        let mut sqe = self.sqe_for(io::WRITE, WRITER, (key, 1), stamp);
        sqe.dptr = KeyedSgl::keyed(u64::from(slot * CHUNK) * 4096, 4096, KEY);
        let fua = ReadWrite::decode(&sqe).fua;
        self.submit(WRITER, sqe, Sent::Write { command, stamp, fua, slot: Some(slot) });
    }

    /// Many TRIMs of whole chunks: little time and much journal, so that checkpoints come.
    pub(super) fn trim_a_lot(&mut self, count: u64) {
        for _ in 0..count {
            let Some((mut first, _, lease)) = self.range().filter(|_| self.has_power()) else { return };
            first.2 -= first.2 % CHUNK;
            let stamp = self.stamp(lease);
            self.commands += 1;
            let command = self.commands;
            (0..CHUNK).for_each(|index| {
                self.oracle.sent(command, (first.0, first.1, first.2 + index), stamp, None)
            });
            let sqe = self.sqe_for(io::WRITE_ZEROES, WRITER, (first, CHUNK), stamp);
            let fua = ReadWrite::decode(&sqe).fua;
            self.submit(WRITER, sqe, Sent::Write { command, stamp, fua, slot: None });
            while self.is_busy(WRITER) && self.has_power() {
                self.end_a_transfer();
                self.pass(50_000);
            }
        }
    }
}
