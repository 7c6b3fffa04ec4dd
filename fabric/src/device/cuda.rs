// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A CUDA GPU through the driver API, loaded at run time: no build needs CUDA, and a machine without it says
//! so.
#![expect(unsafe_code, reason = "driver API calls")]

mod range;
mod stream;

use super::{AgentWords, DeviceError, Kernel, Launch, Residency, Together};
use crate::wait::look_until;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use gnstor_base::region::{HostRegion, RegionId};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(super) use range::Part;
pub(super) use stream::Stream;

pub(super) struct CudaDevice {
    name: String,
    device: sys::CUdevice,
    context: sys::CUcontext,
    agent_stream: sys::CUstream,
    client_stream: sys::CUstream,
    copy_stream: sys::CUstream,
    modules: Mutex<HashMap<usize, sys::CUmodule>>,
    functions: Mutex<HashMap<&'static str, sys::CUfunction>>,
    mapped: Mutex<HashMap<RegionId, (Arc<HostRegion>, u64)>>,
}

// SAFETY: CUDA handles may be used from any thread that has made the context current, which every call here
// does first.
unsafe impl Send for CudaDevice {}
// SAFETY: the driver API is thread-safe; the maps are behind mutexes.
unsafe impl Sync for CudaDevice {}

fn named(call: &'static str) -> impl Fn(DriverError) -> DeviceError {
    move |e| DeviceError::Driver { call, cause: e.to_string() }
}

const AGENT_START: Duration = Duration::from_secs(5);
const AGENT_END: Duration = Duration::from_secs(10);

impl CudaDevice {
    pub(super) fn open() -> Result<Self, DeviceError> {
        let no = |cause: String| DeviceError::NoCuda(cause);
        // SAFETY: looks for the library only; every other call is made after it is known to be there.
        if !unsafe { sys::is_culib_present() } {
            return Err(no("the CUDA driver library is not installed".into()));
        }
        result::init().map_err(|e| no(format!("cuInit: {e}")))?;
        if result::device::get_count().map_err(|e| no(e.to_string()))? == 0 {
            return Err(no("the driver sees no device".into()));
        }
        let device = result::device::get(0).map_err(|e| no(e.to_string()))?;
        let name = result::device::get_name(device).map_err(|e| no(e.to_string()))?;
        let attribute = |what| {
            // SAFETY: a device that the driver has just named.
            unsafe { result::device::get_attribute(device, what) }.map_err(|e| no(e.to_string()))
        };
        if attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? < 8 {
            return Err(no(format!("{name} is older than compute capability 8.0")));
        }
        if attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT)? != 0 {
            return Err(no(format!("{name} drives a display: its watchdog would end a resident kernel")));
        }
        // SAFETY: the device is valid; the context is released in drop.
        let context =
            unsafe { result::primary_ctx::retain(device) }.map_err(named("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: the context above.
        unsafe { result::ctx::set_current(context) }.map_err(named("cuCtxSetCurrent"))?;
        let stream = || {
            result::stream::create(result::stream::StreamKind::NonBlocking).map_err(named("cuStreamCreate"))
        };
        Ok(Self {
            name,
            device,
            context,
            agent_stream: stream()?,
            client_stream: stream()?,
            copy_stream: stream()?,
            modules: Mutex::default(),
            functions: Mutex::default(),
            mapped: Mutex::default(),
        })
    }

    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context lives as long as `self`.
        unsafe { result::ctx::set_current(self.context) }.map_err(named("cuCtxSetCurrent"))
    }

    pub(super) fn alloc(&self, bytes: usize) -> Result<u64, DeviceError> {
        self.enter()?;
        let failed = |e: DriverError| DeviceError::Memory { bytes, what: "GPU memory", cause: e.to_string() };
        // SAFETY: a plain allocation, zeroed before its address is returned.
        unsafe {
            let address = result::malloc_sync(bytes.max(1)).map_err(failed)?;
            // A memset of device memory returns before it is done, even a synchronous one. In another stream
            // it could overwrite the next copy. So it goes into the stream of the copies, and this call waits
            // for it.
            result::memset_d8_async(address, 0, bytes, self.copy_stream).map_err(named("cuMemsetD8Async"))?;
            result::stream::synchronize(self.copy_stream).map_err(named("cuStreamSynchronize"))?;
            Ok(address)
        }
    }

    pub(super) fn free(&self, address: u64) {
        if self.enter().is_ok() {
            // SAFETY: an address from `alloc`, freed once by its owner's drop.
            let freed = unsafe { result::free_sync(address) };
            if let Err(e) = freed {
                tracing::warn!("cuMemFree: {e}");
            }
        }
    }

