// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host reads and writes: a list of requests in device memory, executed by the `gn_transfer` kernel.

mod blame;
mod kernels;
mod retry;

pub(crate) use self::kernels::FileAbi;
use self::kernels::{
    Args, CONTROL_BYTES, DrainArgs, ITEMS_AT, Item, VOLUMES_AT, drain_kernel, transfer_kernel,
};
pub(crate) use self::retry::transfer;
use crate::error::Error;
use crate::manager::VolumeInfo;
use crate::maps::Maps;
use crate::ssds::SsdInfo;
use gnstor_fabric::device::DeviceMem;
use gnstor_fabric::hca::agent::Shape;
use gnstor_gnor::abi::GN_TIMED_OUT;
use gnstor_gnor::channel::Channel;
use gnstor_gnor::node::{LaunchLock, Node};
use gnstor_gnor::session::{Session, Wait};
use gnstor_proto::BLOCK_BYTES;
use std::cell::Cell;
use std::mem::{offset_of, size_of};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// The volume of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) channel: &'a Channel,
    pub(crate) maps: &'a Maps,
    pub(crate) session: &'a Session,
    pub(crate) ssds: &'a [SsdInfo],
    pub(crate) info: &'a VolumeInfo,
    pub(crate) again: &'a dyn Again,
    pub(crate) file: FileAbi,
    /// No request crosses a multiple of this number of blocks.
    pub(crate) chunk_blocks: u32,
}

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Flush = 0,
    Write = 1,
    Read = 2,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// Staging memory of a client's host calls: data, requests, arguments; registered once.
#[derive(Debug)]
pub(crate) struct Transfers {
    staging: DeviceMem,
    key: u32,
    control: DeviceMem,
    /// A request timed out: its transfer may still land in the staging memory, which is therefore not used
    /// again.
    tainted: Cell<bool>,
    /// For how long the present call has waited until no kernel ran.
    waited: Cell<Duration>,
}

/// Makes a channel's connections anew. All methods except the wait are called with the transfers locked.
pub(crate) trait Again {
    /// Tells the session which queue pairs are broken.
    ///
    /// # Errors
    /// Driver errors, in words.
    fn note_broken(&self, transfers: &Transfers) -> Result<(), String>;

    /// Waits until a lost SSD is found, no SSD is lost any more, or the client uses a newer map than this
    /// epoch's.
    fn wait_change(&self, epoch: u64, most: Duration) -> Wait;

    /// Makes new queue pairs to lost SSDs that were found.
    fn take_found(&self, transfers: &Transfers);

    /// Makes the queue pairs anew, which ends everything in flight on the old ones. False: no SSD answers.
    ///
    /// # Errors
    /// The reason, in words, if no later try can help.
    fn renew(&self, transfers: &Transfers, left: Duration) -> Result<bool, String>;

    /// Whether a lost SSD was found.
    fn has_found(&self) -> bool;
}

/// The work of a host call.
#[derive(Debug)]
pub(crate) enum Work<'a> {
    /// At most [`STAGING_BYTES`], whole blocks.
    Write(&'a [u8]),
    /// A read from one replica: 0 any, k the k-th that serves.
    Read(&'a mut [u8], u32),
    /// On every SSD of the map.
    Flush,
}

impl Work<'_> {
    fn verb(&self) -> Verb {
        match self {
            Self::Write(_) => Verb::Write,
            Self::Read(..) => Verb::Read,
            Self::Flush => Verb::Flush,
        }
    }
}

/// Number of bytes that one kernel moves.
pub(crate) const STAGING_BYTES: usize = 4 << 20;
const MAX_ITEMS: usize = STAGING_BYTES / BLOCK_BYTES as usize;
/// Longest request: the array's SSDs transfer no more at once (MDTS of 1 MiB). A chunk may be longer.
const MAX_REQUEST_BLOCKS: u32 = 256;

/// Threads of a transfer: as many requests are in flight as a channel has slots for.
const THREADS: u32 = 128;

/// Cuts `total` blocks from `vba` on at the borders at which the device cuts requests (`io_part`). An item
/// that crosses one would be two commands with two stamps, and it has drawn only one. A later write would
/// have the second of these stamps too, and the SSDs would take it for one that is done.
fn parts(vba: u32, total: u32, chunk_blocks: u32) -> impl Iterator<Item = (u32, u32)> {
    let border = chunk_blocks.min(MAX_REQUEST_BLOCKS);
    let mut at = 0;
    std::iter::from_fn(move || {
        let first = vba + at;
        let blocks = (border - first % border).min(total - at);
        at += blocks;
        (blocks > 0).then_some((first, blocks))
    })
}

impl Transfers {
    pub(crate) fn new(channel: &Channel) -> Result<Self, Error> {
        let device = channel.node().device();
        let staging = device.alloc(STAGING_BYTES)?;
        let control = device.alloc(CONTROL_BYTES)?;
        let key = channel.register(&staging)?;
        Ok(Self { staging, key, control, tainted: Cell::new(false), waited: Cell::default() })
    }

