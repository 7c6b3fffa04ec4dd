// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the modelled SSD is done: every resource is booked as soon as a command needs it.
//!
//! ```text
//!   read    firmware -> (+ hash, fixed) -> sense on a plane -> channel -> PCIe                 done
//!   write   firmware -> (+ hash, fixed) -> room in the write buffer -> PCIe                    done
//!                                                ^-- program on the die <- channel <- unit full
//!   collect sense on a plane -> channel -> (collection buffer) -> channel -> program
//! ```
//! The firmware serves in order, so a single "free from" time describes it. A plane is a [`Calendar`],
//! channels and PCIe are [`Link`]s: both can be booked before earlier bookings. A sense holds its plane until
//! the page has left over the channel. Where planes cannot sense on their own, it holds the die. A program or
//! an erase holds all planes of the die.

use crate::calendar::Calendar;
use crate::link::Link;
use crate::preset::Preset;
use crate::write_buffer::WriteBuffer;
use gnstor_base::time::{Span, Time};
use gnstor_flash::{Block, Geometry, Ppa, Unit};

/// Writer of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Host data, from the write buffer.
    Host,
    /// Collected pages, from a buffer of their own that is not limited.
    Collect,
}

/// The model of one SSD's time.
#[derive(Debug)]
pub struct Timing {
    null: bool,
    geometry: Geometry,
    costs: Costs,
    sense_pages: u32,
    firmware_free: Time,
    /// Number of planes that sense independently: all planes of a die, or one plane for the whole die.
    planes_per_die: usize,
    planes: Vec<Calendar>,
    /// Time of each die, in percent.
    slow_percent: Vec<u32>,
    channels: Vec<Link>,
    to_host: Link,
    from_host: Link,
    buffer: WriteBuffer,
    /// For each die: the end of the last program of the host's stream and of collection's stream. Rows of a
    /// block are programmed in order, so gaps never let one program overtake another of its stream.
    last_program: Vec<[Time; 2]>,
    drained: Time,
}

/// No single operation takes longer: 1000 s. Keeps sums of times far from the end of time.
const MOST_PS: u64 = 1_000_000_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Costs {
    fw_read: Span,
    fw_write: Span,
    /// Pipelined latency of a read behind the firmware.
    after_read: Span,
    after_write: Span,
    sense_ps: u64,
    program_ps: u64,
    erase_ps: u64,
}

impl Costs {
    fn of(preset: &Preset, geometry: &Geometry) -> Self {
        // A small SSD has blocks of fewer rows than the real one. Each row takes its share of the erase time,
        // so that a written page costs as much erase time at every size.
        let erase_ps = u128::from(preset.erase_ns) * 1000 * u128::from(geometry.rows());
        let erase_ps = erase_ps / u128::from(preset.shape.rows.max(1));
        Self {
            fw_read: Span::from_ns(preset.fw_read_ns),
            fw_write: Span::from_ns(preset.fw_write_ns),
            after_read: Span::from_ns(preset.hash_ns + preset.fixed_read_ns),
            after_write: Span::from_ns(preset.hash_ns + preset.fixed_write_ns),
            sense_ps: preset.sense_ns * 1000,
            program_ps: preset.program_ns * 1000,
            erase_ps: u64::try_from(erase_ps).unwrap_or(MOST_PS).min(MOST_PS),
        }
    }
}

impl Timing {
    /// An idle SSD with the preset's times and this geometry (the preset's shape; its rows may be fewer).
    pub fn new(preset: &Preset, geometry: &Geometry) -> Self {
        let dies = geometry.dies() as usize;
        let planes_per_die = if preset.independent_planes { preset.shape.planes.max(1) as usize } else { 1 };
        let channel = || Link::new(preset.channel_bytes_per_s);
        Self {
            null: preset.is_null(),
            costs: Costs::of(preset, geometry),
            sense_pages: geometry.shape().sense_pages,
            firmware_free: Time::ZERO,
            planes_per_die,
            planes: vec![Calendar::default(); dies * planes_per_die],
            slow_percent: vec![100; dies],
            channels: (0..geometry.shape().channels).map(|_| channel()).collect(),
            to_host: Link::new(preset.to_host_bytes_per_s),
            from_host: Link::new(preset.from_host_bytes_per_s),
            buffer: WriteBuffer::new(preset.buffer_pages, geometry.unit_pages()),
            last_program: vec![[Time::ZERO; 2]; dies],
            drained: Time::ZERO,
            geometry: geometry.clone(),
        }
    }

    /// The firmware takes a read command; when it has been checked and looked up.
    #[inline]
    pub fn accept_read(&mut self, now: Time) -> Time {
        self.accept(now, self.costs.fw_read, self.costs.after_read)
    }

    /// The firmware takes any other I/O command. Returns when it has been checked.
    #[inline]
    pub fn accept_write(&mut self, now: Time) -> Time {
        self.accept(now, self.costs.fw_write, self.costs.after_write)
    }

    #[inline]
    fn accept(&mut self, now: Time, serial: Span, pipelined: Span) -> Time {
        if self.null {
            return now;
        }
        self.firmware_free = self.firmware_free.max(now) + serial;
        self.firmware_free + pipelined
    }

    /// When the firmware can take the next command.
    #[inline]
    pub fn firmware_free(&self) -> Time {
        self.firmware_free
    }

    /// Reads the pages `on_flash`, in the order of the request, and `buffered` blocks from the write buffer
    /// or zeros. Neighbours in one sensed flash page are sensed together. Returns when the last has arrived
    /// at the host.
    pub fn read(&mut self, accepted: Time, on_flash: &[Ppa], buffered: u32) -> Time {
        if self.null {
            return accepted;
        }
        let mut done = self.to_host.book(accepted, buffered);
        let sense_pages = self.sense_pages;
        for run in on_flash.chunk_by(|a, b| a.0 / sense_pages == b.0 / sense_pages) {
            let pages = u32::try_from(run.len()).expect("a command's blocks");
            let ready = self.sense(accepted, run[0], pages);
            done = done.max(self.to_host.book(ready, pages));
        }
        done
    }

