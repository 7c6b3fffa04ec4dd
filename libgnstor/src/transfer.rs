// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host reads and writes: a list of requests in device memory, executed by the `gn_transfer` kernel.

mod kernels;

pub(crate) use self::kernels::FileAbi;
use self::kernels::{
    Args, CONTROL_BYTES, DrainArgs, ITEMS_AT, Item, VOLUMES_AT, drain_kernel, transfer_kernel,
};
use crate::error::Error;
use crate::io_failure::IoFailure;
use gnstor_fabric::device::DeviceMem;
use gnstor_fabric::hca::agent::Shape;
use gnstor_gnor::abi::{GN_QP_BROKEN, GN_TIMED_OUT};
use gnstor_gnor::channel::Channel;
use gnstor_gnor::node::Turn;
use gnstor_gnor::session::Wait;
use gnstor_proto::BLOCK_BYTES;
use std::cell::Cell;
use std::mem::{offset_of, size_of};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// The volume of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) channel: &'a Channel,
    pub(crate) again: &'a dyn Again,
    pub(crate) file: FileAbi,
    /// No request crosses a border of chunks of so many blocks.
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
}

/// Makes the connections of a channel anew. All but the wait are made with the transfers locked.
pub(crate) trait Again {
    /// Tells the session which queue pairs are broken.
    ///
    /// # Errors
    /// Driver errors, in words.
    fn note_broken(&self, transfers: &Transfers) -> Result<(), String>;

    /// Waits until a lost SSD is found, or none is lost any more.
    fn wait_found(&self, most: Duration) -> Wait;

    /// Makes new queue pairs where a lost SSD was found.
    fn take_found(&self, transfers: &Transfers);

    /// Makes the queue pairs anew, and so ends what is in flight on the old ones. False: no SSD answers.
    ///
    /// # Errors
    /// Why not, in words, where no later try can help.
    fn renew(&self, transfers: &Transfers, left: Duration) -> Result<bool, String>;

    /// Whether a lost SSD was found.
    fn has_found(&self) -> bool;
}

