// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands of clients that the campaign draws.

use super::*;

impl Campaign {
    pub(in crate::tests::crash) fn write(&mut self) {
        let Some((first, blocks, lease)) = self.range().filter(|_| !self.is_busy(WRITER)) else {
            return self.end_a_transfer();
        };
        let stamp = self.stamp(lease);
        let mut sqe = self.sqe_for(io::WRITE, WRITER, (first, blocks), stamp);
        let Some(slot) = self.slots.get_mut(&WRITER).expect("its slots").pop_first() else { return };
        self.commands += 1;
        let command = self.commands;
        for index in 0..blocks {
            self.tag += 1;
            let tag = self.tag;
            self.harness.poke(WRITER, ((slot * CHUNK + index) as usize) * BLOCK, &block(tag));
            self.oracle.sent(command, (first.0, first.1, first.2 + index), stamp, Some(tag));
        }
        sqe.dptr = KeyedSgl::keyed(u64::from(slot * CHUNK) * 4096, blocks * 4096, KEY);
        let fua = ReadWrite::decode(&sqe).fua;
        self.submit(WRITER, sqe, Sent::Write { command, stamp, fua, slot: Some(slot) });
    }

    /// After a call of the SSD that was not this module's.
    pub(in crate::tests::crash) fn note_answers(&mut self) {
        self.harvest();
    }

    pub(super) fn trim(&mut self) {
        let Some((first, blocks, lease)) = self.range().filter(|_| !self.is_busy(WRITER)) else { return };
        let stamp = self.stamp(lease);
        self.commands += 1;
        let command = self.commands;
        for index in 0..blocks {
            self.oracle.sent(command, (first.0, first.1, first.2 + index), stamp, None);
        }
        if self.dice.one_in(2) {
            let sqe = self.sqe_for(io::WRITE_ZEROES, WRITER, (first, blocks), stamp);
            let fua = ReadWrite::decode(&sqe).fua;
            return self.submit(WRITER, sqe, Sent::Write { command, stamp, fua, slot: None });
        }
        // One or two ranges.
        let split = self.dice.small(blocks);
        let mut data = Vec::new();
        for (at, count) in [(first.2, split), (first.2 + split, blocks - split)] {
            if count > 0 {
                let slba = Slba::pack(Address { vid: vid(first.0), client: client(7), vba: at });
                data.extend_from_slice(&[0; 4]);
                data.extend_from_slice(&count.to_le_bytes());
                data.extend_from_slice(&slba.0.to_le_bytes());
            }
        }
        let mut sqe = self.sqe_for(io::DATASET_MANAGEMENT, WRITER, (first, 1), stamp);
        let Some(slot) = self.slots.get_mut(&WRITER).expect("its slots").pop_first() else {
            return self.oracle.refused(command);
        };
        let at = (slot * CHUNK) as usize * BLOCK;
        self.harness.poke(WRITER, at, &data);
        let bytes = u32::try_from(data.len()).expect("short");
        sqe.dptr = KeyedSgl::keyed(at as u64, bytes, KEY);
        (sqe.cdw10, sqe.cdw11, sqe.cdw12) = ((bytes / 16 - 1).into(), 4.into(), 0.into());
        self.submit(WRITER, sqe, Sent::Write { command, stamp, fua: false, slot: Some(slot) });
    }

    pub(super) fn flush(&mut self) {
        if !self.is_busy(WRITER) {
            let snapshot = self.oracle.snapshot();
            self.submit(WRITER, sqe(io::FLUSH), Sent::Flush(snapshot));
        }
    }

    pub(super) fn read(&mut self) {
        let Some((first, blocks, lease)) = self.range().filter(|_| !self.is_busy(READER)) else { return };
        let Some(slot) = self.slots.get_mut(&READER).expect("its slots").pop_first() else { return };
        let mut sqe =
            self.sqe_for(io::READ, READER, (first, blocks), Stamp { lease_epoch: lease, sequence: 0 });
        sqe.dptr = KeyedSgl::keyed(u64::from(slot * CHUNK) * 4096, blocks * 4096, KEY);
        let floors =
            (0..blocks).map(|index| self.oracle.acked((first.0, first.1, first.2 + index))).collect();
        self.submit(READER, sqe, Sent::Read { first, floors, slot });
    }

    pub(super) fn compare(&mut self) {
        let Some((first, _, lease)) = self.range().filter(|_| !self.is_busy(WRITER)) else { return };
        let tag = self.oracle.guess(first, self.dice.roll());
        let mut sqe =
            self.sqe_for(io::COMPARE, WRITER, (first, 1), Stamp { lease_epoch: lease, sequence: 0 });
        let Some(slot) = self.slots.get_mut(&WRITER).expect("its slots").pop_first() else { return };
        let at = (slot * CHUNK) as usize * BLOCK;
        self.harness.poke(WRITER, at, &tag.map_or_else(|| vec![0; BLOCK], block));
        sqe.dptr = KeyedSgl::keyed(at as u64, 4096, KEY);
        let floor = self.oracle.acked(first);
        self.submit(WRITER, sqe, Sent::Compare { first, floor, tag, slot });
    }
}
