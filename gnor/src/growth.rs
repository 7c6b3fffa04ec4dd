// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pools that grow while kernels run (decision 16). The pool's range is registered as a whole. Device code
//! asks for more in a word of host memory. A thread that lives as long as the launch puts memory behind the
//! next part of the range, and says so in another word.

use crate::abi::{POOL_BLOCK, POOL_BLOCKS, PoolHost};
use crate::error::NodeError;
use gnstor_base::region::HostRegion;
use gnstor_fabric::device::{Device, DeviceRange};
use std::mem::{offset_of, size_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The memory of a pool, and the host's end of its requests for more.
#[derive(Debug)]
pub struct Growth {
    range: DeviceRange,
    words: Arc<HostRegion>,
    device_words: u64,
    most: u32,
    /// Largest request that was refused: it is not tried again, and not complained about again.
    refused: AtomicU32,
}

impl Growth {
    /// A pool of [`POOL_BLOCKS`] that may come to have `most` blocks.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn new(device: &Arc<Device>, most: u32) -> Result<Self, NodeError> {
        let most = most.max(POOL_BLOCKS);
        let range = device.reserve(most as usize * POOL_BLOCK as usize)?;
        range.back(POOL_BLOCKS as usize * POOL_BLOCK as usize)?;
        let words = HostRegion::alloc(size_of::<PoolHost>()).map_err(|e| {
            gnstor_fabric::device::DeviceError::Memory { bytes: 8, what: "host memory", cause: e.to_string() }
        })?;
        let device_words = device.map(&words)?;
        let growth = Self { range, words, device_words, most, refused: AtomicU32::new(0) };
        growth.granted().store(POOL_BLOCKS, Ordering::Release);
        Ok(growth)
    }

    fn granted(&self) -> &AtomicU32 {
        self.words.word32(offset_of!(PoolHost, granted) as u64)
    }

    /// First address of the pool.
    pub fn address(&self) -> u64 {
        self.range.address()
    }

    /// Largest number of blocks.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Blocks that have memory.
    pub fn blocks(&self) -> u32 {
        self.granted().load(Ordering::Relaxed)
    }

    /// Device address of the words; 0 if the pool cannot grow.
    pub fn words(&self) -> u64 {
        if self.most > POOL_BLOCKS { self.device_words } else { 0 }
    }

    /// Answers the device's requests since the last call. Returns whether the pool has grown.
    pub fn answer(&self) -> bool {
        let asked = self.words.word32(offset_of!(PoolHost, asked) as u64).load(Ordering::Acquire);
        if asked <= self.blocks() || asked <= self.refused.load(Ordering::Relaxed) {
            return false;
        }
        let grown = if asked <= self.most {
            self.range.back(asked as usize * POOL_BLOCK as usize).map_err(|e| e.to_string())
        } else {
            Err(format!("its range has {} blocks", self.most))
        };
        match grown {
            Ok(()) => self.granted().store(asked, Ordering::Release), // pairs with the acquire in pool_grow
            Err(why) => {
                tracing::warn!(
                    "a pool stays at {} blocks of 64 KiB, {asked} were asked for: {why}",
                    self.blocks()
                );
                self.refused.store(asked, Ordering::Relaxed);
            }
        }
        self.blocks() == asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use gnstor_fabric::device::Choice;

    fn ask(growth: &Growth, blocks: u32) {
        growth.words.word32(offset_of!(PoolHost, asked) as u64).store(blocks, Ordering::Release);
    }

    #[test]
    fn a_pool_grows_when_asked_and_not_beyond_its_range() {
        let _deadline = deadline();
        let device = Device::open(Choice::Host).unwrap();
        let growth = Growth::new(&device, 4 * POOL_BLOCKS).unwrap();
        assert!(!growth.answer());
        assert_eq!(growth.blocks(), POOL_BLOCKS);
        ask(&growth, 2 * POOL_BLOCKS);
        assert!(growth.answer());
        assert!(!growth.answer());
        assert_eq!(growth.blocks(), 2 * POOL_BLOCKS);
        assert!(growth.range.backed() >= 2 * POOL_BLOCKS as usize * POOL_BLOCK as usize);
        ask(&growth, 5 * POOL_BLOCKS);
        assert!(!growth.answer());
        assert_eq!(growth.blocks(), 2 * POOL_BLOCKS);
        ask(&growth, 4 * POOL_BLOCKS);
        assert!(!growth.answer(), "what device code never does is refused for good");
    }

    #[test]
    fn a_pool_that_may_not_grow_has_no_words_to_ask_by() {
        let _deadline = deadline();
        let device = Device::open(Choice::Host).unwrap();
        let growth = Growth::new(&device, 0).unwrap();
        assert_eq!((growth.words(), growth.most()), (0, POOL_BLOCKS));
    }
}