/// What a host call does.
#[derive(Debug)]
pub(crate) enum Work<'a> {
    /// At most [`STAGING_BYTES`], whole blocks.
    Write(&'a [u8]),
    /// As a write, from one replica: 0 any, k the k-th that serves.
    Read(&'a mut [u8], u32),
    /// On every SSD.
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

/// Bytes one kernel moves.
pub(crate) const STAGING_BYTES: usize = 4 << 20;
const MAX_ITEMS: usize = STAGING_BYTES / BLOCK_BYTES as usize;
/// From one try to connect anew to the next.
const REST: Duration = Duration::from_millis(100);
/// Longest request: the array's SSDs transfer no more at once (MDTS of 1 MiB). A chunk may be longer.
const MAX_REQUEST_BLOCKS: u32 = 256;

/// Threads of a transfer: as many requests are in flight as a channel has slots for.
const THREADS: u32 = 128;

impl Transfers {
    pub(crate) fn new(channel: &Channel) -> Result<Self, Error> {
        let device = channel.node().device();
        let staging = device.alloc(STAGING_BYTES)?;
        let control = device.alloc(CONTROL_BYTES)?;
        let key = channel.register(&staging)?;
        Ok(Self { staging, key, control, tainted: Cell::new(false) })
    }

    /// The staging memory's.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Polls until none of the channel's requests is left, for at most `timeout`; returns how many slots are
    /// still taken. `volume` is the one of requests that wait without a thread.
    pub(crate) fn drain(
        &self,
        (turn, channel): (&Turn<'_>, &Channel),
        volume: Option<u64>,
        timeout: Duration,
    ) -> Result<u32, Error> {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // Where no request waits, the kernel looks at no volume.
        let volume = volume.unwrap_or(self.control.address() + VOLUMES_AT as u64);
        let file = FileAbi { channel: channel.address(), volume, timeout_ns };
        let args = DrainArgs { file, timeout_ns, left: 0, reserved: 0 };
        self.control.write(0, args.as_bytes())?;
        let shape = Shape { blocks: 1, threads: 32, smem_bytes: 0 };
        let deadline = timeout.saturating_add(Duration::from_secs(5));
        turn.launch(drain_kernel(), shape, self.control.address(), deadline)?;
        let mut left = [0; 4];
        self.control.read(offset_of!(DrainArgs, left), &mut left)?;
        Ok(u32::from_le_bytes(left))
    }

    /// Nothing is on its way to the staging memory any more: the channel's queue pairs are new ones.
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
                let ssds = u32::try_from(target.channel.ssds()).expect("a channel has few SSDs");
                (0..ssds).map(|ssd| Item { vba: ssd, blocks: 1, ..Item::default() }).collect()
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most STAGING_BYTES")]
    fn items(&self, verb: Verb, vba: u32, chunk_blocks: u32, bytes: usize) -> Vec<Item> {
        let total = (bytes / BLOCK_BYTES as usize) as u32;
        let mut items = Vec::new();
        let mut at = 0;
        while at < total {
            let first = vba + at;
            let blocks = (chunk_blocks - first % chunk_blocks).min(total - at).min(MAX_REQUEST_BLOCKS);
            let address = self.staging.address() + u64::from(at) * u64::from(BLOCK_BYTES);
            items.push(Item {
                address,
                key: self.key,
                vba: first,
                blocks,
                opcode: verb as u32,
                ..Item::default()
            });
            at += blocks;
        }
        items
    }

    /// Connects anew where an earlier request timed out: then nothing of it can land any more.
    fn clean(&self, target: Target<'_>) -> Result<(), Error> {
        if self.tainted.get() {
            let left = Duration::from_nanos(target.file.timeout_ns);
            // It says that it is clean, if it is.
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
        let mut ended = self.run_once(target.channel, file, items)?;
        ended.retain(|item| item.status != 0);
        if let (Work::Read(data, _), true) = (work, ended.is_empty()) {
            self.staging.read(0, data)?;
        }
        Ok(ended)
    }

    /// Runs requests once. Returns them as they have ended.
    fn run_once(&self, channel: &Channel, file: FileAbi, items: &[Item]) -> Result<Vec<Item>, Error> {
        let count = u32::try_from(items.len()).expect("bounded by the staging memory");
        let at = |offset: usize| self.control.address() + offset as u64;
        let args = Args { file, items: at(ITEMS_AT), volumes: at(VOLUMES_AT), count, reserved: 0 };
        self.control.write(0, args.as_bytes())?;
        self.control.write(ITEMS_AT, items.as_bytes())?;
        let shape = Shape { blocks: 1, threads: threads(items), smem_bytes: 0 };
        // Each thread runs its requests one after the other, each under the file's deadline.
        let deadline =
            Duration::from_nanos(file.timeout_ns.saturating_mul(rounds(items))) + Duration::from_secs(5);
        // Until everything is known to have ended, something may still be on its way to the staging memory.
        self.tainted.set(true);
        channel.node().launch(transfer_kernel(), shape, self.control.address(), deadline)?;
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

/// Moves the data of a host call, from block `vba` on. Requests that a broken connection ended run again
/// until the deadline. A write then has the stamp that it had: an SSD that has the write completes it and
/// does not apply it again (protocol rule 6). Other calls of the client go on while this one waits for a lost
/// SSD.
#[expect(clippy::disallowed_methods, reason = "a blocking call with a deadline in real time")]
pub(crate) fn transfer(
    all: &Mutex<Transfers>,
    target: Target<'_>,
    vba: u32,
    mut work: Work<'_>,
) -> Result<(), Error> {
    let lock = || all.lock().expect("no panic while held");
    let mut items = lock().plan(&target, vba, &work);
    let begun = Instant::now();
    let most = Duration::from_nanos(target.file.timeout_ns.saturating_mul(rounds(&items)));
    let left = || most.saturating_sub(begun.elapsed());
    let mut file = target.file;
    loop {
        let failed = {
            let transfers = lock();
            target.again.take_found(&transfers);
            let failed = transfers.run(target, file, &items, &mut work)?;
            if failed.iter().any(|item| item.status & GN_QP_BROKEN != 0) {
                target.again.note_broken(&transfers).map_err(Error::Protocol)?;
            }
            failed
        };
        let Some(&Item { vba, status, dw0, dw1, .. }) = failed.first() else { return Ok(()) };
        let failure = || IoFailure { what: work.verb().name(), vba, status, dw0, dw1 };
        if failed.iter().any(|item| item.status & GN_QP_BROKEN == 0) {
            return Err(failure().into());
        }
        if !back_in_time(lock, target.again, left) {
            return Err(failure().into());
        }
        tracing::info!("{} requests to block {vba} and others are sent again", failed.len());
        // What a read has brought is not kept beyond the lock.
        if work.verb() != Verb::Read {
            items = failed;
        }
        file.timeout_ns = u64::try_from(left().as_nanos()).unwrap_or(u64::MAX);
    }
}

/// Waits until the channel reaches more SSDs than it did. False: not in time, or never.
fn back_in_time<'a>(
    lock: impl Fn() -> MutexGuard<'a, Transfers>,
    again: &dyn Again,
    left: impl Fn() -> Duration,
) -> bool {
    loop {
        if left() <= REST {
            return false;
        }
        match again.wait_found(left() - REST) {
            Wait::Late => return false,
            Wait::Hopeless(why) => {
                tracing::warn!("the connections to the SSDs are not made anew: {why}");
                return false;
            }
            Wait::Found => {}
        }
        let transfers = lock();
        // Another call may have taken it meanwhile.
        let renewed = if again.has_found() { again.renew(&transfers, left()) } else { Ok(true) };
        drop(transfers);
        match renewed {
            Ok(true) => return true,
            Ok(false) => std::thread::sleep(REST.min(left())),
            Err(why) => {
                tracing::warn!("the connections to the SSDs are not made anew: {why}");
                return false;
            }
        }
    }
}

/// Threads that run these requests.
fn threads(items: &[Item]) -> u32 {
    u32::try_from(items.len()).expect("bounded by the staging memory").next_multiple_of(32).min(THREADS)
}

/// Requests that one thread runs one after the other.
fn rounds(items: &[Item]) -> u64 {
    items.len().div_ceil(threads(items).max(1) as usize) as u64
}
