// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One pair of rings between a transport and its part of the agent.

use super::memory;
use crate::device::{Device, DeviceError};
use crate::hca::abi::*;
use crate::hca::ring::{DOWN_WORDS, UP_WORDS};
use gnstor_base::region::HostRegion;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

const UP_ENTRIES: usize = 4096;
const DOWN_ENTRIES: usize = 2048;
#[expect(clippy::cast_possible_truncation, reason = "small constants")]
const MASKS: (u32, u32) = (UP_ENTRIES as u32 - 1, DOWN_ENTRIES as u32 - 1);

/// Offsets within the ring's memory.
pub(super) const UP_AT: u64 = 0;
const DOWN_AT: u64 = UP_AT + (UP_ENTRIES * UP_WORDS * 8) as u64;
const WORDS_AT: u64 = DOWN_AT + (DOWN_ENTRIES * DOWN_WORDS * 8) as u64;
const UP_HEAD: u64 = WORDS_AT;
const DOWN_HEAD: u64 = WORDS_AT + 64;
const STOP: u64 = WORDS_AT + 128;
const READY: u64 = WORDS_AT + 192;
const RING_BYTES: usize = (UP_ENTRIES * UP_WORDS + DOWN_ENTRIES * DOWN_WORDS) * 8 + 256;

/// A pair of rings in host memory that the device has mapped.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    pub(super) memory: Arc<HostRegion>,
    /// Address of the memory on the device.
    base: u64,
}

impl Ring {
    pub(super) fn new(device: &Device) -> Result<Self, DeviceError> {
        let region =
            HostRegion::alloc(RING_BYTES).map_err(|e| memory("ring memory", RING_BYTES, &e.to_string()))?;
        let base = device.map(&region)?;
        Ok(Self { memory: region, base })
    }

    /// The ring's context for the agent's block.
    pub(super) fn context(&self) -> RingCtx {
        RingCtx {
            up_addr: self.base + UP_AT,
            up_head_addr: self.base + UP_HEAD,
            down_addr: self.base + DOWN_AT,
            down_head_addr: self.base + DOWN_HEAD,
            up_mask: MASKS.0,
            down_mask: MASKS.1,
            stop_addr: self.base + STOP,
            ready_addr: self.base + READY,
            ..RingCtx::default()
        }
    }

    /// The word that asks the block to end.
    pub(super) fn stop(&self) -> &AtomicU32 {
        self.memory.word32(STOP)
    }

    /// The word in which the block reports that it runs.
    pub(super) fn ready(&self) -> &AtomicU32 {
        self.memory.word32(READY)
    }

    /// The up ring, and its consumer's head.
    pub(super) fn up(&self) -> (&[AtomicU64], &AtomicU64) {
        (self.memory.words64(UP_AT, UP_ENTRIES * UP_WORDS), &self.memory.words64(UP_HEAD, 1)[0])
    }

    /// The down ring, and its consumer's head.
    pub(super) fn down(&self) -> (&[AtomicU64], &AtomicU64) {
        (self.memory.words64(DOWN_AT, DOWN_ENTRIES * DOWN_WORDS), &self.memory.words64(DOWN_HEAD, 1)[0])
    }
}
