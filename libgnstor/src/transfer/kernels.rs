// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernels `gn_transfer` and `gn_drain_channel`, and their arguments in device memory.

use super::MAX_ITEMS;
use gnstor_fabric::device::Kernel;
use gnstor_fabric::hca::agent::ClientKernel;
use gnstor_gnor::abi::VolumeAbi;
use std::ffi::c_void;
use std::mem::size_of;
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
pub(super) struct Item {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) vba: u32,
    pub(super) blocks: u32,
    pub(super) opcode: u32,
    pub(super) flags: u32,
    pub(super) status: u32,
    pub(super) dw0: u32,
    pub(super) dw1: u32,
    pub(super) replica: u32,
    pub(super) reserved: u32,
    /// For a write: the sequence of its stamp, which the kernel draws once.
    pub(super) sequence: u64,
}

#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Args {
    pub(super) file: FileAbi,
    pub(super) items: u64,
    pub(super) volumes: u64,
    pub(super) count: u32,
    pub(super) reserved: u32,
}
const _: () = assert!(size_of::<Item>() == 56 && size_of::<Args>() == 48 && size_of::<FileAbi>() == 24);

#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct DrainArgs {
    pub(super) file: FileAbi,
    pub(super) timeout_ns: u64,
    pub(super) left: u32,
    pub(super) reserved: u32,
}
const _: () = assert!(size_of::<DrainArgs>() <= ITEMS_AT);

pub(super) const ITEMS_AT: usize = 64;
pub(super) const VOLUMES_AT: usize = ITEMS_AT + MAX_ITEMS * size_of::<Item>();
pub(super) const CONTROL_BYTES: usize = VOLUMES_AT + MAX_ITEMS * size_of::<VolumeAbi>();

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

pub(super) fn drain_kernel() -> ClientKernel {
    let image = include_bytes!("../../cuda/transfer.fatbin");
    ClientKernel {
        beside_agent: Kernel { name: "gn_drain_channel", image, host: drain_entry },
        one_grid: Kernel { name: "gn_drain_channel_one_grid", image, host: drain_one_grid_entry },
    }
}

pub(super) fn transfer_kernel() -> ClientKernel {
    let image = include_bytes!("../../cuda/transfer.fatbin");
    ClientKernel {
        beside_agent: Kernel { name: "gn_transfer", image, host: transfer_entry },
        one_grid: Kernel { name: "gn_transfer_one_grid", image, host: transfer_one_grid_entry },
    }
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "reads the table that the C++ compiler made")]
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use std::ffi::{CStr, c_char};
    use std::mem::offset_of;

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
            ("transfer_item.sequence", offset_of!(Item, sequence)),
            ("transfer_args", size_of::<Args>()),
            ("transfer_args.items", offset_of!(Args, items)),
            ("transfer_args.volumes", offset_of!(Args, volumes)),
            ("volume", size_of::<VolumeAbi>()),
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
