// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creates, lists, describes and deletes volumes.

use super::argument::{object, result_goes_to, text};
use super::client::ClientHandle;
use super::failure::{Failure, guard};
use crate::manager::{CreateOptions, VolumeInfo};
use gnstor_proto::vendor::NAME_BYTES;
use std::ffi::{c_char, c_int};
use std::mem::{offset_of, size_of};

/// `gn_create_options`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CCreateOptions {
    capacity_bytes: u64,
    replicas: u32,
    chunk_bytes: u32,
    reserved: [u64; 2],
}
const _: () = assert!(size_of::<CCreateOptions>() == 32);

/// `gn_volume_info`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CVolumeInfo {
    capacity_bytes: u64,
    factor: u64,
    vid: u32,
    generation: u32,
    replicas: u32,
    chunk_bytes: u32,
    owner: u32,
    writer: u32,
    lease_epoch: u32,
    any_reader: u32,
    reader_count: u32,
    reserved: u32,
    name: [u8; 72],
}
const _: () = assert!(size_of::<CVolumeInfo>() == 128 && offset_of!(CVolumeInfo, name) == 56);
const _: () = assert!(NAME_BYTES < 72);

impl From<&VolumeInfo> for CVolumeInfo {
    fn from(v: &VolumeInfo) -> Self {
        let mut name = [0; 72];
        let used = v.name.len().min(NAME_BYTES);
        name[..used].copy_from_slice(&v.name.as_bytes()[..used]);
        Self {
            capacity_bytes: v.capacity_bytes,
            factor: v.factor,
            vid: v.vid,
            generation: v.generation,
            replicas: v.replicas,
            chunk_bytes: v.chunk_bytes,
            owner: v.owner,
            writer: v.writer.unwrap_or(0),
            lease_epoch: v.lease_epoch,
            any_reader: v.any_reader.into(),
            reader_count: u32::try_from(v.readers.len()).unwrap_or(u32::MAX),
            reserved: 0,
            name,
        }
    }
}

/// `gn_volume_create`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_volume_create(
    client: *const ClientHandle,
    name: *const c_char,
    options: *const CCreateOptions,
    info: *mut CVolumeInfo,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (client, name, options) =
            unsafe { (object(client, "the client")?, text(name, "the name")?, *object(options, "options")?) };
        if options.reserved != [0; 2] {
            return Err(Failure::invalid("a reserved option is not zero"));
        }
        let CCreateOptions { capacity_bytes, replicas, chunk_bytes, .. } = options;
        let options = CreateOptions { capacity_bytes, replicas, chunk_bytes, ..CreateOptions::default() };
        let made = client.client.create(name, &options)?;
        if !info.is_null() {
            // SAFETY: not null, and the caller's promise.
            unsafe { info.write((&made).into()) };
        }
        Ok(())
    })
}

/// `gn_volume_list`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; `infos` for `capacity` descriptions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_volume_list(
    client: *const ClientHandle,
    infos: *mut CVolumeInfo,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    guard(|| {
        result_goes_to(count, "the count")?;
        if capacity != 0 {
            result_goes_to(infos, "the volumes")?;
        }
        // SAFETY: the caller's promise.
        let volumes = unsafe { object(client, "the client") }?.client.list()?;
        for (at, volume) in volumes.iter().take(capacity).enumerate() {
            // SAFETY: below `capacity`, and the caller's promise.
            unsafe { infos.add(at).write(volume.into()) };
        }
        // SAFETY: not null, and the caller's promise.
        unsafe { count.write(volumes.len()) };
        Ok(())
    })
}

/// `gn_volume_get`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_volume_get(
    client: *const ClientHandle,
    name: *const c_char,
    info: *mut CVolumeInfo,
) -> c_int {
    guard(|| {
        result_goes_to(info, "the volume")?;
        // SAFETY: the caller's promise.
        let (client, name) = unsafe { (object(client, "the client")?, text(name, "the name")?) };
        let volume = client.client.get(name)?;
        // SAFETY: not null, and the caller's promise.
        unsafe { info.write((&volume).into()) };
        Ok(())
    })
}

/// `gn_volume_delete`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_volume_delete(client: *const ClientHandle, name: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (client, name) = unsafe { (object(client, "the client")?, text(name, "the name")?) };
        Ok(client.client.delete(name)?)
    })
}
