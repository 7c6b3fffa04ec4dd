// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the modelled SSD is done: every resource is booked as soon as a command needs it.
//!
//! ```text
//!   read    firmware -> (+ hash) -> sense on the LUN -> channel -> PCIe                     done
//!   write   firmware -> (+ hash) -> room in the write buffer -> PCIe                        done
//!                                      ^-- program on the LUN <- channel <- one-shot full, in the background
//! ```
//! The firmware and a LUN serve in order, so each is one "free from" time. Channels and PCIe get their work in any
//! order of time, because a page is ready when its LUN is; they are `Lane`s, which can be booked before what was
//! booked already. A page that is still in the write buffer is read from there.

use crate::media::Ppa;
use crate::preset::Preset;
use gnstor_fabric::time::{Span, Time};
use gnstor_proto::BLOCK_BYTES;
use std::collections::VecDeque;

/// Slots of 4.2 us: short beside every latency modelled, long beside one transfer.
const SLOT_SHIFT: u32 = 22;
const SLOT_PS: u64 = 1 << SLOT_SHIFT;
/// 17 ms ahead; what is booked later than that is not seen by later bookings.
const SLOTS: usize = 4096;

/// A link that carries one thing at a time, booked by how much of each short slot is taken.
#[derive(Debug)]
struct Lane {
    bytes_per_s: u64,
    slots: Vec<Slot>,
    /// Slots known to be full, so that a backlog is stepped over at once.
    full: std::ops::Range<u64>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    number: u64,
    used_ps: u64,
}

impl Lane {
    fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, slots: vec![Slot::default(); SLOTS], full: 0..0 }
    }

    /// Books the transfer of `bytes` not before `from`; the time it ends.
    fn book(&mut self, from: Time, bytes: u64) -> Time {
        let mut left = Span::transfer(bytes, self.bytes_per_s).as_ps();
        if left == 0 {
            return from;
        }
        let mut at = from.as_ps();
        if self.full.contains(&(at >> SLOT_SHIFT)) {
            at = self.full.end << SLOT_SHIFT;
        }
        let first = at >> SLOT_SHIFT;
        loop {
            let number = at >> SLOT_SHIFT;
            let start = number << SLOT_SHIFT;
            let slot = &mut self.slots[usize::try_from(number).expect("64-bit host") % SLOTS];
            if slot.number != number {
                *slot = Slot { number, used_ps: 0 };
            }
            let begin = at.max(start + slot.used_ps);
            let taken = left.min(start + SLOT_PS - begin);
            slot.used_ps += taken;
            left -= taken;
            if slot.used_ps == SLOT_PS {
                self.note_full(first, number);
            }
            if left == 0 {
                return Time::ZERO + Span::from_ps(begin + taken);
            }
            at = start + SLOT_PS;
        }
    }

    fn note_full(&mut self, first: u64, number: u64) {
        if number == self.full.end {
            self.full.end += 1;
        } else if number == first {
            self.full = number..number + 1;
        }
    }
}

/// The model of one SSD's time.
#[derive(Debug)]
pub struct Timing {
    preset: Preset,
    firmware_free: Time,
    lun_free: Vec<Time>,
    channels: Vec<Lane>,
    to_host: Lane,
    from_host: Lane,
    /// Pages of each LUN that wait in the buffer for their one-shot to fill.
    half_filled: Vec<Vec<Ppa>>,
    /// For each page the time, in ps, from which flash has it; before that it is read from the buffer.
    on_flash_ps: Vec<u64>,
    /// One-shots being programmed: when they leave the buffer, and their pages.
    programs: VecDeque<(Time, u32)>,
    buffered_pages: u32,
}

const IN_BUFFER: u64 = u64::MAX;

impl Timing {
    /// A model of `pages` physical pages, idle, with everything on flash.
    pub fn new(preset: Preset, pages: u32) -> Self {
        let luns = preset.luns() as usize;
        Self {
            preset,
            firmware_free: Time::ZERO,
            lun_free: vec![Time::ZERO; luns],
            channels: (0..preset.channels).map(|_| Lane::new(preset.channel_bytes_per_s)).collect(),
            to_host: Lane::new(preset.pcie_bytes_per_s),
            from_host: Lane::new(preset.pcie_bytes_per_s),
            half_filled: vec![Vec::with_capacity(preset.program_pages as usize); luns],
            on_flash_ps: vec![0; pages as usize],
            programs: VecDeque::new(),
            buffered_pages: 0,
        }
    }