    pub(super) fn write(&self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.enter()?;
        // The plain copy returns when pageable memory has been staged, which may be before the device has
        // it. A caller that then tells a running kernel would tell it too early. The end of the stream is
        // the end of the copy. SAFETY: the caller's allocation holds the range (checked by DeviceMem);
        // `data` is there until the stream is done.
        unsafe {
            result::memcpy_htod_async(address, data, self.copy_stream).map_err(named("cuMemcpyHtoDAsync"))?;
            result::stream::synchronize(self.copy_stream).map_err(named("cuStreamSynchronize"))
        }
    }

    pub(super) fn read(&self, address: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the caller's allocation holds the range (checked by DeviceMem).
        unsafe { result::memcpy_dtoh_sync(out, address) }.map_err(named("cuMemcpyDtoH"))
    }

    pub(super) fn map(&self, region: &Arc<HostRegion>) -> Result<u64, DeviceError> {
        self.enter()?;
        let mut mapped = self.mapped.lock().expect("no panic while held");
        if let Some((_, address)) = mapped.get(&region.id()) {
            return Ok(*address);
        }
        let host = region.address() as *mut c_void;
        let mut address = 0;
        // SAFETY: the region stays mapped: this map keeps it alive until it is unregistered in drop.
        unsafe {
            sys::cuMemHostRegister_v2(
                host,
                region.len(),
                sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_PORTABLE,
            )
            .result()
            .map_err(|e| DeviceError::Memory {
                bytes: region.len(),
                what: "pinned host memory",
                cause: e.to_string(),
            })?;
            sys::cuMemHostGetDevicePointer_v2(&raw mut address, host, 0)
                .result()
                .map_err(named("cuMemHostGetDevicePointer"))?;
        }
        mapped.insert(region.id(), (Arc::clone(region), address));
        Ok(address)
    }

    pub(super) fn function(&self, kernel: &Kernel) -> Result<sys::CUfunction, DeviceError> {
        self.enter()?;
        if let Some(function) = self.functions.lock().expect("no panic while held").get(kernel.name) {
            return Ok(*function);
        }
        let mut modules = self.modules.lock().expect("no panic while held");
        let key = kernel.image.as_ptr() as usize;
        let module = match modules.get(&key) {
            Some(module) => *module,
            None => {
                // SAFETY: a fat binary built by this project's own build.
                let module = unsafe { result::module::load_data(kernel.image.as_ptr().cast()) }
                    .map_err(named("cuModuleLoadData"))?;
                modules.insert(key, module);
                module
            }
        };
        let name = CString::new(kernel.name).expect("kernel names have no NUL");
        // SAFETY: the module is loaded and stays so.
        let function =
            unsafe { result::module::get_function(module, name) }.map_err(named("cuModuleGetFunction"))?;
        // SAFETY: the function above. Loading it now: under lazy loading its first launch would wait for a
        // resident kernel.
        unsafe { sys::cuFuncLoad(function) }.result().map_err(named("cuFuncLoad"))?;
        self.functions.lock().expect("no panic while held").insert(kernel.name, function);
        Ok(function)
    }

    /// Most shared memory of a block, bytes.
    pub(super) fn most_smem_bytes(&self) -> u32 {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        // SAFETY: the device that this context is of.
        let bytes = unsafe { result::device::get_attribute(self.device, attribute) };
        bytes.ok().and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(super::PLAIN_SMEM_BYTES)
    }

    fn launch(&self, launch: &Launch, stream: sys::CUstream) -> Result<(), DeviceError> {
        let function = self.function(&launch.kernel)?;
        let mut args = launch.args;
        let mut params = [(&raw mut args).cast::<c_void>()];
        if launch.smem_bytes > super::PLAIN_SMEM_BYTES {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(launch.smem_bytes).expect("checked by the caller");
            // SAFETY: the function above.
            unsafe { sys::cuFuncSetAttribute(function, attribute, bytes) }
                .result()
                .map_err(|e| DeviceError::Kernel { kernel: launch.kernel.name, cause: e.to_string() })?;
        }
        // SAFETY: every kernel of this project takes one pointer; the launch's argument is device memory that
        // outlives it.
        unsafe {
            result::launch_kernel(
                function,
                (launch.blocks, 1, 1),
                (launch.threads, 1, 1),
                launch.smem_bytes,
                stream,
                &mut params,
            )
        }
        .map_err(|e| DeviceError::Kernel { kernel: launch.kernel.name, cause: e.to_string() })
    }

