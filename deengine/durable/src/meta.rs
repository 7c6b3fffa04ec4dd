// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meta of a checkpoint: all state besides the map's words.
//!
//! ```text
//!   next order (8) | page seq (8) | written by hosts (8) | written to flash (8) |
//!   superblocks (4) | bad blocks (4)
//!   | 0 (4) | 1 (4)
//!   superblock: state (1: 0 free, 1 open, 2 closed, 3 dead), stream (1), 0 (2), erases (4), order (8)
//!   bad block:  number (4)
//!   volume:     VID (2), stamps (2), transactions ahead (4), then each:
//!               vba (4), lease epoch (4), sequence (8)
//! ```
//! Volumes come in ascending order until the end. Their stamp histories are copied one after the other while
//! the map's image is written. Each is as it is `ahead` transactions after the checkpoint began, and a replay
//! leaves out the transactions that a history contains already.
//!
//! An older form has the number of volumes in place of the second last word and 0 in place of the last. Its
//! histories are as of the checkpoint's begin, and a volume is VID (2), 0 (2), stamps (4).

use crate::bytes::{COUNTER_MAX, COUNTER_MAX_32, Fields};
use crate::error::{DurableError, Refused};
use crate::layout::{Layout, Sizes};
use gnstor_flash::Block;
use gnstor_proto::slba::{Stamp, Vid};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const WHAT: &str = "a checkpoint's meta";

/// Use of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SuperblockState {
    /// Erased.
    #[default]
    Free,
    /// Being written.
    Open {
        /// The stream that it is open for.
        stream: u8,
    },
    /// Full.
    Closed,
    /// The block is retired.
    Dead,
}

/// A superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SuperblockMeta {
    /// Use of the superblock.
    pub state: SuperblockState,
    /// Number of its erases.
    pub erases: u32,
    /// Position of this superblock in the order in which superblocks were opened.
    pub order: u64,
}

/// A block and its stamp in a stamp history. Memory and checkpoint have the same layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AppliedStamp {
    vba: U32,
    lease_epoch: U32,
    sequence: U64,
}

impl AppliedStamp {
    /// The block and the stamp that was applied to it.
    #[inline]
    pub fn new(vba: u32, stamp: Stamp) -> Self {
        Self { vba: vba.into(), lease_epoch: stamp.lease_epoch.into(), sequence: stamp.sequence.into() }
    }

    /// The block.
    #[inline]
    pub fn vba(&self) -> u32 {
        self.vba.get()
    }

    /// Stamp of the write.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        Stamp { lease_epoch: self.lease_epoch.get(), sequence: self.sequence.get() }
    }
}

/// The last word of the head where histories say how many transactions they are ahead.
const WITH_AHEAD: u32 = 1;

/// The stamp history of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryMeta {
    /// The volume.
    pub vid: Vid,
    /// Transactions after the begin of the checkpoint that the history contains.
    pub ahead: u32,
    /// Oldest first.
    pub stamps: Vec<AppliedStamp>,
}

/// The state of an SSD besides its map, exactly after one transaction. Stamp histories may contain later
/// ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// Every superblock.
    pub superblocks: Vec<SuperblockMeta>,
    /// Retired blocks.
    pub bad: Vec<Block>,
    /// The stamp histories, ascending by their volumes' ids.
    pub histories: Vec<HistoryMeta>,
    /// Order of the next superblock that is opened.
    pub next_order: u64,
    /// Sequence of the next page that is written.
    pub page_seq: u64,
    /// Pages written by hosts.
    pub written_host: u64,
    /// Pages written to flash.
    pub written_flash: u64,
}

impl SuperblockMeta {
    /// Decodes and checks 16 bytes.
    fn decode(raw: &[u8]) -> Result<Self, Refused> {
        let refused = |why: String| Refused::new(WHAT, why);
        let mut raw = Fields::new(WHAT, raw);
        let state = match raw.take::<4>()? {
            [0, 0, 0, 0] => SuperblockState::Free,
            [1, stream, 0, 0] => SuperblockState::Open { stream },
            [2, 0, 0, 0] => SuperblockState::Closed,
            [3, 0, 0, 0] => SuperblockState::Dead,
            other => return Err(refused(format!("a superblock in state {other:?}"))),
        };
        let (erases, order) = (raw.u32()?, raw.u64()?);
        if erases > COUNTER_MAX_32 || order > COUNTER_MAX {
            return Err(refused(format!("a superblock erased {erases} times, in order {order}")));
        }
        Ok(Self { state, erases, order })
    }
}

impl Meta {
    /// The meta of an SSD to which nothing was ever written.
    pub fn empty(sizes: &Sizes) -> Self {
        Self { superblocks: vec![SuperblockMeta::default(); sizes.superblocks as usize], ..Self::default() }
    }

    /// Encodes the meta.
    ///
    /// # Errors
    /// If it has more of something than these sizes have room for.
    pub fn encode(&self, sizes: &Sizes) -> Result<Vec<u8>, DurableError> {
        let mut out = self.encode_front(Vec::new(), sizes)?;
        for HistoryMeta { vid, ahead, stamps } in &self.histories {
            push_history(&mut out, sizes, *vid, (*ahead).into(), [stamps, &[]])?;
        }
        Ok(out)
    }

