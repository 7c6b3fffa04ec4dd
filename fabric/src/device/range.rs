// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A range of device addresses that gets its memory bit by bit, also while kernels run.

use super::cuda::Part;
use super::{Backend, Device, DeviceError};
use gnstor_base::region::HostRegion;
use std::sync::{Arc, Mutex};

/// A range of device addresses, of which a first part has memory, with any content. Other addresses may be
/// named, for example registered, but not accessed.
pub struct DeviceRange {
    device: Arc<Device>,
    address: u64,
    reserved: usize,
    backed: Mutex<Backed>,
    /// The range itself if the device is the CPU. The system adds pages when they are touched.
    _host: Option<Arc<HostRegion>>,
}

#[derive(Default)]
struct Backed {
    bytes: usize,
    parts: Vec<Part>,
}

impl std::fmt::Debug for DeviceRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceRange({:#x}, {} of {} bytes)", self.address, self.backed(), self.reserved)
    }
}

impl Device {
    /// Reserves `bytes` of addresses, rounded up to what the device deals in.
    ///
    /// # Errors
    /// [`DeviceError::Memory`].
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Result<DeviceRange, DeviceError> {
        let (address, reserved, host) = match &self.backend {
            Backend::Host(_) => {
                let region = HostRegion::alloc(bytes).map_err(|e| DeviceError::Memory {
                    bytes,
                    what: "host addresses",
                    cause: e.to_string(),
                })?;
                (region.address(), bytes, Some(region))
            }
            Backend::Cuda(gpu) => {
                let reserved = bytes.max(1).next_multiple_of(gpu.range_unit()?);
                (gpu.reserve(reserved)?, reserved, None)
            }
        };
        Ok(DeviceRange { device: Arc::clone(self), address, reserved, backed: Mutex::default(), _host: host })
    }
}

impl DeviceRange {
    /// First address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes that have memory.
    pub fn backed(&self) -> usize {
        self.backed.lock().expect("no panic while held").bytes
    }

    /// Maps memory to the first `bytes`, if less is mapped. Kernels may be running.
    ///
    /// # Errors
    /// [`DeviceError::Memory`]: there is no memory, or the range is shorter. The mapped part stays as it was.
    pub fn back(&self, bytes: usize) -> Result<(), DeviceError> {
        let mut backed = self.backed.lock().expect("no panic while held");
        if bytes <= backed.bytes {
            return Ok(());
        }
        if bytes > self.reserved {
            let cause = format!("the range has {} bytes", self.reserved);
            return Err(DeviceError::Memory { bytes, what: "device memory", cause });
        }
        let end = match &self.device.backend {
            Backend::Host(_) => bytes,
            Backend::Cuda(gpu) => {
                let end = bytes.next_multiple_of(gpu.range_unit()?);
                let part = gpu.back(self.address + backed.bytes as u64, end - backed.bytes)?;
                backed.parts.push(part);
                end
            }
        };
        backed.bytes = end;
        Ok(())
    }
}

impl Drop for DeviceRange {
    fn drop(&mut self) {
        if let Backend::Cuda(gpu) = &self.device.backend {
            let backed = self.backed.get_mut().expect("no panic while held");
            gpu.release(self.address, self.reserved, &backed.parts);
        }
    }
}
