// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address ranges that get their memory later, through the driver's virtual memory calls.

use super::{CudaDevice, named};
use crate::device::DeviceError;
use cudarc::driver::{result, sys};

/// Memory behind a part of a range.
pub(in crate::device) struct Part {
    address: u64,
    bytes: usize,
    handle: sys::CUmemGenericAllocationHandle,
}

impl CudaDevice {
    fn location(&self) -> sys::CUmemLocation {
        sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.device }
    }

    fn properties(&self) -> sys::CUmemAllocationProp {
        // SAFETY: plain data, of which zero is what says "nothing special".
        let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = self.location();
        properties
    }

    /// Ranges and their parts are multiples of this number of bytes.
    pub(in crate::device) fn range_unit(&self) -> Result<usize, DeviceError> {
        self.enter()?;
        let mut unit = 0;
        let properties = self.properties();
        let smallest = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: a place for the answer, and properties that live through the call.
        unsafe { sys::cuMemGetAllocationGranularity(&raw mut unit, &raw const properties, smallest) }
            .result()
            .map_err(named("cuMemGetAllocationGranularity"))?;
        Ok(unit.max(1))
    }

    pub(in crate::device) fn reserve(&self, bytes: usize) -> Result<u64, DeviceError> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: a place for the answer.
        unsafe { sys::cuMemAddressReserve(&raw mut address, bytes, 0, 0, 0) }
            .result()
            .map_err(|e| DeviceError::Memory { bytes, what: "GPU addresses", cause: e.to_string() })?;
        Ok(address)
    }

    /// Maps memory, with any content, to `bytes` of a reserved range. Kernels may be running.
    pub(in crate::device) fn back(&self, address: u64, bytes: usize) -> Result<Part, DeviceError> {
        self.enter()?;
        let failed =
            |e: result::DriverError| DeviceError::Memory { bytes, what: "GPU memory", cause: e.to_string() };
        let (mut handle, properties) = (0, self.properties());
        // SAFETY: a place for the answer, and properties that live through the call.
        unsafe { sys::cuMemCreate(&raw mut handle, bytes, &raw const properties, 0) }
            .result()
            .map_err(failed)?;
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = sys::CUmemAccessDesc { location: self.location(), flags };
        // SAFETY: the range is reserved and has nothing behind these bytes (the caller's); the memory above
        // is as long.
        let mapped = unsafe { sys::cuMemMap(address, bytes, 0, handle, 0) }.result();
        if let Err(e) = mapped {
            // SAFETY: made above and mapped nowhere.
            let _ = unsafe { sys::cuMemRelease(handle) };
            return Err(failed(e));
        }
        let part = Part { address, bytes, handle };
        // SAFETY: mapped above. Not zeroed: a memset would want a multiprocessor, and kernels may have them
        // all.
        let ready = unsafe { sys::cuMemSetAccess(address, bytes, &raw const access, 1) }.result();
        if let Err(e) = ready {
            self.unback(&part);
            return Err(failed(e));
        }
        Ok(part)
    }

    fn unback(&self, part: &Part) {
        // SAFETY: mapped by `back` and not unmapped since; nothing uses it any more (the owner's drop).
        let gone = unsafe {
            let unmapped = sys::cuMemUnmap(part.address, part.bytes).result();
            unmapped.and(sys::cuMemRelease(part.handle).result())
        };
        if let Err(e) = gone {
            tracing::warn!("cuMemUnmap: {e}");
        }
    }

    pub(in crate::device) fn release(&self, address: u64, bytes: usize, parts: &[Part]) {
        if self.enter().is_err() {
            return;
        }
        parts.iter().for_each(|part| self.unback(part));
        // SAFETY: reserved by `reserve`, with nothing behind it any more.
        let freed = unsafe { sys::cuMemAddressFree(address, bytes) }.result();
        if let Err(e) = freed {
            tracing::warn!("cuMemAddressFree: {e}");
        }
    }
}
