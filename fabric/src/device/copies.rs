// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists of copies between a piece of mapped host memory and device memory, also while kernels are resident.
//!
//! ```text
//!   segments -> neighbours together -> the driver's batch of copies (cuMemcpyBatchAsync) -> its stream ends
//!                                  '-> parts of 16 KiB, one launch of gn_gather -----------> its stream ends
//! ```
//! Each copier has a stream of its own: nothing waits for a resident kernel.

use super::cuda::{CudaDevice, Stream};
use super::{Backend, Device, DeviceError, DeviceMem, Kernel, Launch};
use gnstor_base::region::HostRegion;
use std::ffi::c_void;
use std::sync::{Arc, Once};
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

#[expect(unsafe_code, reason = "the kernel's entry for the CPU execution")]
mod entry {
    unsafe extern "C" {
        pub(super) fn gn_gather(parts: *mut std::ffi::c_void);
    }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn gn_gather(parts: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument, a table of parts that outlives the
    // launch.
    unsafe { entry::gn_gather(parts) }
}

fn kernel() -> Kernel {
    Kernel { name: "gn_gather", image: include_bytes!("../../cuda/gather.fatbin"), host: gn_gather }
}

/// Mirror of `gn::gather::part`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct Part {
    to: u64,
    from: u64,
    bytes: u64,
    reserved: u64,
}
const _: () = assert!(size_of::<Part>() == 32);

/// `PART_BYTES` and `THREADS` of gather.cu.
const PART_BYTES: u64 = 16 << 10;
const THREADS: u32 = 256;
/// On the CPU a warp a block, and few blocks a run: every lane has a stack.
const THREADS_HOST: u32 = 32;
const BLOCKS_HOST: usize = 16;
/// Bytes that a thread copies at once. Every offset and length is a multiple of this number.
const ALIGN: u64 = 16;
/// Resident kernels may leave no room for another kernel. Their own deadlines are shorter than this one.
const LIMIT: Duration = Duration::from_secs(30);

/// A range to copy, with its offsets in host and device memory. All three are multiples of 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Offset in the host memory.
    pub host: u64,
    /// Offset in the device memory.
    pub device: u64,
    /// Length.
    pub bytes: u64,
}

/// The part that copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CopyBy {
    /// One call of the driver copies all segments: cuMemcpyBatchAsync.
    #[default]
    Batch,
    /// One launch of a kernel copies all segments.
    Kernel,
}

/// Copies lists of segments between one piece of host memory and device memory.
pub struct Copier {
    device: Arc<Device>,
    host: Arc<HostRegion>,
    host_at: u64,
    /// Segments of a list at most.
    most: usize,
    /// List of segments for the kernel, if a kernel copies.
    table: Option<Table>,
    /// `None` on the CPU.
    stream: Option<Stream>,
    /// Whether a kernel did not end, and so may still read the table.
    stuck: bool,
}

/// Mapped memory in which the kernel reads the list of segments.
struct Table {
    memory: Arc<HostRegion>,
    address: u64,
    parts: usize,
}

impl std::fmt::Debug for Copier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Copier({:?}, up to {} segments of {} bytes)", self.by(), self.most, self.host.len())
    }
}

