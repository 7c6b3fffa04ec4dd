// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host reads and writes: a list of requests in device memory, executed by the `gn_transfer` kernel.

use crate::error::Error;
use crate::io_failure::IoFailure;
use gnstor_fabric::device::{DeviceMem, Kernel};
use gnstor_fabric::hca::agent::{ClientKernel, Shape};
use gnstor_gnor::abi::GN_TIMED_OUT;
use gnstor_gnor::channel::Channel;
use gnstor_proto::BLOCK_BYTES;
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::{offset_of, size_of};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Mirror of `gn::file`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct FileAbi {
    pub(crate) channel: u64,
    pub(crate) volume: u64,
    pub(crate) timeout_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Item {
    address: u64,
    key: u32,
    vba: u32,
    blocks: u32,
    opcode: u32,
    flags: u32,
    status: u32,
    dw0: u32,
    dw1: u32,
    replica: u32,
    reserved: u32,
}

#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct Args {
    file: FileAbi,
    items: u64,
    count: u32,
    reserved: u32,
}
const _: () = assert!(size_of::<Item>() == 48 && size_of::<Args>() == 40 && size_of::<FileAbi>() == 24);

#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct DrainArgs {
    file: FileAbi,
    timeout_ns: u64,
    left: u32,
    reserved: u32,
}
const _: () = assert!(size_of::<DrainArgs>() <= ITEMS_AT);

/// The volume of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) channel: &'a Channel,
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

/// Bytes one kernel moves.
pub(crate) const STAGING_BYTES: usize = 4 << 20;
const MAX_ITEMS: usize = STAGING_BYTES / BLOCK_BYTES as usize;
const ITEMS_AT: usize = 64;
/// Longest request: the array's SSDs transfer no more at once (MDTS of 1 MiB). A chunk may be longer.
const MAX_REQUEST_BLOCKS: u32 = 256;

#[expect(unsafe_code, reason = "the kernel's entries for the CPU execution")]
mod entry {
    use std::ffi::c_void;
    unsafe extern "C" {
        pub(super) fn gn_transfer(launch: *mut c_void);
        pub(super) fn gn_transfer_one_grid(launch: *mut c_void);
        pub(super) fn gn_drain_channel(launch: *mut c_void);
        pub(super) fn gn_drain_channel_one_grid(launch: *mut c_void);
    }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn transfer_entry(launch: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_transfer(launch) }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn transfer_one_grid_entry(launch: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_transfer_one_grid(launch) }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn drain_entry(launch: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_drain_channel(launch) }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn drain_one_grid_entry(launch: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_drain_channel_one_grid(launch) }
}

fn drain_kernel() -> ClientKernel {
    let image = include_bytes!("../cuda/transfer.fatbin");
    ClientKernel {
        beside_agent: Kernel { name: "gn_drain_channel", image, host: drain_entry },
        one_grid: Kernel { name: "gn_drain_channel_one_grid", image, host: drain_one_grid_entry },
    }
}

fn kernel() -> ClientKernel {
    let image = include_bytes!("../cuda/transfer.fatbin");
    ClientKernel {
        beside_agent: Kernel { name: "gn_transfer", image, host: transfer_entry },
        one_grid: Kernel { name: "gn_transfer_one_grid", image, host: transfer_one_grid_entry },
    }
}

/// Threads of a transfer: as many requests are in flight as a channel has slots for.
const THREADS: u32 = 128;

impl Transfers {
    pub(crate) fn new(channel: &Channel) -> Result<Self, Error> {
        let device = channel.node().device();
        let staging = device.alloc(STAGING_BYTES)?;
        let control = device.alloc(ITEMS_AT + MAX_ITEMS * size_of::<Item>())?;
        let key = channel.register(&staging)?;
        Ok(Self { staging, key, control, tainted: Cell::new(false) })
    }

    /// The staging memory's.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Polls until none of the channel's requests is left, for at most `timeout`; returns how many slots are
    /// still taken.
    pub(crate) fn drain(&self, channel: &Channel, file: FileAbi, timeout: Duration) -> Result<u32, Error> {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let args = DrainArgs { file, timeout_ns, left: 0, reserved: 0 };
        self.control.write(0, args.as_bytes())?;
        let shape = Shape { blocks: 1, threads: 32, smem_bytes: 0 };
        let deadline = timeout.saturating_add(Duration::from_secs(5));
        channel.node().launch(drain_kernel(), shape, self.control.address(), deadline)?;
        let mut left = [0; 4];
        self.control.read(offset_of!(DrainArgs, left), &mut left)?;
        Ok(u32::from_le_bytes(left))
    }

