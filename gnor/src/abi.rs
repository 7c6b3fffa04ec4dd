// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mirror of `gnor/cuda/gnor/abi.h`; `tests/layout.rs` compares every offset with the C++ compiler's.
#![expect(missing_docs, reason = "documented field by field in abi.h")]

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

pub const SLOTS: usize = 128;
pub const MAX_SSDS: usize = 64;
/// The queues of one SSD, in this order: doorbell record, send queue, receive queue, response buffers. The
/// sizes of the last three depend on the depth.
pub const DBR_AT: usize = 0;
pub const SQ_AT: usize = 64;
pub const RQ_AT_EACH: usize = 64;
pub const RECV_AT_EACH: usize = 80;
/// Entries of an NVMe submission queue, for each command that may be in flight.
pub const NVME_ENTRIES_EACH: u32 = 2;
pub const QUEUE_BYTES_EACH: usize = 96;
pub const UAR_BYTES: usize = 4096;
/// Memory that a request without a waiting thread needs between two steps (async.cuh).
pub const PARKED_BYTES: usize = 64;
pub const POOL_BLOCK: u32 = 65536;
/// Blocks the pool starts with: 8 MiB, as the paper's.
pub const POOL_BLOCKS: u32 = 128;

pub const GN_PENDING: u32 = 0x0001_0000;
pub const GN_TIMED_OUT: u32 = 0x0002_0000;
pub const GN_QP_BROKEN: u32 = 0x0004_0000;
pub const GN_OUT_OF_RANGE: u32 = 0x0008_0000;
pub const GN_BAD_REQUEST: u32 = 0x0010_0000;
pub const GN_READ_ONLY: u32 = 0x0020_0000;
pub const GN_NO_REPLICA: u32 = 0x0040_0000;
pub const GN_BUSY: u32 = 0x0080_0000;
pub const GN_NO_AGENT: u32 = 0x0100_0000;

/// Flag of a volume: if an SSD refuses its requests because of the map, they wait for another map.
pub const FOLLOWS_REFUSALS: u8 = 1;
/// Requests of the volume wait through broken queue pairs, too.
pub const FOLLOWS_BROKEN: u8 = 2;

/// The changing state of one SSD's queue pair.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QueuePair {
    pub gate: u64,
    pub publish: u32,
    pub retired: u32,
    pub completed: u32,
    pub error: u32,
    pub rung: u32,
    pub reserved: u32,
}

/// State of one queue pair if writes to GPU memory are not ordered (dump.cuh).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Dumps {
    pub posted: u32,
    pub at: u32,
    pub arrived: u32,
    pub covers: u32,
    pub landed: u32,
    pub taken: u32,
    pub reserved: [u32; 2],
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Slot {
    pub state: u32,
    pub done: u32,
    pub status: u32,
    pub dw0: u32,
    pub dw1: u32,
    pub pool_bytes: u32,
    pub pool_addr: u64,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Pool {
    pub base: u64,
    pub words_addr: u64,
    pub host_addr: u64,
    pub blocks: u32,
    pub rkey: u32,
    pub most: u32,
    pub asked: u32,
}

/// Words in which a pool asks the CPU for more memory; in host memory.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PoolHost {
    pub asked: u32,
    pub granted: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ChannelAbi {
    pub cq_addr: u64,
    pub capsules_addr: u64,
    pub queues_addr: u64,
    pub uars_addr: u64,
    pub qps_addr: u64,
    pub parked_addr: u64,
    pub port_addr: u64,
    pub connect_addr: u64,
    pub dumps_addr: u64,
    pub waiting_addr: u64,
    pub queue_lkey: u32,
    pub ssds: u32,
    pub first_qpn: u32,
    pub cq_log: u32,
    pub cq_word: u32,
    pub depth: u32,
    pub slot_bits: [u32; SLOTS / 32],
    pub tickets: u32,
    pub returned: u32,
    pub orphans: [u32; SLOTS / 32],
    pub parked_bits: [u32; SLOTS / 32],
    pub uncalled: u32,
    pub qid: u32,
    pub protocol_errors: u32,
    pub retries: u32,
    pub visitor: u32,
    pub visits: u32,
    pub stamps: u32,
    pub reserved: u32,
    pub data: Pool,
    pub slots: [Slot; SLOTS],
}

impl Default for ChannelAbi {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// An open volume as device code sees it.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VolumeAbi {
    pub factor: u64,
    pub capacity_blocks: u64,
    pub places_addr: u64,
    pub next_sequence: u64,
    pub map: u64,
    pub groups: u32,
    pub width: u32,
    pub lease_epoch: u32,
    pub vid: u16,
    pub client: u16,
    pub replicas: u8,
    pub chunk_shift: u8,
    pub writer: u8,
    pub follows: u8,
    pub reserved: u32,
}

/// The word of a volume that says which map is in use: its epoch, and which of the two tables has its places.
/// `comes_in`: an SSD comes in for another one somewhere.
pub fn map_word(epoch: u32, table: bool, comes_in: bool) -> u64 {
    u64::from(epoch) | u64::from(table) << 32 | u64::from(comes_in) << 48
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConnectArgs {
    pub channel: u64,
    pub timeout_ns: u64,
    pub status: [u32; MAX_SSDS],
    pub dw0: [u32; MAX_SSDS],
}

impl Default for ConnectArgs {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// A device status in words: what the device library, the HCA or the SSD said.
pub fn describe(status: u32, dw0: u32) -> String {
    use gnstor_fabric::mlx5::syndrome;
    use gnstor_proto::status::{Detail, Status};
    #[expect(clippy::cast_possible_truncation, reason = "fields of the status word")]
    let (low, byte) = (status as u16, status as u8);
    match status {
        0 => "success".into(),
        s if s & GN_PENDING != 0 => "still pending".into(),
        s if s & GN_NO_AGENT != 0 => {
            "no completion before the deadline, as no agent of the HCA runs: launch the kernel by gn_launch \
             (File::launch)"
                .into()
        }
        s if s & GN_TIMED_OUT != 0 => "no completion before the deadline".into(),
        s if s & GN_QP_BROKEN != 0 => format!("the connection to the SSD broke: {}", syndrome::name(byte)),
        s if s & GN_OUT_OF_RANGE != 0 => "the range ends beyond the volume".into(),
        s if s & GN_BAD_REQUEST != 0 => {
            "zero blocks, too many, a misaligned buffer, or one that is too short".into()
        }
        s if s & GN_READ_ONLY != 0 => "the volume was opened for reading".into(),
        s if s & GN_BUSY != 0 => "no slot was free".into(),
        s if s & GN_NO_REPLICA != 0 => "the fleet map names no SSD for the block".into(),
        _ => {
            let why = Detail::from_dw0(dw0).refusal();
            let why = why.map_or(String::new(), |r| format!(", rule {}: {}", r.rule(), r.sentence()));
            format!("NVMe status {}{why}", Status(low))
        }
    }
}
