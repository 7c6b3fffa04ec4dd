// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies in streams of their own: the driver's batch of copies, and a kernel that is launched and waited
//! for.

use super::{CudaDevice, named};
use crate::device::{DeviceError, Launch};
use cudarc::driver::{result, sys};
use std::time::{Duration, Instant};

/// A stream for copies only.
pub(in crate::device) struct Stream(sys::CUstream);

// SAFETY: a handle, which may be used from any thread that has made the context current, as every call here
// does first.
unsafe impl Send for Stream {}

/// First driver whose batched copy has the arguments that the bindings know. The call of driver 12.8 has one
/// more argument.
const BATCH_VERSION: i32 = 13_000;

impl CudaDevice {
    /// Whether the driver has the batch of copies. Without it the call would end the process.
    pub(in crate::device) fn has_batch() -> bool {
        let mut version = 0;
        // SAFETY: a place for the answer; the library is there, since a device was opened.
        let asked = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
        asked.is_ok() && version >= BATCH_VERSION
    }

    pub(in crate::device) fn stream(&self) -> Result<Stream, DeviceError> {
        self.enter()?;
        // The stream is not ordered with the legacy stream, so it waits for no resident kernel.
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        stream.map(Stream).map_err(named("cuStreamCreate"))
    }

    pub(in crate::device) fn end_stream(&self, stream: Stream) {
        if self.enter().is_ok() {
            // SAFETY: made by `stream`, ended once. What is still in it ends before its resources do.
            let _ = unsafe { result::stream::destroy(stream.0) };
        }
    }

    /// Copies `sizes[i]` bytes from `from[i]` to `to[i]`, all in one call, and waits for their end. Copy
    /// engines do it, which wait for no kernel. So the copy ends, or the context is broken and the driver
    /// says so. There must be at least one copy, and no empty one.
    pub(in crate::device) fn copy_batch(
        &self,
        stream: &Stream,
        to: &mut [u64],
        from: &mut [u64],
        sizes: &mut [usize],
    ) -> Result<(), DeviceError> {
        assert!(to.len() == from.len() && to.len() == sizes.len(), "an address for every size");
        self.enter()?;
        // Hints where memory lies are for managed memory only.
        let nowhere =
            sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID, id: 0 };
        let mut attributes = sys::CUmemcpyAttributes {
            srcAccessOrder: sys::CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            srcLocHint: nowhere,
            dstLocHint: nowhere,
            flags: sys::CUmemcpyFlags::CU_MEMCPY_FLAG_DEFAULT as u32,
        };
        // These attributes apply to all copies from the first one on.
        let mut first = 0;
        // SAFETY: the caller has checked every range. The arrays are of one length and live through the
        // call, which copies them. The memories stay until the stream is done.
        let (begun, ended) = unsafe {
            let begun = sys::cuMemcpyBatchAsync_v2(
                to.as_mut_ptr(),
                from.as_mut_ptr(),
                sizes.as_mut_ptr(),
                to.len(),
                &raw mut attributes,
                &raw mut first,
                1,
                stream.0,
            )
            .result();
            // This is necessary after a failure, too: some copies may be in progress.
            (begun, result::stream::synchronize(stream.0))
        };
        begun.map_err(named("cuMemcpyBatchAsync"))?;
        ended.map_err(named("cuStreamSynchronize"))
    }

    /// Launches a kernel, loaded before, and waits for its end without sleeping.
    #[expect(clippy::disallowed_methods, reason = "waits for a GPU in real time; nothing here is modelled")]
    pub(in crate::device) fn launch_and_wait(
        &self,
        stream: &Stream,
        launch: &Launch,
        limit: Duration,
    ) -> Result<(), DeviceError> {
        self.enter()?;
        let start = Instant::now();
        self.launch(launch, stream.0)?;
        while !self.idle(stream.0, launch.kernel.name)? {
            if start.elapsed() > limit {
                let what =
                    format!("kernel {} did not end (is the GPU full of other work?)", launch.kernel.name);
                return Err(DeviceError::Timeout { what, after: limit });
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}