    /// Writes `data` (at most [`STAGING_BYTES`], whole blocks) at block `vba`.
    pub(crate) fn write(&self, target: Target<'_>, vba: u32, data: &[u8]) -> Result<(), Error> {
        if self.tainted.get() {
            return Err(Error::AfterTimeout);
        }
        self.staging.write(0, data)?;
        let items = self.items(Verb::Write, vba, target.chunk_blocks, data.len());
        self.run(target.channel, target.file, Verb::Write, &items)
    }

    /// Reads into `data`, as [`Self::write`]; `replica` 0 reads any replica, k the k-th that serves.
    pub(crate) fn read(
        &self,
        target: Target<'_>,
        vba: u32,
        data: &mut [u8],
        replica: u32,
    ) -> Result<(), Error> {
        let mut items = self.items(Verb::Read, vba, target.chunk_blocks, data.len());
        items.iter_mut().for_each(|item| item.replica = replica);
        self.run(target.channel, target.file, Verb::Read, &items)?;
        Ok(self.staging.read(0, data)?)
    }

    /// Flushes every SSD.
    pub(crate) fn flush(&self, channel: &Channel, file: FileAbi) -> Result<(), Error> {
        let ssds = u32::try_from(channel.ssds()).expect("a channel has few SSDs");
        let items: Vec<Item> = (0..ssds).map(|ssd| Item { vba: ssd, blocks: 1, ..Item::default() }).collect();
        self.run(channel, file, Verb::Flush, &items)
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

    fn run(&self, channel: &Channel, file: FileAbi, verb: Verb, items: &[Item]) -> Result<(), Error> {
        if self.tainted.get() {
            return Err(Error::AfterTimeout);
        }
        let count = u32::try_from(items.len()).expect("bounded by the staging memory");
        let args = Args { file, items: self.control.address() + ITEMS_AT as u64, count, reserved: 0 };
        self.control.write(0, args.as_bytes())?;
        self.control.write(ITEMS_AT, items.as_bytes())?;
        let shape = Shape { blocks: 1, threads: count.next_multiple_of(32).min(THREADS), smem_bytes: 0 };
        // Each thread runs its requests one after the other, each under the file's deadline.
        let rounds = u64::from(count.div_ceil(shape.threads));
        let deadline = Duration::from_nanos(file.timeout_ns.saturating_mul(rounds)) + Duration::from_secs(5);
        // Until everything is known to have ended, something may still be on its way to the staging memory.
        self.tainted.set(true);
        channel.node().launch(kernel(), shape, self.control.address(), deadline)?;
        let mut raw = vec![0; size_of_val(items)];
        self.control.read(ITEMS_AT, &mut raw)?;
        let ended: Vec<Item> = raw
            .chunks_exact(size_of::<Item>())
            .map(|raw| Item::read_from_bytes(raw).expect("the length matches"))
            .collect();
        self.tainted.set(ended.iter().any(|item| item.status & GN_TIMED_OUT != 0));
        if let Some(Item { vba, status, dw0, dw1, .. }) = ended.iter().find(|item| item.status != 0).copied()
        {
            return Err(IoFailure { what: verb.name(), vba, status, dw0, dw1 }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "reads the table that the C++ compiler made")]
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use std::ffi::{CStr, c_char};

    #[repr(C)]
    struct Row {
        name: *const c_char,
        value: usize,
    }

    unsafe extern "C" {
        static gn_libgnstor_layout: Row;
    }

    #[test]
    fn every_size_and_offset_is_the_same_in_both_languages() {
        let _deadline = Deadline::after(LIMIT);
        let mirror = [
            ("file", size_of::<FileAbi>()),
            ("transfer_item", size_of::<Item>()),
            ("transfer_item.status", offset_of!(Item, status)),
            ("transfer_args", size_of::<Args>()),
            ("transfer_args.items", offset_of!(Args, items)),
            ("drain_args", size_of::<DrainArgs>()),
            ("drain_args.left", offset_of!(DrainArgs, left)),
        ];
        let first = &raw const gn_libgnstor_layout;
        for (i, (name, value)) in mirror.iter().enumerate() {
            // SAFETY: a null name ends the C++ table, and the rows before this one had names.
            let row = unsafe { &*first.add(i) };
            assert!(!row.name.is_null(), "{name} is not in the C++ table");
            // SAFETY: a string literal of the C++ file.
            assert_eq!(unsafe { CStr::from_ptr(row.name) }.to_str(), Ok(*name));
            assert_eq!(row.value, *value, "{name}");
        }
    }
}
