// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counters of an SSD's whole life, not of one power-on, for SMART.
//!
//! ```text
//!   power cycles, on ms, blocks read, blocks written, read commands, write commands, busy ms,
//!   unsafe shutdowns, media errors,
//!   mean erases x 1000 of a superblock, backup failed (0, 1): 8 bytes each
//! ```

use crate::bytes::{COUNTER_MAX, COUNTER_MAX_32, Fields};
use crate::error::Refused;

const WHAT: &str = "the smart_counters";

/// Counts over the life of an SSD.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SmartCounters {
    /// Times that power was turned on.
    pub power_cycles: u64,
    /// Milliseconds with power.
    pub on_ms: u64,
    /// Blocks that hosts read.
    pub blocks_read: u64,
    /// Blocks that hosts wrote.
    pub blocks_written: u64,
    /// Read and compare commands.
    pub read_commands: u64,
    /// Commands that write.
    pub write_commands: u64,
    /// Milliseconds with commands in work.
    pub busy_ms: u64,
    /// Power failures without a shutdown.
    pub unsafe_shutdowns: u64,
    /// Pages that could not be read, or held something else.
    pub media_errors: u64,
    /// Mean erases of a superblock in thousandths. A rebuild takes it as the wear of every superblock.
    pub mean_erases_milli: u64,
    /// The last power failure left no dump, or not a whole one.
    pub backup_failed: bool,
}

impl SmartCounters {
    fn counts(&self) -> [u64; 10] {
        [
            self.power_cycles,
            self.on_ms,
            self.blocks_read,
            self.blocks_written,
            self.read_commands,
            self.write_commands,
            self.busy_ms,
            self.unsafe_shutdowns,
            self.media_errors,
            self.mean_erases_milli,
        ]
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let numbers = self.counts().into_iter().chain([self.backup_failed.into()]);
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes and checks.
    ///
    /// # Errors
    /// [`Refused`] where this is none.
    pub fn decode(content: &[u8]) -> Result<Self, Refused> {
        let mut fields = Fields::new(WHAT, content);
        let smart_counters = Self {
            power_cycles: fields.u64()?,
            on_ms: fields.u64()?,
            blocks_read: fields.u64()?,
            blocks_written: fields.u64()?,
            read_commands: fields.u64()?,
            write_commands: fields.u64()?,
            busy_ms: fields.u64()?,
            unsafe_shutdowns: fields.u64()?,
            media_errors: fields.u64()?,
            mean_erases_milli: fields.u64()?,
            backup_failed: match fields.u64()? {
                0 => false,
                1 => true,
                other => return Err(Refused::new(WHAT, format!("{other} where 0 or 1 stands"))),
            },
        };
        fields.end()?;
        if smart_counters.counts().into_iter().any(|count| count > COUNTER_MAX)
            || smart_counters.mean_erases_milli / 1000 > COUNTER_MAX_32.into()
        {
            return Err(Refused::new(WHAT, "a count is out of range"));
        }
        Ok(smart_counters)
    }
}