    /// Takes `blocks` of host data into the write buffer, once there is room. Returns when they are there.
    pub fn buffer(&mut self, accepted: Time, blocks: u32) -> Time {
        if self.null {
            return accepted;
        }
        let room = self.buffer.admit(accepted, blocks);
        self.from_host.book(room, blocks)
    }

    /// Programs a full unit, not before `from`. Returns when the flash has it; a unit of the host's stream
    /// then leaves the write buffer. Units of one stream on one die are programmed in the order of the calls.
    /// `from` must not be before the time that [`Self::erase`] returned for the unit's block.
    pub fn program(&mut self, from: Time, unit: Unit, stream: Stream) -> Time {
        if self.null {
            return from;
        }
        let die = self.geometry.die_of(unit);
        let pages = self.geometry.unit_pages();
        let from = from.max(self.last_program[die as usize][stream as usize]);
        let program_ps = self.slowed(die, self.costs.program_ps);
        let planes = self.planes_of(die);
        let channel = self.geometry.channel_of_die(die) as usize;
        let idle = self.planes[planes.clone()].iter().map(|plane| plane.idle_from(from.as_ps())).max();
        let start = idle.expect("a die has planes");
        let loaded = self.channels[channel].book(at(start), pages).as_ps();
        let end = self.book(planes, start, loaded - start + program_ps);
        self.last_program[die as usize][stream as usize] = at(end);
        self.drained = self.drained.max(at(end));
        if stream == Stream::Host {
            self.buffer.release(at(end), pages);
        }
        at(end)
    }

    /// `blocks` pages of the host's next unit hold no host data: padding, or pages of the firmware's own.
    /// They took no room in the write buffer, so the next [`Self::program`] of the host's stream frees that
    /// many fewer.
    pub fn pad(&mut self, blocks: u32) {
        self.buffer.pad(blocks);
    }

    /// Senses these pages for collection, and moves them over the channels into its buffer. Returns when the
    /// last one is there. Pass all pages of a unit at once, so that neighbours share a sense.
    pub fn collect(&mut self, from: Time, pages: &[Ppa]) -> Time {
        if self.null {
            return from;
        }
        let sense_pages = self.sense_pages;
        let mut done = from;
        for run in pages.chunk_by(|a, b| a.0 / sense_pages == b.0 / sense_pages) {
            let count = u32::try_from(run.len()).expect("pages of one flash page");
            done = done.max(self.sense(from, run[0], count));
        }
        done
    }

    /// Erases a block, not before `from` (when the pages moved out of it are on flash); when it is erased.
    pub fn erase(&mut self, from: Time, block: Block) -> Time {
        if self.null {
            return from;
        }
        let die = self.geometry.die_of_block(block);
        let erase_ps = self.slowed(die, self.costs.erase_ps);
        let planes = self.planes_of(die);
        at(self.book(planes, from.as_ps(), erase_ps))
    }

    /// When every program booked so far is done: a Flush waits for it.
    #[inline]
    pub fn drained(&self) -> Time {
        self.drained
    }

    /// Injects a fault: from now on everything on this die takes `percent`/100 of its time, at most 1000 s an
    /// operation. A die that does not exist is ignored.
    pub fn set_slow(&mut self, die: u32, percent: u32) {
        if let Some(slow) = self.slow_percent.get_mut(die as usize) {
            *slow = percent;
        }
    }

    /// Prefetches the state of this page's plane, ahead of [`Self::read`].
    #[inline]
    pub fn announce(&self, page: Ppa) {
        let (_, plane) = self.plane_of(page);
        self.planes[plane].announce();
    }

    /// The die that a page is on, and its plane.
    #[inline]
    fn plane_of(&self, page: Ppa) -> (u32, usize) {
        let unit = self.geometry.unit_of(page);
        let die = self.geometry.die_of(unit);
        let slot = page.0 - self.geometry.first_page(unit).0;
        (die, die as usize * self.planes_per_die + (slot / self.sense_pages) as usize % self.planes_per_die)
    }

    /// The plane is held until its register has been emptied over the channel.
    fn sense(&mut self, from: Time, page: Ppa, pages: u32) -> Time {
        let (die, plane) = self.plane_of(page);
        let channel = self.geometry.channel_of_die(die) as usize;
        let sense_ps = self.slowed(die, self.costs.sense_ps);
        let sensed = self.planes[plane].book(from.as_ps(), sense_ps);
        let sent = self.channels[channel].book(at(sensed), pages);
        self.planes[plane].book(sensed, sent.as_ps() - sensed);
        sent
    }

    #[inline]
    fn slowed(&self, die: u32, ps: u64) -> u64 {
        match self.slow_percent[die as usize] {
            100 => ps,
            percent => (ps / 100).saturating_mul(u64::from(percent)).min(MOST_PS),
        }
    }

    #[inline]
    fn planes_of(&self, die: u32) -> std::ops::Range<usize> {
        let first = die as usize * self.planes_per_die;
        first..first + self.planes_per_die
    }

    /// Books all of these planes. Returns when the last one is done.
    fn book(&mut self, planes: std::ops::Range<usize>, from: u64, span: u64) -> u64 {
        self.planes[planes].iter_mut().fold(from, |end, plane| end.max(plane.book(from, span)))
    }
}

#[inline]
fn at(ps: u64) -> Time {
    Time::ZERO + Span::from_ps(ps)
}
