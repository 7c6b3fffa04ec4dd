// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPAIR: the command by which the daemon starts or stops a scrub, and sets the share of repairs. The
//! scrub's log page reports its progress. `docs/formats-fleet.md` has the byte boxes.

use crate::nvme::Sqe;
use crate::repair::{CRC_AT, FORMAT, NO_SSD, REPAIR_BYTES, RepairError, check, seal};
use crate::vendor::opcode;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Log page of the scrub: [`REPAIR_BYTES`] long.
pub const SCRUB_LID: u8 = 0xC4;
/// Default for the share of an SSD that repairs take while clients use it, in percent.
pub const DEFAULT_SHARE: u8 = 25;

/// An order of the daemon to an SSD's repairs. A restart of the SSD forgets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// End the scrub. Without a scrub nothing changes.
    ScrubStop,
    /// Begin a scrub of all blocks that the SSD serves. A scrub that is running goes on.
    ScrubStart,
    /// While clients use the SSD, repairs take at most this share of it, in percent: 1 to 100.
    Share(u8),
    /// Fill no place during the term of this daemon. Settles and scrubs go on.
    FillPause,
    /// Resume filling.
    FillResume,
}

/// The command REPAIR, which has no data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepairOrder {
    /// Term of the daemon.
    pub term: u64,
    /// The order.
    pub order: Order,
}

impl RepairOrder {
    /// Encodes the command.
    pub fn command(&self) -> Sqe {
        let (what, share) = match self.order {
            Order::ScrubStop => (0u32, 0u32),
            Order::ScrubStart => (1, 0),
            Order::Share(percent) => (2, percent.into()),
            Order::FillPause => (3, 0),
            Order::FillResume => (4, 0),
        };
        let [low, high] = [self.term & 0xFFFF_FFFF, self.term >> 32];
        let half = |half: u64| u32::try_from(half).unwrap_or_default().into();
        Sqe {
            opcode: opcode::REPAIR,
            nsid: 1.into(),
            cdw12: what.into(),
            cdw13: share.into(),
            cdw14: half(low),
            cdw15: half(high),
            ..Sqe::default()
        }
    }

    /// Decodes a command; `None`: a field is out of its range.
    pub fn of(sqe: &Sqe) -> Option<Self> {
        let order = match (sqe.cdw12.get(), u8::try_from(sqe.cdw13.get()).ok()?) {
            (0, 0) => Order::ScrubStop,
            (1, 0) => Order::ScrubStart,
            (2, share @ 1..=100) => Order::Share(share),
            (3, 0) => Order::FillPause,
            (4, 0) => Order::FillResume,
            _ => return None,
        };
        let term = u64::from(sqe.cdw14.get()) | u64::from(sqe.cdw15.get()) << 32;
        Some(Self { term, order })
    }
}

/// State of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ScrubState {
    /// No scrub has run since the SSD started.
    #[default]
    Never,
    /// The scrub is running.
    Running,
    /// The scrub has checked all blocks.
    Done,
    /// The daemon stopped the scrub, or the SSD serves nothing any more.
    Stopped,
}

/// The log page of the scrub. Its counts are those of the last scrub.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ScrubLog {
    /// State of the scrub.
    pub state: ScrubState,
    /// The SSD for whose answer the scrub waits.
    pub waits_for: Option<u16>,
    /// Share of the SSD that repairs take while clients use it, in percent.
    pub share: u8,
    /// The SSD fills no place until it gets the order to resume.
    pub is_fill_paused: bool,
    /// Scrubs that ended since the SSD started.
    pub ended: u32,
    /// Blocks of volumes that the scrub has compared, mapped or not.
    pub compared: u64,
    /// Number of such blocks.
    pub all: u64,
    /// Copies of this SSD that did not match their own sum, or could not be read.
    pub rotten: u64,
    /// Copies of this SSD that it replaced by a good copy of another SSD.
    pub healed: u64,
    /// Blocks whose copies differ although each matches its own sum. They stay so: no rule says which copy is
    /// right.
    pub differ: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawScrub {
    magic: [u8; 4],
    format: U16,
    state: U16,
    waits_for: U16,
    share: u8,
    flags: u8,
    ended: U32,
    compared: U64,
    all: U64,
    rotten: U64,
    healed: U64,
    differ: U64,
    reserved2: [u8; 4],
    crc: U32,
}
/// Flag: fills are paused.
const FILL_PAUSED: u8 = 1;
const _: () = assert!(size_of::<RawScrub>() == REPAIR_BYTES && offset_of!(RawScrub, crc) == CRC_AT);