impl Copier {
    /// A copier for lists of up to `most` segments of `host`, which it maps. Before kernels are resident: it
    /// loads its own. Where the driver has no batch of copies, a kernel copies.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn new(
        device: &Arc<Device>,
        host: &Arc<HostRegion>,
        by: CopyBy,
        most: usize,
    ) -> Result<Self, DeviceError> {
        static TOLD: Once = Once::new();
        let (mut by, host_at) = (by, device.map(host)?);
        let stream = match &device.backend {
            Backend::Host(_) => None,
            Backend::Cuda(gpu) => {
                if by == CopyBy::Batch && !CudaDevice::has_batch() {
                    let instead = "a kernel copies in the place of cuMemcpyBatchAsync";
                    TOLD.call_once(|| tracing::warn!("the CUDA driver is older than 13.0: {instead}"));
                    by = CopyBy::Kernel;
                }
                Some(gpu.stream()?)
            }
        };
        let mut copier = Self {
            device: Arc::clone(device),
            host: Arc::clone(host),
            host_at,
            most,
            table: None,
            stream,
            stuck: false,
        };
        if by == CopyBy::Kernel {
            copier.table = Some(Table::new(device, host.len(), most)?);
        }
        Ok(copier)
    }

    /// The part that copies. It may be another one than the caller wanted.
    pub fn by(&self) -> CopyBy {
        if self.table.is_some() { CopyBy::Kernel } else { CopyBy::Batch }
    }

    /// The host memory.
    pub fn host(&self) -> &Arc<HostRegion> {
        &self.host
    }

    /// Copies from the host memory to `memory`. All data is there when it returns. Segments must not overlap.
    ///
    /// # Errors
    /// [`DeviceError::Copy`]: the list is not valid, and nothing was copied. [`DeviceError::Timeout`]; driver
    /// errors.
    pub fn to_device(&mut self, memory: &DeviceMem, segments: &[Segment]) -> Result<(), DeviceError> {
        self.copy(memory, segments, true)
    }

    /// Copies from `memory` to the host memory. All data is there when it returns. Segments must not overlap.
    ///
    /// # Errors
    /// As [`Self::to_device`].
    pub fn to_host(&mut self, memory: &DeviceMem, segments: &[Segment]) -> Result<(), DeviceError> {
        self.copy(memory, segments, false)
    }

    fn copy(&mut self, memory: &DeviceMem, segments: &[Segment], to_device: bool) -> Result<(), DeviceError> {
        self.check(memory, segments)?;
        let runs = runs(segments);
        if runs.is_empty() {
            return Ok(());
        }
        let Some(table) = &self.table else { return self.by_batch(memory, &runs, to_device) };
        let copied = self.by_kernel(table, memory, &runs, to_device);
        self.stuck = matches!(copied, Err(DeviceError::Timeout { .. }));
        copied
    }

    fn check(&self, memory: &DeviceMem, segments: &[Segment]) -> Result<(), DeviceError> {
        let refuse = |cause: String| Err(DeviceError::Copy { cause });
        if !Arc::ptr_eq(&self.device, &memory.device) {
            return refuse("the memory is another device's".into());
        }
        if self.stuck {
            return refuse("the copy before it has not ended".into());
        }
        if segments.len() > self.most {
            return refuse(format!("{} segments are more than {}", segments.len(), self.most));
        }
        for segment in segments {
            let Segment { host, device, bytes } = *segment;
            if [host, device, bytes].iter().any(|number| !number.is_multiple_of(ALIGN)) {
                return refuse(format!("{segment:?} is not made of multiples of {ALIGN}"));
            }
            let inside = |at: u64, len: usize| at.checked_add(bytes).is_some_and(|end| end <= len as u64);
            for (what, at, len) in [("host", host, self.host.len()), ("device", device, memory.len())] {
                if !inside(at, len) {
                    return refuse(format!("{segment:?} leaves {len} bytes of {what} memory"));
                }
            }
        }
        Ok(())
    }

    /// Source and destination addresses of a run.
    fn ends(&self, memory: &DeviceMem, run: &Segment, to_device: bool) -> (u64, u64) {
        let (host, device) = (self.host_at + run.host, memory.address + run.device);
        if to_device { (host, device) } else { (device, host) }
    }

    fn by_batch(&self, memory: &DeviceMem, runs: &[Segment], to_device: bool) -> Result<(), DeviceError> {
        if let (Backend::Cuda(gpu), Some(stream)) = (&self.device.backend, &self.stream) {
            let ends = runs.iter().map(|run| self.ends(memory, run, to_device));
            let (mut from, mut to): (Vec<u64>, Vec<u64>) = ends.unzip();
            let mut sizes: Vec<usize> = runs.iter().map(|run| length(run.bytes)).collect();
            return gpu.copy_batch(stream, &mut to, &mut from, &mut sizes);
        }
        let there = memory.host.as_ref().expect("host memory has a region");
        for run in runs {
            let (bytes, host) = (length(run.bytes), &self.host);
            if to_device {
                there.copy_from(run.device, host, run.host, bytes);
            } else {
                host.copy_from(run.host, there, run.device, bytes);
            }
        }
        Ok(())
    }

    fn by_kernel(
        &self,
        table: &Table,
        memory: &DeviceMem,
        runs: &[Segment],
        to_device: bool,
    ) -> Result<(), DeviceError> {
        let mut parts = Vec::new();
        for run in runs {
            let (from, to) = self.ends(memory, run, to_device);
            for at in (0..run.bytes).step_by(length(PART_BYTES)) {
                let bytes = PART_BYTES.min(run.bytes - at);
                parts.push(Part { to: to + at, from: from + at, bytes, reserved: 0 });
            }
        }
        if parts.len() > table.parts {
            return Err(DeviceError::Copy {
                cause: "the segments overlap: they are longer than the host memory".into(),
            });
        }
        // The launch comes after this write, so the kernel sees it.
        table.memory.write(0, parts.as_bytes());
        let launch = |first: usize, count: usize, threads| Launch {
            kernel: kernel(),
            blocks: u32::try_from(count).expect("a table of so many parts has no memory"),
            threads,
            smem_bytes: 0,
            args: table.address + (first * size_of::<Part>()) as u64,
        };
        match (&self.device.backend, &self.stream) {
            (Backend::Cuda(gpu), Some(stream)) => {
                gpu.launch_and_wait(stream, &launch(0, parts.len(), THREADS), LIMIT)
            }
            (Backend::Host(cpu), _) => (0..parts.len()).step_by(BLOCKS_HOST).try_for_each(|first| {
                let count = BLOCKS_HOST.min(parts.len() - first);
                cpu.run_alone(&launch(first, count, THREADS_HOST), LIMIT)
            }),
            (Backend::Cuda(_), None) => unreachable!("a GPU's copier has a stream"),
        }
    }
}

