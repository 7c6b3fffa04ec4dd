// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The values of Set Features that are a controller's own.

use crate::request::Refused;
use crate::smart::health::WARNING_KELVIN;
use gnstor_proto::status::Refusal;

/// Feature values that one host has set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Features {
    /// 01h: weights and burst of the arbitration.
    pub(super) arbitration: u32,
    /// 04h: at this temperature or above it the host is warned.
    pub(super) over_kelvin: u16,
    /// 04h: at this temperature or below it.
    pub(super) under_kelvin: u16,
    /// 05h: reads of unwritten blocks are refused.
    pub(super) tells_unwritten: bool,
    /// 05h, 15:0: how long to try to read a block. Nothing is tried again, so every limit is kept.
    pub(super) retry_limit: u16,
    /// 0Bh: the events that the host wants.
    pub(super) events: u32,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            // Weights 8, 4, 2, and one command of a queue at a time.
            arbitration: 7 << 24 | 3 << 16 | 1 << 8,
            over_kelvin: WARNING_KELVIN,
            under_kelvin: 0,
            tells_unwritten: false,
            retry_limit: 0,
            // Every SMART warning. A host has to ask for notices.
            events: 0x1F,
        }
    }
}

impl Features {
    /// 01h: weights and burst of the arbitration.
    pub(crate) fn arbitration(&self) -> u32 {
        self.arbitration
    }

    /// 04h: the temperature threshold that CDW11 names, in Kelvin.
    pub(crate) fn threshold(mut self, cdw11: u32) -> Result<u16, Refused> {
        self.threshold_mut(cdw11).map(|kelvin| *kelvin)
    }

    /// 04h: whether the host is to be warned at this temperature.
    pub(crate) fn warns_at(&self, kelvin: u16) -> bool {
        kelvin >= self.over_kelvin || kelvin <= self.under_kelvin
    }

    /// 05h: whether reads of unwritten blocks are refused.
    pub(crate) fn tells_unwritten(&self) -> bool {
        self.tells_unwritten
    }

    /// 05h, 15:0: how long to try to read a block.
    pub(crate) fn retry_limit(&self) -> u16 {
        self.retry_limit
    }

    /// 0Bh: the events that the host wants.
    pub(crate) fn events(&self) -> u32 {
        self.events
    }

    pub(super) fn threshold_mut(&mut self, cdw11: u32) -> Result<&mut u16, Refused> {
        match cdw11 >> 20 & 3 {
            0 => Ok(&mut self.over_kelvin),
            1 => Ok(&mut self.under_kelvin),
            _ => Err(Refusal::InvalidField.into()),
        }
    }
}
