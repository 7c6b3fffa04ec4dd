// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device that runs device code: a CUDA GPU, or the CPU. The CPU compiles the same headers and runs their
//! lanes as fibers.
//!
//! A launch always has two parts: the HCA's agent, which is resident only during the launch, and the client's
//! kernel. The agent reports that it runs before the client starts. It is told to end when the client has
//! ended.

mod cuda;
mod host;
mod memory;
mod range;
mod stream;

use gnstor_base::region::HostRegion;
pub use memory::DeviceMem;
pub use range::DeviceRange;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
pub use stream::{Segment, SideStream, Way};

/// The device to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// A GPU if there is one, else the CPU.
    #[default]
    Auto,
    /// A GPU, or an error.
    Cuda,
    /// The CPU.
    Host,
}

/// An error of a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeviceError {
    /// No usable GPU.
    #[error("no CUDA device: {0}")]
    NoCuda(String),
    /// A driver call failed.
    #[error("{call} failed: {cause}")]
    Driver {
        /// The call.
        call: &'static str,
        /// The driver's words.
        cause: String,
    },
    /// Memory could not be had.
    #[error("cannot get {bytes} bytes of {what}: {cause}")]
    Memory {
        /// Requested bytes.
        bytes: usize,
        /// Kind of memory.
        what: &'static str,
        /// Why.
        cause: String,
    },
    /// A kernel did not do its part in time.
    #[error("{what} within {after:?}")]
    Timeout {
        /// The event that the caller waited for.
        what: String,
        /// Length of the wait.
        after: Duration,
    },
    /// Device code failed.
    #[error("kernel {kernel} failed: {cause}")]
    Kernel {
        /// The kernel.
        kernel: &'static str,
        /// The runtime's words.
        cause: String,
    },
    /// An environment variable with an invalid value.
    #[error("{name}={value}: it may be {allowed}")]
    Switch {
        /// The variable.
        name: &'static str,
        /// Value of the variable.
        value: String,
        /// Allowed values.
        allowed: &'static str,
    },
    /// An invalid list of copies.
    #[error("cannot copy between host and device memory: {cause}")]
    Copy {
        /// The fault in it.
        cause: String,
    },
}

/// Entry of a kernel that was compiled for the CPU: `void kernel(void* args)`, called once a lane.
pub type HostEntry = unsafe extern "C" fn(*mut c_void);

/// A kernel: one name in a fat binary, one entry for the CPU; both take one pointer.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Name in the fat binary.
    pub name: &'static str,
    /// The fat binary.
    pub image: &'static [u8],
    /// The same kernel for the CPU.
    pub host: HostEntry,
}

/// Shared memory that a block has by default, bytes.
const PLAIN_SMEM_BYTES: u32 = 48 << 10;

/// A kernel with its shape and argument.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: Kernel,
    /// Blocks.
    pub blocks: u32,
    /// Threads a block, a multiple of 32.
    pub threads: u32,
    /// Shared memory a block, bytes.
    pub smem_bytes: u32,
    /// Device address of the argument.
    pub args: u64,
}

/// An agent and the client that runs beside it.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// The agent.
    pub agent: Launch,
    /// The client.
    pub client: Launch,
    /// Placement of the two on the device.
    pub residency: Residency,
}

/// The words by which a launch and its agent talk; in host memory, next to each other for every pair of
/// rings.
#[derive(Debug)]
pub struct AgentWords<'a> {
    /// Stored by the host (or the last client block): the launch number asks the agent to end.
    pub stop: Vec<&'a AtomicU32>,
    /// Stored for each pair of rings when its block is resident: the launch number.
    pub ready: Vec<&'a AtomicU32>,
    /// This launch's number.
    pub number: u32,
}

impl AgentWords<'_> {
    fn ask_to_stop(&self) {
        for word in &self.stop {
            word.store(self.number, Ordering::Release); // pairs with the acquire in dispatch_loop
        }
    }

    fn all_ready(&self) -> bool {
        self.ready.iter().all(|word| word.load(Ordering::Acquire) == self.number)
    }
}

/// Placement of agent and client on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Residency {
    /// Two kernels on two streams.
    #[default]
    TwoKernels,
    /// One grid, for tools that never run two kernels at once. The launch of the client contains the agent's
    /// blocks, too.
    OneGrid,
}

enum Backend {
    Host(host::HostDevice),
    Cuda(Box<cuda::CudaDevice>),
}

/// A device.
pub struct Device {
    backend: Backend,
    why: String,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// [`DeviceError::NoCuda`] if the caller named CUDA and there is none; driver errors.
    pub fn open(choice: Choice) -> Result<Arc<Self>, DeviceError> {
        let host = |why: String| Self { backend: Backend::Host(host::HostDevice), why };
        let device = match choice {
            Choice::Host => host("asked for".into()),
            Choice::Cuda => {
                Self { backend: Backend::Cuda(Box::new(cuda::CudaDevice::open()?)), why: "asked for".into() }
            }
            Choice::Auto => match cuda::CudaDevice::open() {
                Ok(gpu) => Self { backend: Backend::Cuda(Box::new(gpu)), why: "a GPU is here".into() },
                Err(e) => host(e.to_string()),
            },
        };
        Ok(Arc::new(device))
    }

