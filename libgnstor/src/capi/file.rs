// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open volumes, read and written by the host, and what kernels need for them.

use super::argument::{bytes_in, bytes_out, hand_out, object, result_goes_to, share, take_back, text};
use super::client::ClientHandle;
use super::failure::{Failure, guard};
use super::volume::CVolumeInfo;
use crate::client::Rights;
use crate::file::File;
use std::ffi::{c_char, c_int, c_void};
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

/// `gn_file`.
#[derive(Debug)]
pub struct FileHandle {
    file: File,
    _client: Arc<ClientHandle>,
}

/// `gn_kernel_file`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CKernelFile {
    channel: u64,
    volume: u64,
    timeout_ns: u64,
}
const _: () = assert!(size_of::<CKernelFile>() == 24);

const GN_READ: u32 = 1;
const GN_WRITE: u32 = 2;

/// `gn_open`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_open(
    client: *const ClientHandle,
    name: *const c_char,
    rights: u32,
    file: *mut *const FileHandle,
) -> c_int {
    guard(|| {
        result_goes_to(file, "the file")?;
        // SAFETY: the caller's promise.
        let (client, name) = unsafe { (share(client, "the client")?, text(name, "the name")?) };
        let rights = match rights {
            GN_READ => Rights::Read,
            r if r & GN_WRITE != 0 && r & !(GN_READ | GN_WRITE) == 0 => Rights::Write,
            other => {
                return Err(Failure::invalid(format!("rights {other:#x} are not GN_READ, GN_WRITE or both")));
            }
        };
        let opened = client.client.open(name, rights)?;
        // SAFETY: not null, and the caller's promise.
        unsafe { hand_out(FileHandle { file: opened, _client: client }, file) };
        Ok(())
    })
}

/// `gn_close`.
///
/// # Safety
/// As gnstor.h says: the handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_close(file: *const FileHandle) {
    // SAFETY: the caller's promise.
    unsafe { take_back(file) }
}

/// `gn_file_info`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_file_info(file: *const FileHandle, info: *mut CVolumeInfo) -> c_int {
    guard(|| {
        result_goes_to(info, "the volume")?;
        // SAFETY: the caller's promise.
        let file = unsafe { object(file, "the file") }?;
        // SAFETY: not null, and the caller's promise.
        unsafe { info.write(file.file.info().into()) };
        Ok(())
    })
}

/// `gn_read_at`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; `data` for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_read_at(
    file: *const FileHandle,
    offset: u64,
    data: *mut c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (file, data) = unsafe { (object(file, "the file")?, bytes_out(data, bytes)?) };
        Ok(file.file.read_at(offset, data)?)
    })
}

/// `gn_write_at`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; `data` for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_write_at(
    file: *const FileHandle,
    offset: u64,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (file, data) = unsafe { (object(file, "the file")?, bytes_in(data, bytes)?) };
        Ok(file.file.write_at(offset, data)?)
    })
}

/// `gn_flush`.
///
/// # Safety
/// As gnstor.h says: the handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_flush(file: *const FileHandle) -> c_int {
    // SAFETY: the caller's promise.
    guard(|| Ok(unsafe { object(file, "the file") }?.file.flush()?))
}

/// `gn_device_file`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_device_file(file: *const FileHandle, out: *mut CKernelFile) -> c_int {
    guard(|| {
        result_goes_to(out, "the kernel's file")?;
        // SAFETY: the caller's promise.
        let f = unsafe { object(file, "the file") }?.file.device_file();
        // SAFETY: not null, and the caller's promise.
        unsafe { out.write(CKernelFile { channel: f.channel, volume: f.volume, timeout_ns: f.timeout_ns }) };
        Ok(())
    })
}

/// `gn_drain`.
///
/// # Safety
/// As gnstor.h says: the handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_drain(file: *const FileHandle, timeout_ns: u64) -> c_int {
    // SAFETY: the caller's promise.
    guard(|| Ok(unsafe { object(file, "the file") }?.file.drain(Duration::from_nanos(timeout_ns))?))
}