    /// A block of the agent uses nearly all registers of a multiprocessor, so it takes the whole one.
    pub(super) fn max_blocks(
        &self,
        kernel: &Kernel,
        threads: u32,
        smem_bytes: u32,
        agent_blocks: u32,
    ) -> Result<u32, DeviceError> {
        let function = self.function(kernel)?;
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        let mut on_one = 0;
        // SAFETY: a loaded function and a place for the answer.
        unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut on_one,
                function,
                threads,
                smem_bytes as usize,
            )
        }
        .result()
        .map_err(named("cuOccupancyMaxActiveBlocksPerMultiprocessor"))?;
        let what = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        // SAFETY: this device.
        let all = unsafe { result::device::get_attribute(self.device, what) }
            .map_err(named("cuDeviceGetAttribute"))?;
        let left = u32::try_from(all).unwrap_or(0).saturating_sub(agent_blocks);
        Ok(left * u32::try_from(on_one).unwrap_or(0))
    }

    /// Whether the range is one allocation of this device's memory; if not, why.
    pub(super) fn check_memory(&self, address: u64, bytes: u64) -> Result<(), &'static str> {
        use sys::CUpointer_attribute as A;
        let attribute = |what: A, to: *mut c_void| {
            // SAFETY: `to` is a place of the attribute's size.
            unsafe { sys::cuPointerGetAttribute(to, what, address) }
                .result()
                .map_err(|_| "CUDA does not know the address")
        };
        self.enter().map_err(|_| "the device's context is gone")?;
        let (mut kind, mut device, mut first, mut length) = (0u32, 0i32, 0u64, 0usize);
        attribute(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut kind).cast())?;
        if kind != sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32 {
            return Err("it is host memory");
        }
        attribute(A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut device).cast())?;
        if device != self.device {
            return Err("it is memory of another GPU");
        }
        attribute(A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, (&raw mut first).cast())?;
        attribute(A::CU_POINTER_ATTRIBUTE_RANGE_SIZE, (&raw mut length).cast())?;
        let inside = address >= first
            && address - first <= length as u64
            && bytes <= length as u64 - (address - first);
        if inside { Ok(()) } else { Err("it leaves its allocation") }
    }

    /// Whether the stream has nothing left to do.
    fn idle(&self, stream: sys::CUstream, kernel: &'static str) -> Result<bool, DeviceError> {
        // SAFETY: a stream of this device.
        match unsafe { sys::cuStreamQuery(stream) } {
            sys::CUresult::CUDA_SUCCESS => Ok(true),
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => Err(DeviceError::Kernel { kernel, cause: DriverError(other).to_string() }),
        }
    }

    /// Whether nothing runs on either stream. A kernel that ended by a fault is over too.
    pub(super) fn is_idle(&self) -> bool {
        let streams = [self.agent_stream, self.client_stream];
        self.enter().is_ok()
            && streams.into_iter().all(|stream| self.idle(stream, "resident").unwrap_or(true))
    }

    #[expect(clippy::disallowed_methods, reason = "waits for a GPU in real time; nothing here is modelled")]
    fn wait(
        &self,
        what: impl Fn() -> String,
        limit: Duration,
        mut done: impl FnMut() -> Result<bool, DeviceError>,
    ) -> Result<(), DeviceError> {
        let start = Instant::now();
        let look = || done().map(|is_done| is_done.then_some(())).transpose();
        let rest = || std::thread::sleep(Duration::from_micros(20));
        look_until(|| start.elapsed() > limit, look, rest)
            .unwrap_or_else(|| Err(DeviceError::Timeout { what: what(), after: limit }))
    }

    pub(super) fn run(
        &self,
        pair: &Together,
        words: &AgentWords<'_>,
        deadline: Duration,
    ) -> Result<(), DeviceError> {
        let &Together { ref agent, ref client, residency } = pair;
        self.enter()?;
        self.function(&client.kernel)?;
        if residency == Residency::TwoKernels {
            self.launch(agent, self.agent_stream)?;
            let what = || "the HCA agent did not become resident (is the GPU full of other work?)".to_owned();
            let started = self.wait(what, AGENT_START, || {
                Ok(words.all_ready() || self.idle(self.agent_stream, agent.kernel.name)?)
            });
            if let Err(e) = started {
                words.ask_to_stop();
                return Err(e);
            }
        }
        let ended = self.launch(client, self.client_stream).and_then(|()| {
            let what = || format!("kernel {} did not end", client.kernel.name);
            self.wait(what, deadline, || self.idle(self.client_stream, client.kernel.name))
        });
        words.ask_to_stop();
        if residency == Residency::TwoKernels {
            let what = || "the HCA agent did not end".to_owned();
            let stopped = self.wait(what, AGENT_END, || self.idle(self.agent_stream, agent.kernel.name));
            return ended.and(stopped);
        }
        ended
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        if self.enter().is_err() {
            return;
        }
        // SAFETY: handles made in this struct, destroyed once; nothing is resident: `run` returns only when
        // its kernels have ended or the context is broken.
        unsafe {
            for (region, _) in self.mapped.lock().expect("no panic while held").values() {
                let _ = sys::cuMemHostUnregister(region.address() as *mut c_void);
            }
            for module in self.modules.lock().expect("no panic while held").values() {
                let _ = result::module::unload(*module);
            }
            let _ = result::stream::destroy(self.agent_stream);
            let _ = result::stream::destroy(self.client_stream);
            let _ = result::stream::destroy(self.copy_stream);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}