    /// The firmware takes a read command; when it has been checked and looked up.
    pub fn accept_read(&mut self, now: Time) -> Time {
        self.accept(now, self.preset.fw_read_ns)
    }

    /// The firmware takes any other I/O command; when it has been checked.
    pub fn accept_write(&mut self, now: Time) -> Time {
        self.accept(now, self.preset.fw_write_ns)
    }

    fn accept(&mut self, now: Time, cost_ns: u64) -> Time {
        self.firmware_free = self.firmware_free.max(now) + Span::from_ns(cost_ns);
        self.firmware_free + Span::from_ns(self.preset.hash_ns)
    }

    /// Reads `pages` and sends them and `unmapped` zero blocks to the host. Neighbours in one flash page are sensed
    /// together.
    pub fn read(&mut self, accepted: Time, pages: &[Ppa], unmapped: u32) -> Time {
        let mut done = self.to_host.book(accepted, u64::from(unmapped * BLOCK_BYTES));
        let sense_pages = self.preset.sense_pages;
        for run in pages.chunk_by(|a, b| a.0 / sense_pages == b.0 / sense_pages) {
            let bytes = run.len() as u64 * u64::from(BLOCK_BYTES);
            let buffered = run.iter().all(|page| self.on_flash_ps[page.0 as usize] > accepted.as_ps());
            let ready = if buffered { accepted } else { self.sense(accepted, run[0], bytes) };
            done = done.max(self.to_host.book(ready, bytes));
        }
        done
    }

    /// The LUN is held until its page register has been emptied over the channel.
    fn sense(&mut self, from: Time, page: Ppa, bytes: u64) -> Time {
        let lun = self.lun_of(page);
        let sensed = self.lun_free[lun].max(from) + Span::from_ns(self.preset.sense_ns);
        let sent = self.channel_of(lun).book(sensed, bytes);
        self.lun_free[lun] = sent;
        sent
    }

    /// Takes data for `pages` into the write buffer: done when it is there, which is as good as flash
    /// (power-protected).
    pub fn write(&mut self, accepted: Time, pages: &[Ppa]) -> Time {
        let count = u32::try_from(pages.len()).expect("a command's blocks");
        let room = self.make_room(accepted, count);
        let done = self.from_host.book(room, u64::from(count * BLOCK_BYTES));
        self.buffered_pages += count;
        for &page in pages {
            self.on_flash_ps[page.0 as usize] = IN_BUFFER;
            let lun = self.lun_of(page);
            self.half_filled[lun].push(page);
            if self.half_filled[lun].len() == self.preset.program_pages as usize {
                self.program(done, lun);
            }
        }
        done
    }

    fn make_room(&mut self, from: Time, count: u32) -> Time {
        let mut at = from;
        while let Some(&(leaves, pages)) = self.programs.front() {
            if leaves > at && self.buffered_pages + count <= self.preset.buffer_pages {
                break;
            }
            at = at.max(leaves);
            self.buffered_pages -= pages;
            self.programs.pop_front();
        }
        at
    }

    fn program(&mut self, from: Time, lun: usize) {
        let start = self.lun_free[lun].max(from);
        let bytes = u64::from(self.preset.program_pages * BLOCK_BYTES);
        let loaded = self.channel_of(lun).book(start, bytes);
        let programmed = loaded + Span::from_ns(self.preset.program_ns);
        self.lun_free[lun] = programmed;
        for page in self.half_filled[lun].drain(..) {
            self.on_flash_ps[page.0 as usize] = programmed.as_ps();
        }
        self.programs.push_back((programmed, self.preset.program_pages));
    }

    fn lun_of(&self, page: Ppa) -> usize {
        (page.0 / self.preset.program_pages % self.preset.luns()) as usize
    }

    fn channel_of(&mut self, lun: usize) -> &mut Lane {
        &mut self.channels[lun % self.preset.channels as usize]
    }
}

#[cfg(test)]
mod tests;
