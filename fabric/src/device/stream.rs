// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stream of its own for copies and short kernels. What runs in it waits for no resident kernel.

use super::cuda::{CudaDevice, Stream};
use super::{Backend, Device, DeviceError, DeviceMem, Launch};
use gnstor_base::region::HostRegion;
use std::sync::Arc;
use std::time::Duration;

/// A range to copy, with its offsets in host and device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Offset in the host memory, bytes.
    pub host: u64,
    /// Offset in the device memory, bytes.
    pub device: u64,
    /// Length, bytes.
    pub bytes: u64,
}

/// Where copies go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From host memory to device memory.
    ToDevice,
    /// From device memory to host memory.
    ToHost,
}

/// A stream beside resident kernels. On the CPU the calling thread does its work.
pub struct SideStream {
    device: Arc<Device>,
    /// `None` on the CPU.
    stream: Option<Stream>,
    /// A kernel did not end in time, and may still run.
    stuck: bool,
}

impl std::fmt::Debug for SideStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SideStream({})", self.device.name())
    }
}

impl SideStream {
    /// A stream of this device.
    ///
    /// # Errors
    /// Driver errors.
    pub fn new(device: &Arc<Device>) -> Result<Self, DeviceError> {
        let stream = match &device.backend {
            Backend::Host(_) => None,
            Backend::Cuda(gpu) => Some(gpu.stream()?),
        };
        Ok(Self { device: Arc::clone(device), stream, stuck: false })
    }

    /// Whether [`Self::copy`] can be used: CUDA drivers before 13.0 have no batch of copies.
    pub fn has_batch(&self) -> bool {
        self.stream.is_none() || CudaDevice::has_batch()
    }

    /// Whether a kernel of an earlier [`Self::run`] did not end in time. It may still read and write memory.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Copies all segments between `host`, which it maps, and `memory`: on a GPU by one call of the driver
    /// (`cuMemcpyBatchAsync`). All data is there when it returns. Segments must not overlap.
    ///
    /// # Errors
    /// Driver errors.
    ///
    /// # Panics
    /// If a segment is empty or leaves a memory, or if the memory is another device's.
    pub fn copy(
        &self,
        host: &Arc<HostRegion>,
        memory: &DeviceMem,
        segments: &[Segment],
        way: Way,
    ) -> Result<(), DeviceError> {
        assert!(Arc::ptr_eq(&self.device, &memory.device), "the memory is another device's");
        let inside =
            |at: u64, bytes: u64, len: usize| at.checked_add(bytes).is_some_and(|end| end <= len as u64);
        for Segment { host: from, device, bytes } in segments {
            let fits = inside(*from, *bytes, host.len()) && inside(*device, *bytes, memory.len());
            assert!(*bytes != 0 && fits, "a segment is empty or leaves its memory");
        }
        if segments.is_empty() {
            return Ok(());
        }
        let length = |bytes: u64| usize::try_from(bytes).expect("no longer than memory");
        if let (Backend::Cuda(gpu), Some(stream)) = (&self.device.backend, &self.stream) {
            let host_at = gpu.map(host)?;
            let ends = segments.iter().map(|of| (host_at + of.host, memory.address + of.device));
            let (mut here, mut there): (Vec<u64>, Vec<u64>) = ends.unzip();
            let mut sizes: Vec<usize> = segments.iter().map(|of| length(of.bytes)).collect();
            return match way {
                Way::ToDevice => gpu.copy_batch(stream, &mut there, &mut here, &mut sizes),
                Way::ToHost => gpu.copy_batch(stream, &mut here, &mut there, &mut sizes),
            };
        }
        let there = memory.host.as_ref().expect("host memory has a region");
        for of in segments {
            match way {
                Way::ToDevice => there.copy_from(of.device, host, of.host, length(of.bytes)),
                Way::ToHost => host.copy_from(of.host, there, of.device, length(of.bytes)),
            }
        }
        Ok(())
    }

    /// Launches a kernel, loaded before ([`Device::preload`]), and waits for its end. On a GPU the thread
    /// does not sleep meanwhile.
    ///
    /// # Errors
    /// [`DeviceError::Timeout`] if it does not end within `limit`, as when resident kernels leave no room for
    /// it: then the stream is stuck. [`DeviceError::Kernel`]; driver errors.
    ///
    /// # Panics
    /// If the stream is stuck.
    pub fn run(&mut self, launch: &Launch, limit: Duration) -> Result<(), DeviceError> {
        assert!(!self.stuck, "a kernel of this stream has not ended");
        let ended = match (&self.device.backend, &self.stream) {
            (Backend::Cuda(gpu), Some(stream)) => gpu.launch_and_wait(stream, launch, limit),
            (Backend::Host(cpu), _) => cpu.run_alone(launch, limit),
            (Backend::Cuda(_), None) => unreachable!("a GPU's stream is there"),
        };
        self.stuck = matches!(ended, Err(DeviceError::Timeout { .. }));
        ended
    }
}

impl Drop for SideStream {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        if self.stuck {
            // Its kernel may begin at any time: stream, device and the host memory that the device has mapped
            // are there for ever.
            std::mem::forget((stream, Arc::clone(&self.device)));
        } else if let Backend::Cuda(gpu) = &self.device.backend {
            gpu.end_stream(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Choice;
    use gnstor_base::testing::deadline;

    fn bed() -> (SideStream, Arc<HostRegion>, DeviceMem) {
        let device = Device::open(Choice::Host).expect("the CPU");
        let (host, memory) = (HostRegion::alloc(4096).expect("memory"), device.alloc(4096).expect("memory"));
        host.write(0, &[1; 4096]);
        (SideStream::new(&device).expect("the CPU"), host, memory)
    }

    #[test]
    fn segments_are_copied_both_ways_and_nothing_else() {
        let _deadline = deadline();
        let (stream, host, memory) = bed();
        let segments =
            [Segment { host: 0, device: 7, bytes: 3 }, Segment { host: 4000, device: 4090, bytes: 6 }];
        stream.copy(&host, &memory, &segments, Way::ToDevice).expect("the CPU");
        let mut wanted = [0; 4096];
        wanted[7..10].fill(1);
        wanted[4090..].fill(1);
        let mut found = [0; 4096];
        memory.read(0, &mut found).expect("it is inside");
        assert_eq!(found, wanted);
        stream
            .copy(&host, &memory, &[Segment { host: 8, device: 6, bytes: 2 }], Way::ToHost)
            .expect("the CPU");
        let mut back = [0; 4];
        host.read(7, &mut back);
        assert_eq!(back, [1, 0, 1, 1]);
    }

    #[test]
    fn a_segment_that_leaves_a_memory_or_is_empty_stops_the_program() {
        let _deadline = deadline();
        for (host_at, device_at, bytes) in [(4095, 0, 2), (0, 4095, 2), (u64::MAX, 0, 1), (0, 0, 0)] {
            let (stream, host, memory) = bed();
            let segment = Segment { host: host_at, device: device_at, bytes };
            let copied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                stream.copy(&host, &memory, &[segment], Way::ToDevice)
            }));
            assert!(copied.is_err(), "{segment:?}");
        }
    }
}
