// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The unordered mode: inbound data that waits for a DUMP (`fabric/cuda/fabric/hca/held.cuh`).

use super::AgentHca;
use crate::device::{DeviceError, DeviceMem};
use crate::hca::abi::*;
use std::ops::Range;
use zerocopy::FromBytes;

/// Which inbound messages wait for a DUMP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unordered {
    /// The data of reads.
    Data,
    /// Messages as well: before a DUMP, the response in memory may be older than its completion.
    All,
}

impl Unordered {
    /// The setting of `GNSTOR_UNORDERED`: `1` for data, `all` for everything that arrives.
    pub(super) fn asked_for() -> Result<Option<Self>, DeviceError> {
        let name = "GNSTOR_UNORDERED";
        let value = std::env::var_os(name).unwrap_or_default();
        match value.to_str() {
            Some("" | "0") => Ok(None),
            Some("1") => Ok(Some(Self::Data)),
            Some("all") => Ok(Some(Self::All)),
            _ => {
                Err(DeviceError::Switch { name, value: value.display().to_string(), allowed: "0, 1 or all" })
            }
        }
    }

    /// The setting in words, for a report.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Data => "data waits for a DUMP",
            Self::All => "data and responses wait for a DUMP",
        }
    }
}

impl AgentHca {
    /// From the next launch on inbound data waits until its queue pair executes a DUMP. A NIC whose writes to
    /// GPU memory are not ordered may do the same. Call this before opening channels: channels that are open
    /// go on trusting their completions. Data that waits when a queue pair breaks or is destroyed is dropped.
    ///
    /// This is for tests of clients. `GNSTOR_UNORDERED=1` does the same for data of every HCA in device
    /// memory, `GNSTOR_UNORDERED=all` for everything that arrives.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn set_unordered(&self, what: Unordered) -> Result<(), DeviceError> {
        let _alone = self.quiet()?;
        let memory = self.device.alloc(self.held_places() * (size_of::<HeldCtx>() + HELD_BYTES))?;
        self.tables().held.get_or_insert((memory, what)).1 = what;
        Ok(())
    }

    /// Which messages may still wait for a DUMP when a client sees a completion.
    pub fn unordered(&self) -> Option<Unordered> {
        self.tables().held.as_ref().map(|(_, what)| *what)
    }

    fn held_places(&self) -> usize {
        self.rings.len() * HELD_PLACES
    }

    /// Drops the data that waits for DUMPs of these queue pairs. Their owner has gone, and its memory may
    /// have another owner.
    pub(super) fn forget_held(&self, held: &DeviceMem, qpns: &Range<u32>) -> Result<(), DeviceError> {
        let mut table = vec![0; self.held_places() * size_of::<HeldCtx>()];
        held.read(0, &mut table)?;
        for place in table.chunks_exact_mut(size_of::<HeldCtx>()) {
            if HeldCtx::read_from_bytes(place).is_ok_and(|held| qpns.contains(&held.qpn)) {
                place.fill(0);
            }
        }
        held.write(0, &table)
    }
}