impl Table {
    /// Room for `segments` that are as long as the host memory together; loads the kernel.
    fn new(device: &Arc<Device>, host_bytes: usize, segments: usize) -> Result<Self, DeviceError> {
        device.preload(&[kernel()])?;
        // The last part of each may be shorter.
        let parts = host_bytes / length(PART_BYTES) + segments;
        let bytes = parts * size_of::<Part>();
        let memory = HostRegion::alloc(bytes).map_err(|e| DeviceError::Memory {
            bytes,
            what: "host memory for a list of copies",
            cause: e.to_string(),
        })?;
        Ok(Self { address: device.map(&memory)?, memory, parts })
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        if self.stuck {
            // The copy's kernel may begin at any time: stream, device and the host memory that it has mapped
            // are there for ever.
            std::mem::forget((stream, Arc::clone(&self.device)));
        } else if let Backend::Cuda(gpu) = &self.device.backend {
            gpu.end_stream(stream);
        }
    }
}

/// Joins segments that follow each other in both memories, and drops empty ones.
fn runs(segments: &[Segment]) -> Vec<Segment> {
    let mut runs: Vec<Segment> = Vec::with_capacity(segments.len());
    for segment in segments.iter().filter(|segment| segment.bytes != 0) {
        let follows = |last: &&mut Segment| {
            (last.host + last.bytes, last.device + last.bytes) == (segment.host, segment.device)
        };
        match runs.last_mut().filter(follows) {
            Some(last) => last.bytes += segment.bytes,
            None => runs.push(*segment),
        }
    }
    runs
}

/// Converts a length of memory in this process.
fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("64-bit host")
}

#[cfg(test)]
mod tests;
