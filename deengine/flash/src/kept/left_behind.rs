// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protected memory that a killed process left, as the next start finds it.

use super::{KeptOwner, Layout, OWNERS_AT, decode, decode_tail, map};
use crate::PAGE_BYTES;
use crate::file::DataFile;
use crate::file::memory::{open_left, path_of};
use gnstor_base::region::HostRegion;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Protected memory that a killed process left.
#[derive(Debug)]
pub struct LeftBehind {
    shape: Layout,
    /// Mark of the boot that placed its pages.
    pub(crate) mark: u32,
    /// The SSD to which the memory belonged.
    pub owner: KeptOwner,
    control: Arc<HostRegion>,
    frames: Arc<HostRegion>,
}

impl LeftBehind {
    /// The memory that a killed process left for this file, if it is whole.
    pub(crate) fn find(file: &DataFile) -> io::Result<Option<Self>> {
        let path = path_of(file)?;
        let Some(memory) = open_left(&path, file)? else { return Ok(None) };
        let bytes = memory.metadata()?.len();
        if bytes < OWNERS_AT {
            return Err(io::Error::other(format!("{}: is none of ours", path.display())));
        }
        let head = HostRegion::map_file(&memory, 0, 4096)?;
        let Some((shape, mark, owner)) = decode(&head).filter(|(shape, ..)| shape.end == bytes) else {
            // Memory that was dropped in order has no header.
            tracing::debug!(path = %path.display(), "memory without a header");
            return Ok(None);
        };
        let (control, frames) = map(&memory, &shape)?;
        Ok(Some(Self { shape, mark, owner, control, frames }))
    }

    /// The last durable transaction, and the bytes of all transactions after it. `None` if the words
    /// contradict each other.
    pub fn tail(&self) -> Option<(u64, Vec<u8>)> {
        decode_tail(&self.control, self.shape.tail_at)
    }

    /// Frames with the pages that took them last.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let frames = u32::try_from(self.shape.frames - 1).unwrap_or(0);
        (0..frames).filter_map(|frame| {
            let owner = self.control.word32(OWNERS_AT + u64::from(frame) * 4).load(Ordering::Acquire);
            owner.checked_sub(1).map(|page| (frame, page))
        })
    }

    /// Copies the data of a frame out.
    pub fn read_frame(&self, frame: u32, out: &mut [u8; PAGE_BYTES as usize]) {
        self.frames.read(u64::from(frame) * u64::from(PAGE_BYTES), out);
    }
}
