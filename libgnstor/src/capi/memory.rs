// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of the device.

use super::argument::{bytes_in, bytes_out, hand_out, object, result_goes_to, share, take_back};
use super::failure::{ERANGE, Failure, guard};
use super::node::NodeHandle;
use gnstor_fabric::device::DeviceMem;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// `gn_memory`.
#[derive(Debug)]
pub struct MemoryHandle {
    memory: DeviceMem,
    _node: Arc<NodeHandle>,
}

fn within(memory: &DeviceMem, offset: usize, bytes: usize) -> Result<(), Failure> {
    let len = memory.len();
    match offset.checked_add(bytes) {
        Some(end) if end <= len => Ok(()),
        _ => Err(Failure {
            errno: ERANGE,
            message: format!("{bytes} bytes at {offset} leave the memory's {len} bytes"),
        }),
    }
}

/// `gn_memory_alloc`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_memory_alloc(
    node: *const NodeHandle,
    bytes: usize,
    memory: *mut *const MemoryHandle,
) -> c_int {
    guard(|| {
        result_goes_to(memory, "the memory")?;
        // SAFETY: the caller's promise.
        let node = unsafe { share(node, "the node") }?;
        if bytes == 0 || isize::try_from(bytes).is_err() {
            return Err(Failure::invalid(format!("{bytes} bytes of memory cannot be had")));
        }
        let made = node.node.device().alloc(bytes)?;
        // SAFETY: not null, and the caller's promise.
        unsafe { hand_out(MemoryHandle { memory: made, _node: node }, memory) };
        Ok(())
    })
}

/// `gn_memory_free`.
///
/// # Safety
/// As gnstor.h says: the handle is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_memory_free(memory: *const MemoryHandle) {
    // SAFETY: the caller's promise.
    unsafe { take_back(memory) }
}

/// `gn_memory_address`.
///
/// # Safety
/// As gnstor.h says: the handle is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_memory_address(memory: *const MemoryHandle) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { memory.as_ref() }.map_or(0, |m| m.memory.address())
}

/// `gn_memory_write`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; `data` for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_memory_write(
    memory: *const MemoryHandle,
    offset: usize,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (memory, data) = unsafe { (object(memory, "the memory")?, bytes_in(data, bytes)?) };
        within(&memory.memory, offset, bytes)?;
        Ok(memory.memory.write(offset, data)?)
    })
}

/// `gn_memory_read`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; `data` for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_memory_read(
    memory: *const MemoryHandle,
    offset: usize,
    data: *mut c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (memory, data) = unsafe { (object(memory, "the memory")?, bytes_out(data, bytes)?) };
        within(&memory.memory, offset, bytes)?;
        Ok(memory.memory.read(offset, data)?)
    })
}