    /// As [`Self::encode`], without the histories, into a buffer whose memory is used again.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_front(&self, mut out: Vec<u8>, sizes: &Sizes) -> Result<Vec<u8>, DurableError> {
        let superblocks = count("superblocks", self.superblocks.len(), sizes.superblocks.into())?;
        let bad = count("bad blocks", self.bad.len(), sizes.blocks.into())?;
        out.clear();
        for counter in [self.next_order, self.page_seq, self.written_host, self.written_flash] {
            out.extend_from_slice(&counter.to_le_bytes());
        }
        for count in [superblocks, bad, 0, WITH_AHEAD] {
            out.extend_from_slice(&count.to_le_bytes());
        }
        for superblock in &self.superblocks {
            let (state, stream) = match superblock.state {
                SuperblockState::Free => (0, 0),
                SuperblockState::Open { stream } => (1, stream),
                SuperblockState::Closed => (2, 0),
                SuperblockState::Dead => (3, 0),
            };
            out.extend_from_slice(&[state, stream, 0, 0]);
            out.extend_from_slice(&superblock.erases.to_le_bytes());
            out.extend_from_slice(&superblock.order.to_le_bytes());
        }
        for block in &self.bad {
            out.extend_from_slice(&block.0.to_le_bytes());
        }
        check_room(&out, sizes)?;
        Ok(out)
    }

    /// Decodes and checks.
    ///
    /// # Errors
    /// [`Refused`] where anything in it is wrong.
    pub fn decode(bytes: &[u8], sizes: &Sizes) -> Result<Self, Refused> {
        let refused = |why: String| Refused::new(WHAT, why);
        let mut fields = Fields::new(WHAT, bytes);
        let (next_order, page_seq) = (fields.u64()?, fields.u64()?);
        let (written_host, written_flash) = (fields.u64()?, fields.u64()?);
        let (superblock_count, bad_count, volumes) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let has_ahead = match (volumes, fields.u32()?) {
            (0, WITH_AHEAD) => true,
            (_, 0) => false,
            _ => return Err(refused("reserved bytes are set".into())),
        };
        if [next_order, page_seq, written_host, written_flash].into_iter().any(|n| n > COUNTER_MAX) {
            return Err(refused("a counter is out of range".into()));
        }
        if superblock_count != sizes.superblocks || bad_count > sizes.blocks || volumes > sizes.volumes {
            return Err(refused(format!(
                "{superblock_count} superblocks, {bad_count} bad blocks, {volumes} volumes"
            )));
        }
        // From here on no memory is allocated before the code has checked that the bytes for it are there.
        let superblocks = fields.bytes(superblock_count as usize * 16)?.chunks_exact(16);
        let superblocks = superblocks.map(SuperblockMeta::decode).collect::<Result<Vec<_>, _>>()?;
        let mut bad = Vec::new();
        for raw in fields.bytes(bad_count as usize * 4)?.chunks_exact(4) {
            let block = Fields::new(WHAT, raw).u32()?;
            if block >= sizes.blocks {
                return Err(refused(format!("bad block {block} is beyond this SSD")));
            }
            bad.push(Block(block));
        }
        let mut histories: Vec<HistoryMeta> = Vec::new();
        while if has_ahead { fields.left() > 0 } else { histories.len() < volumes as usize } {
            let raw = fields.u16()?;
            let vid = Vid::new(raw).ok_or_else(|| refused(format!("volume id {raw}")))?;
            // There may be more than `volumes`: some may have been deleted and others created while histories
            // were copied.
            if histories.last().is_some_and(|last| last.vid >= vid) {
                return Err(refused(format!("a history of volume {raw} out of its order")));
            }
            let (count, ahead) = match (has_ahead, fields.u16()?, fields.u32()?) {
                (true, stamps, ahead) => (stamps.into(), ahead),
                (false, 0, stamps) => (stamps, 0),
                _ => return Err(refused("reserved bytes are set".into())),
            };
            let raw = fields.bytes((count as usize).saturating_mul(size_of::<AppliedStamp>()))?;
            let stamps =
                <[AppliedStamp]>::ref_from_bytes(raw).expect("whole ones, of any alignment").to_vec();
            histories.push(HistoryMeta { vid, ahead, stamps });
        }
        fields.end()?;
        Ok(Self { superblocks, bad, histories, next_order, page_seq, written_host, written_flash })
    }
}

fn count(what: &'static str, has: usize, room: u64) -> Result<u32, DurableError> {
    match u32::try_from(has) {
        Ok(count) if has as u64 <= room => Ok(count),
        _ => Err(DurableError::TooLarge { what, has: has as u64, room }),
    }
}

fn check_room(meta: &[u8], sizes: &Sizes) -> Result<(), DurableError> {
    let room = Layout::new(sizes).meta_bytes;
    if meta.len() as u64 > room {
        return Err(DurableError::TooLarge {
            what: "bytes of stamp histories",
            has: meta.len() as u64,
            room,
        });
    }
    Ok(())
}

/// Appends a volume's stamp history, as it is `ahead` transactions after the checkpoint began. It comes in
/// two parts, the older one first, so that a ring needs no further copy.
///
/// # Errors
/// If there is no room for it.
pub(crate) fn push_history(
    meta: &mut Vec<u8>,
    sizes: &Sizes,
    vid: Vid,
    ahead: u64,
    parts: [&[AppliedStamp]; 2],
) -> Result<(), DurableError> {
    let has: usize = parts.iter().map(|part| part.len()).sum();
    let too_large = |what, has, room| DurableError::TooLarge { what, has, room };
    let stamps =
        u16::try_from(has).map_err(|_| too_large("stamps of a volume", has as u64, u16::MAX.into()))?;
    let ahead = u32::try_from(ahead)
        .map_err(|_| too_large("transactions of a checkpoint", ahead, u32::MAX.into()))?;
    meta.extend_from_slice(&vid.get().to_le_bytes());
    meta.extend_from_slice(&stamps.to_le_bytes());
    meta.extend_from_slice(&ahead.to_le_bytes());
    parts.iter().for_each(|part| meta.extend_from_slice(part.as_bytes()));
    check_room(meta, sizes)
}
