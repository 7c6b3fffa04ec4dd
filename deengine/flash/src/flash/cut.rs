// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of the flash after a power cut.

use super::{Flash, Inner, Open};
use crate::geometry::Block;
use crate::record::State;
use gnstor_proto::placement::mix64;
use std::sync::atomic::Ordering;

impl Flash {
    /// Continues after a power cut. Pages that were not programmed are erased, frames are free, and pins and
    /// loads have ended. In units that were being programmed, the seed decides which pages are there, damaged
    /// or erased. Bad blocks stay bad. No other thread may use the flash during this call, and all earlier
    /// handles are invalid. The caller then calls [`crate::Power::restore`].
    pub fn after_power_cut(&self, seed: u64) {
        let mut inner = self.lock();
        let Inner { open, loads, engine } = &mut *inner;
        if let Some(engine) = engine {
            engine.drain();
        }
        loads.clear();
        self.pending.store(0, Ordering::Relaxed);
        self.records.clear_pins();
        for (unit, open) in open.drain() {
            match open {
                Open::Filling => self.geometry.pages_of(unit).for_each(|page| _ = self.records.erase(page)),
                Open::Started | Open::Ended { well: true } => {
                    self.tear(unit, mix64(seed ^ mix64(u64::from(unit.0))))
                }
                // A refused program has written nothing, not even to a file.
                Open::Ended { well: false } | Open::Failed => self.geometry.pages_of(unit).for_each(|page| {
                    self.records.set_state(page, State::Broken);
                    self.records.take_frame(page);
                }),
            }
        }
        self.frames.reset(self.owned_frames());
    }

    /// Which frames belong to programmed pages: looked up in the records of all blocks that were used.
    fn owned_frames(&self) -> impl Fn(crate::Frame) -> bool {
        let mut owned = vec![0u64; self.frames.used().div_ceil(64) as usize];
        if self.file.is_none() {
            for block in (0..self.geometry.blocks()).map(Block) {
                let units = self.geometry.units_of(block).take(self.next_row(block) as usize);
                for page in units.flat_map(|unit| self.geometry.pages_of(unit)) {
                    if self.records.state(page) == State::Programmed
                        && let Some(frame) = self.records.frame(page)
                    {
                        owned[frame as usize / 64] |= 1 << (frame % 64);
                    }
                }
            }
        }
        move |frame| owned[frame.0 as usize / 64] >> (frame.0 % 64) & 1 == 1
    }
}
