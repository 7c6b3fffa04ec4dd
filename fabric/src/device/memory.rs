// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that device code uses.

use super::{Backend, Device, DeviceError};
use gnstor_base::region::HostRegion;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Memory that device code uses: GPU memory, or host memory for the CPU execution. Zeroed; freed on drop.
#[derive(Debug)]
pub struct DeviceMem {
    pub(super) device: Arc<Device>,
    pub(super) address: u64,
    pub(super) bytes: usize,
    /// The memory itself, if the device is the CPU.
    pub(super) host: Option<Arc<HostRegion>>,
}

impl DeviceMem {
    /// Address in device code.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// Driver errors.
    ///
    /// # Panics
    /// If the range leaves the memory.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        assert!(offset + data.len() <= self.bytes, "a write leaves the device memory");
        match (&self.device.backend, &self.host) {
            (Backend::Cuda(gpu), _) => gpu.write(self.address + offset as u64, data),
            (Backend::Host(_), Some(region)) => {
                region.write(offset as u64, data);
                Ok(())
            }
            (Backend::Host(_), None) => unreachable!("host memory has a region"),
        }
    }

    /// Stores a word that running kernels load with acquire. A kernel that sees the word sees all earlier
    /// writes, too.
    ///
    /// # Errors
    /// Driver errors.
    ///
    /// # Panics
    /// If the word leaves the memory, or `offset` is not a multiple of eight.
    pub fn publish(&self, offset: usize, word: u64) -> Result<(), DeviceError> {
        assert!(offset.is_multiple_of(8), "a word has a multiple of eight for its offset");
        match (&self.device.backend, &self.host) {
            // pairs with ld_acquire_sys of the word
            (Backend::Host(_), Some(region)) => {
                region.words64(offset as u64, 1)[0].store(word, Ordering::Release);
                // Makes earlier writes visible before later ones. It pairs with the reader's ld_acquire_sys
                // of a later one.
                fence(Ordering::Release);
                Ok(())
            }
            // A copy ends before the next one begins.
            _ => self.write(offset, &word.to_le_bytes()),
        }
    }

    /// The device that has the memory.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// Driver errors.
    ///
    /// # Panics
    /// If the range leaves the memory.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        assert!(offset + out.len() <= self.bytes, "a read leaves the device memory");
        match (&self.device.backend, &self.host) {
            (Backend::Cuda(gpu), _) => gpu.read(self.address + offset as u64, out),
            (Backend::Host(_), Some(region)) => {
                region.read(offset as u64, out);
                Ok(())
            }
            (Backend::Host(_), None) => unreachable!("host memory has a region"),
        }
    }
}

impl Drop for DeviceMem {
    fn drop(&mut self) {
        if let Backend::Cuda(gpu) = &self.device.backend {
            gpu.free(self.address);
        }
    }
}
