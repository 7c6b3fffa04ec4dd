// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buffers for the data of commands that are not about blocks: Connect, Identify, permission entries,
//! maps, ranges.

use gnstor_base::region::{HostRegion, LocalRef};
use std::io;
use std::sync::Arc;

const SMALL_BYTES: u32 = 4096;
const SMALL_COUNT: u32 = 4096;
/// A map of the default 65,536 groups and 4,096 SSDs takes 557,100 bytes.
pub(crate) const LARGE_BYTES: u32 = 1 << 20;
const LARGE_COUNT: u32 = 8;

/// A buffer in use. It goes back with [`Scratch::give`] once no transfer can touch it any more.
#[derive(Debug)]
#[must_use = "a buffer that is not given back is lost"]
pub(crate) struct Buffer {
    offset: u64,
    bytes: u32,
}

/// The scratch region of an SSD. Memory that is never touched costs nothing.
#[derive(Debug)]
pub(crate) struct Scratch {
    region: Arc<HostRegion>,
    small: Vec<u64>,
    large: Vec<u64>,
}

impl Scratch {
    pub(crate) fn new() -> io::Result<Self> {
        let large_at = u64::from(SMALL_BYTES * SMALL_COUNT);
        let bytes = large_at + u64::from(LARGE_BYTES * LARGE_COUNT);
        Ok(Self {
            region: HostRegion::alloc(usize::try_from(bytes).map_err(io::Error::other)?)?,
            small: (0..SMALL_COUNT).rev().map(|i| u64::from(i * SMALL_BYTES)).collect(),
            large: (0..LARGE_COUNT).rev().map(|i| large_at + u64::from(i * LARGE_BYTES)).collect(),
        })
    }

    pub(crate) fn region(&self) -> &Arc<HostRegion> {
        &self.region
    }

    /// A buffer of `bytes`, where one is free and that is not more than [`LARGE_BYTES`].
    pub(crate) fn take(&mut self, bytes: u32) -> Option<Buffer> {
        let list = if bytes <= SMALL_BYTES { &mut self.small } else { &mut self.large };
        if bytes > LARGE_BYTES {
            return None;
        }
        list.pop().map(|offset| Buffer { offset, bytes })
    }

    pub(crate) fn give(&mut self, buffer: Buffer) {
        let list = if buffer.bytes <= SMALL_BYTES { &mut self.small } else { &mut self.large };
        list.push(buffer.offset);
    }

    pub(crate) fn local(&self, buffer: &Buffer) -> LocalRef {
        self.region.slice(buffer.offset, buffer.bytes)
    }

    /// A copy of the buffer's bytes: the host's data is looked at once, and cannot change while it is.
    pub(crate) fn read(&self, buffer: &Buffer) -> Vec<u8> {
        let mut bytes = vec![0; buffer.bytes as usize];
        self.region.read(buffer.offset, &mut bytes);
        bytes
    }

    /// Copies a part of the buffer's bytes.
    pub(crate) fn read_at(&self, buffer: &Buffer, offset: u32, out: &mut [u8]) {
        assert!(offset as usize + out.len() <= buffer.bytes as usize, "the part lies within the buffer");
        self.region.read(buffer.offset + u64::from(offset), out);
    }

    /// Fills the buffer with `data`, cut or padded with zeros.
    pub(crate) fn fill(&self, buffer: &Buffer, data: &[u8]) {
        let used = data.len().min(buffer.bytes as usize);
        self.region.write(buffer.offset, &data[..used]);
        self.region.fill(buffer.offset + used as u64, buffer.bytes as usize - used, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_in_use_never_overlap() {
        let _deadline = crate::deadline::deadline();
        let mut scratch = Scratch::new().unwrap();
        let mut taken: Vec<Buffer> = std::iter::from_fn(|| scratch.take(1024)).collect();
        taken.extend(std::iter::from_fn(|| scratch.take(LARGE_BYTES)));
        let mut ranges: Vec<_> = taken.iter().map(|b| (b.offset, b.offset + u64::from(b.bytes))).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|w| w[0].1 <= w[1].0));
        assert!(scratch.take(LARGE_BYTES + 1).is_none());
        taken.into_iter().for_each(|buffer| scratch.give(buffer));
        assert!(scratch.take(4096).is_some());
    }
}