impl ScrubLog {
    const MAGIC: [u8; 4] = *b"GNVB";

    /// Encodes the log page.
    pub fn encode(&self) -> Vec<u8> {
        let raw = RawScrub {
            magic: Self::MAGIC,
            format: FORMAT.into(),
            state: match self.state {
                ScrubState::Never => 0,
                ScrubState::Running => 1,
                ScrubState::Done => 2,
                ScrubState::Stopped => 3,
            }
            .into(),
            waits_for: self.waits_for.unwrap_or(NO_SSD).into(),
            share: self.share,
            flags: if self.is_fill_paused { FILL_PAUSED } else { 0 },
            ended: self.ended.into(),
            compared: self.compared.into(),
            all: self.all.into(),
            rotten: self.rotten.into(),
            healed: self.healed.into(),
            differ: self.differ.into(),
            reserved2: [0; 4],
            crc: 0.into(),
        };
        seal(raw.as_bytes().to_vec())
    }

    /// Decodes and checks the log page.
    ///
    /// # Errors
    /// [`RepairError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, RepairError> {
        let raw = RawScrub::ref_from_bytes(bytes).map_err(|_| RepairError::Format)?;
        check(bytes, Self::MAGIC, raw.format)?;
        let state = match raw.state.get() {
            0 => ScrubState::Never,
            1 => ScrubState::Running,
            2 => ScrubState::Done,
            3 => ScrubState::Stopped,
            _ => return Err(RepairError::Field("state")),
        };
        Ok(Self {
            state,
            waits_for: Some(raw.waits_for.get()).filter(|&ssd| ssd != NO_SSD),
            share: raw.share,
            is_fill_paused: raw.flags & FILL_PAUSED != 0,
            ended: raw.ended.get(),
            compared: raw.compared.get(),
            all: raw.all.get(),
            rotten: raw.rotten.get(),
            healed: raw.healed.get(),
            differ: raw.differ.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn orders_and_the_page_come_back_as_they_went_and_a_flipped_bit_is_found() {
        let _deadline = Deadline::after(LIMIT);
        let orders = [Order::ScrubStop, Order::ScrubStart, Order::FillPause, Order::FillResume];
        for order in orders.into_iter().chain([Order::Share(1), Order::Share(100)]) {
            let sent = RepairOrder { term: 7 << 32 | 9, order };
            assert_eq!(RepairOrder::of(&sent.command()), Some(sent));
        }
        let out = |what: u32, share: u32| {
            RepairOrder::of(&Sqe { cdw12: what.into(), cdw13: share.into(), ..Sqe::default() })
        };
        assert_eq!([out(5, 0), out(4, 1), out(2, 0), out(2, 101), out(1, 1), out(2, 257)], [None; 6]);
        let log = ScrubLog {
            state: ScrubState::Running,
            waits_for: Some(3),
            share: 25,
            is_fill_paused: true,
            ended: 4,
            compared: 5,
            all: 6,
            rotten: 7,
            healed: 8,
            differ: 9,
        };
        for log in
            [log, ScrubLog { state: ScrubState::Stopped, waits_for: None, is_fill_paused: false, ..log }]
        {
            assert_eq!(ScrubLog::decode(&log.encode()), Ok(log));
        }
        for bit in 0..REPAIR_BYTES * 8 {
            let mut bytes = log.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(ScrubLog::decode(&bytes).is_err(), "bit {bit}");
        }
        assert_eq!((log.encode()[6], log.encode()[10], log.encode()[11], log.encode()[48]), (1, 25, 1, 9));
    }
}