    /// `cuda` or `host`.
    pub fn kind(&self) -> &'static str {
        match &self.backend {
            Backend::Host(_) => "host",
            Backend::Cuda(_) => "cuda",
        }
    }

    /// Name of the device, for a person.
    pub fn name(&self) -> String {
        match &self.backend {
            Backend::Host(_) => "CPU (device code as fibers)".into(),
            Backend::Cuda(gpu) => gpu.name(),
        }
    }

    /// Why this device was taken.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Allocates zeroed device memory.
    ///
    /// # Errors
    /// [`DeviceError::Memory`].
    pub fn alloc(self: &Arc<Self>, bytes: usize) -> Result<DeviceMem, DeviceError> {
        let (address, host) = match &self.backend {
            Backend::Host(_) => {
                let region = HostRegion::alloc(bytes).map_err(|e| DeviceError::Memory {
                    bytes,
                    what: "host memory",
                    cause: e.to_string(),
                })?;
                (region.address(), Some(region))
            }
            Backend::Cuda(gpu) => (gpu.alloc(bytes)?, None),
        };
        Ok(DeviceMem { device: Arc::clone(self), address, bytes, host })
    }

    /// Makes host memory visible to device code; returns its address there.
    ///
    /// # Errors
    /// Driver errors.
    pub fn map(&self, region: &Arc<HostRegion>) -> Result<u64, DeviceError> {
        match &self.backend {
            Backend::Host(_) => Ok(region.address()),
            Backend::Cuda(gpu) => gpu.map(region),
        }
    }

    /// Loads kernels before any is resident: a first launch would wait for a resident kernel to end.
    ///
    /// # Errors
    /// Driver errors.
    pub fn preload(&self, kernels: &[Kernel]) -> Result<(), DeviceError> {
        match &self.backend {
            Backend::Host(_) => Ok(()),
            Backend::Cuda(gpu) => kernels.iter().try_for_each(|k| gpu.function(k).map(|_| ())),
        }
    }

    /// How many blocks of `kernel` can be on the device at once beside an agent of `agent_blocks` blocks. On
    /// the CPU, any number: each lane is a fiber.
    ///
    /// # Errors
    /// Driver errors.
    pub fn max_blocks(
        &self,
        kernel: &Kernel,
        threads: u32,
        smem_bytes: u32,
        agent_blocks: u32,
    ) -> Result<u32, DeviceError> {
        match &self.backend {
            Backend::Host(_) => Ok(i32::MAX as u32),
            Backend::Cuda(gpu) => gpu.max_blocks(kernel, threads, smem_bytes, agent_blocks),
        }
    }

    /// Whether `address..address + bytes` is memory of this device, with any allocator; an error says what
    /// else it is. On the CPU, any that is not null: the device's memory is the process's.
    ///
    /// # Errors
    /// [`DeviceError::Memory`]: the range is not memory of this device.
    pub fn check_memory(&self, address: u64, bytes: usize) -> Result<(), DeviceError> {
        let not = |cause: &str| DeviceError::Memory {
            bytes,
            what: "device memory to register",
            cause: cause.into(),
        };
        if address == 0 || bytes == 0 || address.checked_add(bytes as u64).is_none() {
            return Err(not("the range is empty, or begins at null, or goes beyond the address space"));
        }
        match &self.backend {
            Backend::Host(_) => Ok(()),
            Backend::Cuda(gpu) => gpu.check_memory(address, bytes as u64).map_err(not),
        }
    }

    /// Runs a client beside an agent and returns when both have ended. In [`Residency::OneGrid`] it launches
    /// only the client, whose grid contains both.
    ///
    /// # Errors
    /// [`DeviceError::Timeout`] if the agent did not report that it runs, or the client did not end within
    /// `deadline`; [`DeviceError::Kernel`] if device code failed.
    pub fn run(
        &self,
        pair: &Together,
        words: &AgentWords<'_>,
        deadline: Duration,
    ) -> Result<(), DeviceError> {
        match &self.backend {
            Backend::Host(cpu) => cpu.run(pair, words, deadline),
            Backend::Cuda(gpu) => gpu.run(pair, words, deadline),
        }
    }

    /// Most shared memory of a block, bytes.
    pub fn most_smem_bytes(&self) -> u32 {
        match &self.backend {
            Backend::Host(_) => PLAIN_SMEM_BYTES,
            Backend::Cuda(gpu) => gpu.most_smem_bytes(),
        }
    }

    /// Whether no kernel is on the device, also after a launch that failed.
    pub fn is_idle(&self) -> bool {
        match &self.backend {
            // The lanes have ended or been dropped when `run` returns.
            Backend::Host(_) => true,
            Backend::Cuda(gpu) => gpu.is_idle(),
        }
    }
}
