// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists of copies between a piece of mapped host memory and device memory, also while kernels are resident.
//! The baseline `basic` moves its data so (decision 32).
//!
//! ```text
//!   segments -> neighbours together -> the driver's batch of copies (cuMemcpyBatchAsync) -> its stream ends
//!                                  '-> parts of 16 KiB, one launch of gn_gather -----------> its stream ends
//! ```
//! Each copier has a stream of its own: nothing waits for a resident kernel.

use gnstor_base::region::HostRegion;
use gnstor_fabric::device::{DeviceError, Launch, Segment, SideStream, Way};
use libgnstor::{Device, DeviceMem, Kernel};
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
    Kernel { name: "gn_gather", image: include_bytes!("../cuda/gather.fatbin"), host: gn_gather }
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

/// The part that copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum CopyBy {
    /// One call of the driver copies all segments: cuMemcpyBatchAsync.
    #[default]
    Batch,
    /// One launch of a kernel copies all segments.
    Kernel,
}

/// Copies lists of segments between one piece of host memory and device memory. Offsets and lengths are
/// multiples of 16.
pub(super) struct Copier {
    device: Arc<Device>,
    host: Arc<HostRegion>,
    host_at: u64,
    /// Segments of a list at most.
    most: usize,
    /// List of segments for the kernel, if a kernel copies.
    table: Option<Table>,
    stream: SideStream,
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
    pub(super) fn new(
        device: &Arc<Device>,
        host: &Arc<HostRegion>,
        by: CopyBy,
        most: usize,
    ) -> Result<Self, DeviceError> {
        static WARNED: Once = Once::new();
        let (mut by, host_at, stream) = (by, device.map(host)?, SideStream::new(device)?);
        if by == CopyBy::Batch && !stream.has_batch() {
            let instead = "a kernel copies in the place of cuMemcpyBatchAsync";
            WARNED.call_once(|| tracing::warn!("the CUDA driver is older than 13.0: {instead}"));
            by = CopyBy::Kernel;
        }
        let (device, host) = (Arc::clone(device), Arc::clone(host));
        let mut copier = Self { device, host, host_at, most, table: None, stream };
        if by == CopyBy::Kernel {
            copier.table = Some(Table::new(&copier.device, copier.host.len(), most)?);
        }
        Ok(copier)
    }

    /// The part that copies. It may be another one than the caller wanted.
    pub(super) fn by(&self) -> CopyBy {
        if self.table.is_some() { CopyBy::Kernel } else { CopyBy::Batch }
    }

    /// The host memory.
    pub(super) fn host(&self) -> &Arc<HostRegion> {
        &self.host
    }

    /// Copies from the host memory to `memory`. All data is there when it returns. Segments must not overlap.
    ///
    /// # Errors
    /// [`DeviceError::Copy`]: the list is not valid, and nothing was copied. [`DeviceError::Timeout`]; driver
    /// errors.
    pub(super) fn copy_to_device(
        &mut self,
        memory: &DeviceMem,
        segments: &[Segment],
    ) -> Result<(), DeviceError> {
        self.copy(memory, segments, Way::ToDevice)
    }

    /// Copies from `memory` to the host memory. All data is there when it returns. Segments must not overlap.
    ///
    /// # Errors
    /// As [`Self::copy_to_device`].
    pub(super) fn copy_to_host(
        &mut self,
        memory: &DeviceMem,
        segments: &[Segment],
    ) -> Result<(), DeviceError> {
        self.copy(memory, segments, Way::ToHost)
    }

    fn copy(&mut self, memory: &DeviceMem, segments: &[Segment], way: Way) -> Result<(), DeviceError> {
        self.check(memory, segments)?;
        let runs = runs(segments);
        match &self.table {
            None => self.stream.copy(&self.host, memory, &runs, way),
            Some(_) if runs.is_empty() => Ok(()),
            Some(table) => {
                let parts = parts(self.host_at, memory.address(), &runs, way);
                launches(table, &parts, self.device.kind() == "cuda")?
                    .iter()
                    .try_for_each(|launch| self.stream.run(launch, LIMIT))
            }
        }
    }

    fn check(&self, memory: &DeviceMem, segments: &[Segment]) -> Result<(), DeviceError> {
        let refuse = |cause: String| Err(DeviceError::Copy { cause });
        if !Arc::ptr_eq(&self.device, memory.device()) {
            return refuse("the memory is another device's".into());
        }
        if self.stream.is_stuck() {
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
}

/// The parts of these segments, for the kernel.
fn parts(host_at: u64, device_at: u64, runs: &[Segment], way: Way) -> Vec<Part> {
    let mut parts = Vec::new();
    for run in runs {
        let (host, device) = (host_at + run.host, device_at + run.device);
        let (from, to) = match way {
            Way::ToDevice => (host, device),
            Way::ToHost => (device, host),
        };
        for at in (0..run.bytes).step_by(length(PART_BYTES)) {
            let bytes = PART_BYTES.min(run.bytes - at);
            parts.push(Part { to: to + at, from: from + at, bytes, reserved: 0 });
        }
    }
    parts
}

/// Writes the parts into the table. Returns the launches that copy them: one on a GPU.
fn launches(table: &Table, parts: &[Part], is_gpu: bool) -> Result<Vec<Launch>, DeviceError> {
    if parts.len() > table.parts {
        return Err(DeviceError::Copy {
            cause: "the segments overlap: they are longer than the host memory".into(),
        });
    }
    // The launch comes after this write, so the kernel sees it.
    table.memory.write(0, parts.as_bytes());
    let (blocks, threads) = if is_gpu { (parts.len(), THREADS) } else { (BLOCKS_HOST, THREADS_HOST) };
    let launch = |first: usize| Launch {
        kernel: kernel(),
        blocks: u32::try_from(blocks.min(parts.len() - first))
            .expect("a table of so many parts has no memory"),
        threads,
        smem_bytes: 0,
        args: table.address + (first * size_of::<Part>()) as u64,
    };
    Ok((0..parts.len()).step_by(blocks).map(launch).collect())
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