    /// Waits until no kernel runs. This does not count as time of the call: a kernel may run for hours.
    #[expect(clippy::disallowed_methods, reason = "measures a wait in real time")]
    pub(crate) fn launch_lock<'a>(&self, node: &'a Node) -> LaunchLock<'a> {
        let from = Instant::now();
        let lock = node.launch_lock();
        self.waited.set(self.waited.get() + from.elapsed());
        lock
    }

    /// The staging memory's.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Polls until none of the channel's requests is left, for at most `timeout`; returns how many slots are
    /// still taken. `volume` is the one of requests that wait without a thread.
    pub(crate) fn drain(
        &self,
        (lock, channel): (&LaunchLock<'_>, &Channel),
        volume: Option<u64>,
        timeout: Duration,
    ) -> Result<u32, Error> {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // If no request waits, the kernel uses no volume.
        let volume = volume.unwrap_or(self.control.address() + VOLUMES_AT as u64);
        let file = FileAbi { channel: channel.address(), volume, timeout_ns };
        let args = DrainArgs { file, timeout_ns, left: 0, reserved: 0 };
        self.control.write(0, args.as_bytes())?;
        let shape = Shape { blocks: 1, threads: 32, smem_bytes: 0 };
        let deadline = timeout.saturating_add(Duration::from_secs(5));
        lock.launch(drain_kernel(), shape, self.control.address(), deadline)?;
        let mut left = [0; 4];
        self.control.read(offset_of!(DrainArgs, left), &mut left)?;
        Ok(u32::from_le_bytes(left))
    }

    /// No late data can reach the staging memory any more, because the channel's queue pairs are new ones.
    pub(crate) fn is_clean(&self) {
        self.tainted.set(false);
    }

    /// The requests of a host call from block `vba` on.
    fn plan(&self, target: &Target<'_>, vba: u32, work: &Work<'_>) -> Vec<Item> {
        match work {
            Work::Write(data) => self.items(Verb::Write, vba, target.chunk_blocks, data.len()),
            Work::Read(data, replica) => {
                let mut items = self.items(Verb::Read, vba, target.chunk_blocks, data.len());
                items.iter_mut().for_each(|item| item.replica = *replica);
                items
            }
            Work::Flush => {
                let item = |ssd| Item { vba: ssd, blocks: 1, ..Item::default() };
                target.maps.flushed().into_iter().map(item).collect()
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most STAGING_BYTES")]
    fn items(&self, verb: Verb, vba: u32, chunk_blocks: u32, bytes: usize) -> Vec<Item> {
        let total = (bytes / BLOCK_BYTES as usize) as u32;
        let item = |(first, blocks): (u32, u32)| Item {
            address: self.staging.address() + u64::from(first - vba) * u64::from(BLOCK_BYTES),
            key: self.key,
            vba: first,
            blocks,
            opcode: verb as u32,
            ..Item::default()
        };
        parts(vba, total, chunk_blocks).map(item).collect()
    }

    /// Reconnects if an earlier request timed out. After that none of its data can arrive.
    fn clean(&self, target: Target<'_>) -> Result<(), Error> {
        if self.tainted.get() {
            let left = Duration::from_nanos(target.file.timeout_ns);
            // The call marks the memory as clean, if it is.
            let _ = target.again.renew(self, left);
        }
        if self.tainted.get() { Err(Error::AfterTimeout) } else { Ok(()) }
    }

    /// Runs requests once, and moves the caller's data. Returns the failed ones.
    fn run(
        &self,
        target: Target<'_>,
        file: FileAbi,
        items: &[Item],
        work: &mut Work<'_>,
    ) -> Result<Vec<Item>, Error> {
        self.clean(target)?;
        if let Work::Write(data) = work {
            self.staging.write(0, data)?;
        }
        let mut ended = self.run_once(target, file, items)?;
        ended.retain(|item| item.status != 0);
        if let (Work::Read(data, _), true) = (work, ended.is_empty()) {
            self.staging.read(0, data)?;
        }
        Ok(ended)
    }

    /// Runs each request once. Returns the requests with their results.
    fn run_once(&self, target: Target<'_>, file: FileAbi, items: &[Item]) -> Result<Vec<Item>, Error> {
        let count = u32::try_from(items.len()).expect("bounded by the staging memory");
        let at = |offset: usize| self.control.address() + offset as u64;
        let args = Args { file, items: at(ITEMS_AT), volumes: at(VOLUMES_AT), count, reserved: 0 };
        self.control.write(0, args.as_bytes())?;
        self.control.write(ITEMS_AT, items.as_bytes())?;
        let shape = Shape { blocks: 1, threads: threads(items), smem_bytes: 0 };
        // Each thread runs its requests one after the other, each with the file's deadline.
        let deadline =
            Duration::from_nanos(file.timeout_ns.saturating_mul(rounds(items))) + Duration::from_secs(5);
        // Until all requests have ended, data may still be on its way to the staging memory.
        self.tainted.set(true);
        // The call counts only from here on. While it waits for its turn, an earlier kernel may run for
        // hours, and follow several maps.
        let lock = self.launch_lock(target.channel.node());
        let call = target.maps.call();
        lock.launch(transfer_kernel(), shape, self.control.address(), deadline)?;
        drop((call, lock));
        let mut raw = vec![0; size_of_val(items)];
        self.control.read(ITEMS_AT, &mut raw)?;
        let ended: Vec<Item> = raw
            .chunks_exact(size_of::<Item>())
            .map(|raw| Item::read_from_bytes(raw).expect("the length matches"))
            .collect();
        self.tainted.set(ended.iter().any(|item| item.status & GN_TIMED_OUT != 0));
        Ok(ended)
    }
}

/// Threads that run these requests.
fn threads(items: &[Item]) -> u32 {
    u32::try_from(items.len()).expect("bounded by the staging memory").next_multiple_of(32).min(THREADS)
}

/// Number of requests that one thread runs one after the other.
fn rounds(items: &[Item]) -> u64 {
    items.len().div_ceil(threads(items).max(1) as usize) as u64
}
