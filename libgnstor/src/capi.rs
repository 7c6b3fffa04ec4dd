// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C interface; `include/gnstor.h` is its documentation.
//!
//! A handle is an [`Arc`]'s pointer, and each object holds the one it was made from: the order of closing does not matter. Every function
//! that can fail goes through [`guard`]: no panic crosses the border, and the error's words are kept for `gn_last_error`.
#![expect(unsafe_code, reason = "the border to C: raw pointers and exported names")]

use crate::client::{Client, ConnectOptions, Rights};
use crate::error::Error;
use crate::file::File;
use crate::manager::{CreateOptions, VolumeInfo};
use gnstor_fabric::device::{Choice, Device, DeviceError, DeviceMem, HostEntry, Kernel, Residency};
use gnstor_fabric::engine::{Engine, EngineConfig};
use gnstor_fabric::hca::agent::{ClientKernel, Shape};
use gnstor_fabric::runtime::EngineThreads;
use gnstor_gnor::node::{Node, NodeError};
use gnstor_proto::vendor::NAME_BYTES;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// `gn_node`.
#[derive(Debug)]
pub struct NodeHandle {
    // The engine ends after the node has taken leave of it.
    node: Arc<Node>,
    _engine: EngineThreads,
}

/// `gn_client`.
#[derive(Debug)]
pub struct ClientHandle {
    client: Arc<Client>,
    _node: Arc<NodeHandle>,
}

/// `gn_file`.
#[derive(Debug)]
pub struct FileHandle {
    file: File,
    _client: Arc<ClientHandle>,
}

/// `gn_memory`.
#[derive(Debug)]
pub struct MemoryHandle {
    memory: DeviceMem,
    _node: Arc<NodeHandle>,
}

const _: () = {
    const fn used_by_many_threads<T: Send + Sync>() {}
    used_by_many_threads::<NodeHandle>();
    used_by_many_threads::<ClientHandle>();
    used_by_many_threads::<FileHandle>();
    used_by_many_threads::<MemoryHandle>();
};

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

/// `gn_kernel_file`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CKernelFile {
    channel: u64,
    volume: u64,
    timeout_ns: u64,
}
const _: () = assert!(size_of::<CKernelFile>() == 24);

/// `gn_kernel`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CKernel {
    name: *const c_char,
    image: *const c_void,
    image_bytes: usize,
    host: Option<HostEntry>,
}

const GN_READ: u32 = 1;
const GN_WRITE: u32 = 2;

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EEXIST: i32 = 17;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
const ETIMEDOUT: i32 = 110;

/// An error number with its words.
struct Failure {
    errno: i32,
    message: String,
}

impl Failure {
    fn invalid(message: impl Into<String>) -> Self {
        Self { errno: EINVAL, message: message.into() }
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        let errno = match &e {
            Error::Node(NodeError::Device(cause)) => match cause {
                DeviceError::NoCuda(_) => ENODEV,
                DeviceError::Memory { .. } => ENOMEM,
                DeviceError::Timeout { .. } => ETIMEDOUT,
                DeviceError::Driver { .. } | DeviceError::Kernel { .. } => EIO,
            },
            other => other.errno(),
        };
        Self { errno, message: e.to_string() }
    }
}

impl From<DeviceError> for Failure {
    fn from(e: DeviceError) -> Self {
        Error::from(e).into()
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn keep(message: &str) {
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending has nobody to tell.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Runs a call's body; failures and panics become negative error numbers.
fn guard(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // What a panic may have left half done is behind locks, which it poisons.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let what = panic.downcast_ref::<String>().map(String::as_str);
            let what = what.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Failure { errno: EIO, message: format!("internal error: {what}") }
        }
    };
    keep(&failure.message);
    -(failure.errno.max(1))
}

/// Ends an object whose destructor must not unwind into C.
fn quietly(body: impl FnOnce()) {
    let _ = guard(|| {
        body();
        Ok(())
    });
}

/// The object behind a handle or an argument.
///
/// # Safety
/// Null, or valid for reads while the result is used.
unsafe fn object<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid(format!("{what} is null")))
}

/// A reference of its own to the object behind a handle.
///
/// # Safety
/// Null, or a handle that has not been closed.
unsafe fn share<T>(handle: *const T, what: &str) -> Result<Arc<T>, Failure> {
    if handle.is_null() {
        return Err(Failure::invalid(format!("{what} is null")));
    }
    // SAFETY: handles come from Arc::into_raw, and the caller's is not closed: the count is at least one.
    unsafe {
        Arc::increment_strong_count(handle);
        Ok(Arc::from_raw(handle))
    }
}

/// # Safety
/// Null, or a NUL-terminated string that stays as it is while the result is used.
unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{what} is null")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// # Safety
/// Null, or valid for reads of `bytes` bytes while the result is used.
unsafe fn bytes_in<'a>(data: *const c_void, bytes: usize) -> Result<&'a [u8], Failure> {
    check_range(data, bytes)?;
    // SAFETY: not null, of a possible length, and the caller's promise.
    Ok(if bytes == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data.cast(), bytes) } })
}

/// # Safety
/// Null, or valid for writes of `bytes` initialised bytes while the result is used.
unsafe fn bytes_out<'a>(data: *mut c_void, bytes: usize) -> Result<&'a mut [u8], Failure> {
    check_range(data, bytes)?;
    // SAFETY: not null, of a possible length, and the caller's promise.
    Ok(if bytes == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(data.cast(), bytes) } })
}

fn check_range(data: *const c_void, bytes: usize) -> Result<(), Failure> {
    match (data.is_null(), isize::try_from(bytes)) {
        (true, _) if bytes != 0 => Err(Failure::invalid("data is null")),
        (_, Err(_)) => Err(Failure::invalid(format!("{bytes} bytes are more than there can be"))),
        _ => Ok(()),
    }
}

/// Refuses a null result pointer before anything is done.
fn result_goes_to<T>(out: *mut T, what: &str) -> Result<(), Failure> {
    if out.is_null() { Err(Failure::invalid(format!("the pointer for {what} is null"))) } else { Ok(()) }
}

/// Hands an object to C.
///
/// # Safety
/// `out` is valid for a write.
unsafe fn hand_out<T>(object: T, out: *mut *const T) {
    // SAFETY: the caller's promise.
    unsafe { out.write(Arc::into_raw(Arc::new(object))) };
}

/// Takes an object back from C.
///
/// # Safety
/// Null, or a handle that is used no more.
unsafe fn take_back<T>(handle: *const T) {
    if !handle.is_null() {
        // SAFETY: from Arc::into_raw in `hand_out`; the caller gives up its reference.
        let object = unsafe { Arc::from_raw(handle) };
        quietly(|| drop(object));
    }
}

/// `gn_last_error`.
#[unsafe(no_mangle)]
pub extern "C" fn gn_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// `gn_node_open`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_node_open(device: *const c_char, node: *mut *const NodeHandle) -> c_int {
    guard(|| {
        result_goes_to(node, "the node")?;
        // SAFETY: the caller's promise.
        let choice = match unsafe { text(device, "the device's name") }? {
            "auto" => Choice::Auto,
            "cuda" => Choice::Cuda,
            "host" => Choice::Host,
            other => return Err(Failure::invalid(format!("the device '{other}' is not one of auto, cuda, host"))),
        };
        let device = Device::open(choice)?;
        let os = |cause| Error::Os { what: "starting the fabric engine".into(), cause };
        let engine = EngineThreads::start(vec![Engine::new(EngineConfig::default())]).map_err(os)?;
        let made = Node::new(engine.handle(), &device, Residency::TwoKernels).map_err(Error::from)?;
        // SAFETY: not null, and the caller's promise.
        unsafe { hand_out(NodeHandle { node: Arc::new(made), _engine: engine }, node) };
        Ok(())
    })
}

/// `gn_node_device`.
///
/// # Safety
/// As gnstor.h says: the handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_node_device(node: *const NodeHandle) -> *const c_char {
    // SAFETY: the caller's promise.
    match unsafe { node.as_ref() }.map(|n| n.node.device().kind()) {
        None => std::ptr::null(),
        Some("cuda") => c"cuda".as_ptr(),
        Some(_) => c"host".as_ptr(),
    }
}

/// `gn_node_close`.
///
/// # Safety
/// As gnstor.h says: the handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_node_close(node: *const NodeHandle) {
    // SAFETY: the caller's promise.
    unsafe { take_back(node) }
}

/// `gn_connect`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_connect(
    node: *const NodeHandle,
    endpoint: *const c_char,
    client: *mut *const ClientHandle,
) -> c_int {
    guard(|| {
        result_goes_to(client, "the client")?;
        // SAFETY: the caller's promise.
        let (node, endpoint) = unsafe { (share(node, "the node")?, text(endpoint, "the endpoint")?) };
        let connected = Client::connect(&node.node, &ConnectOptions::new(endpoint))?;
        // SAFETY: not null, and the caller's promise.
        unsafe { hand_out(ClientHandle { client: connected, _node: node }, client) };
        Ok(())
    })
}

/// `gn_client_id`.
///
/// # Safety
/// As gnstor.h says: the handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_client_id(client: *const ClientHandle) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { client.as_ref() }.map_or(0, |c| c.client.id().into())
}

/// `gn_disconnect`.
///
/// # Safety
/// As gnstor.h says: the handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_disconnect(client: *const ClientHandle) {
    // SAFETY: the caller's promise.
    unsafe { take_back(client) }
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

/// `gn_open`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_open(
    client: *const ClientHandle,
    name: *const c_char,
    rights: u32,
    file: *mut *const FileHandle,
) -> c_int {
    guard(|| {
        result_goes_to(file, "the file")?;
        // SAFETY: the caller's promise.
        let (client, name) = unsafe { (share(client, "the client")?, text(name, "the name")?) };
        let rights = match rights {
            GN_READ => Rights::Read,
            r if r & GN_WRITE != 0 && r & !(GN_READ | GN_WRITE) == 0 => Rights::Write,
            other => return Err(Failure::invalid(format!("rights {other:#x} are not GN_READ, GN_WRITE or both"))),
        };
        let opened = client.client.open(name, rights)?;
        // SAFETY: not null, and the caller's promise.
        unsafe { hand_out(FileHandle { file: opened, _client: client }, file) };
        Ok(())
    })
}

/// `gn_close`.
///
/// # Safety
/// As gnstor.h says: the handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_close(file: *const FileHandle) {
    // SAFETY: the caller's promise.
    unsafe { take_back(file) }
}

/// `gn_file_info`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_file_info(file: *const FileHandle, info: *mut CVolumeInfo) -> c_int {
    guard(|| {
        result_goes_to(info, "the volume")?;
        // SAFETY: the caller's promise.
        let file = unsafe { object(file, "the file") }?;
        // SAFETY: not null, and the caller's promise.
        unsafe { info.write(file.file.info().into()) };
        Ok(())
    })
}

/// `gn_read_at`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; `data` for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_read_at(file: *const FileHandle, offset: u64, data: *mut c_void, bytes: usize) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (file, data) = unsafe { (object(file, "the file")?, bytes_out(data, bytes)?) };
        Ok(file.file.read_at(offset, data)?)
    })
}

/// `gn_write_at`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; `data` for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_write_at(file: *const FileHandle, offset: u64, data: *const c_void, bytes: usize) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (file, data) = unsafe { (object(file, "the file")?, bytes_in(data, bytes)?) };
        Ok(file.file.write_at(offset, data)?)
    })
}

/// `gn_flush`.
///
/// # Safety
/// As gnstor.h says: the handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_flush(file: *const FileHandle) -> c_int {
    // SAFETY: the caller's promise.
    guard(|| Ok(unsafe { object(file, "the file") }?.file.flush()?))
}

/// `gn_device_file`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_device_file(file: *const FileHandle, out: *mut CKernelFile) -> c_int {
    guard(|| {
        result_goes_to(out, "the kernel's file")?;
        // SAFETY: the caller's promise.
        let f = unsafe { object(file, "the file") }?.file.device_file();
        // SAFETY: not null, and the caller's promise.
        unsafe { out.write(CKernelFile { channel: f.channel, volume: f.volume, timeout_ns: f.timeout_ns }) };
        Ok(())
    })
}

/// `gn_drain`.
///
/// # Safety
/// As gnstor.h says: the handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_drain(file: *const FileHandle, timeout_ns: u64) -> c_int {
    // SAFETY: the caller's promise.
    guard(|| Ok(unsafe { object(file, "the file") }?.file.drain(Duration::from_nanos(timeout_ns))?))
}

/// `gn_register_buffer`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_register_buffer(
    client: *const ClientHandle,
    address: u64,
    bytes: usize,
    key: *mut u32,
) -> c_int {
    guard(|| {
        result_goes_to(key, "the key")?;
        // SAFETY: the caller's promise.
        let client = unsafe { object(client, "the client") }?;
        let made = client.client.register_buffer(address, bytes).map_err(|e| match e {
            // Memory that is not the device's is the caller's mistake, not a lack of it.
            Error::Node(NodeError::Device(DeviceError::Memory { .. })) => Failure::invalid(e.to_string()),
            other => other.into(),
        })?;
        // SAFETY: not null, and the caller's promise.
        unsafe { key.write(made) };
        Ok(())
    })
}

/// `gn_deregister_buffer`.
///
/// # Safety
/// As gnstor.h says: the handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_deregister_buffer(client: *const ClientHandle, key: u32) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let client = unsafe { object(client, "the client") }?;
        match client.client.deregister_buffer(key)? {
            true => Ok(()),
            false => Err(Failure::invalid(format!("key {key:#x} is of no registered buffer"))),
        }
    })
}

/// `gn_memory_alloc`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_memory_alloc(
    node: *const NodeHandle,
    bytes: usize,
    memory: *mut *const MemoryHandle,
) -> c_int {
    guard(|| {
        result_goes_to(memory, "the memory")?;
        // SAFETY: the caller's promise.
        let node = unsafe { share(node, "the node") }?;
        if bytes == 0 || isize::try_from(bytes).is_err() {
            return Err(Failure::invalid(format!("{bytes} bytes of memory cannot be had")));
        }
        let made = node.node.device().alloc(bytes)?;
        // SAFETY: not null, and the caller's promise.
        unsafe { hand_out(MemoryHandle { memory: made, _node: node }, memory) };
        Ok(())
    })
}

/// `gn_memory_free`.
///
/// # Safety
/// As gnstor.h says: the handle is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_memory_free(memory: *const MemoryHandle) {
    // SAFETY: the caller's promise.
    unsafe { take_back(memory) }
}

/// `gn_memory_address`.
///
/// # Safety
/// As gnstor.h says: the handle is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_memory_address(memory: *const MemoryHandle) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { memory.as_ref() }.map_or(0, |m| m.memory.address())
}

fn within(memory: &DeviceMem, offset: usize, bytes: usize) -> Result<(), Failure> {
    let len = memory.len();
    match offset.checked_add(bytes) {
        Some(end) if end <= len => Ok(()),
        _ => {
            Err(Failure { errno: ERANGE, message: format!("{bytes} bytes at {offset} leave the memory's {len} bytes") })
        }
    }
}

/// `gn_memory_write`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; `data` for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_memory_write(
    memory: *const MemoryHandle,
    offset: usize,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (memory, data) = unsafe { (object(memory, "the memory")?, bytes_in(data, bytes)?) };
        within(&memory.memory, offset, bytes)?;
        Ok(memory.memory.write(offset, data)?)
    })
}

/// `gn_memory_read`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; `data` for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_memory_read(
    memory: *const MemoryHandle,
    offset: usize,
    data: *mut c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (memory, data) = unsafe { (object(memory, "the memory")?, bytes_out(data, bytes)?) };
        within(&memory.memory, offset, bytes)?;
        Ok(memory.memory.read(offset, data)?)
    })
}

/// Kernels that C programs have launched. The device keeps what it has loaded under a kernel's name, so each is kept for ever.
static KERNELS: Mutex<Vec<Kernel>> = Mutex::new(Vec::new());

unsafe extern "C" fn no_host_form(_: *mut c_void) {}

fn kept_kernel(name: &str, image: &[u8], host: Option<HostEntry>) -> Result<Kernel, Failure> {
    let mut kernels = KERNELS.lock().expect("no panic while held");
    let host = host.unwrap_or(no_host_form);
    if let Some(kernel) = kernels.iter().find(|k| k.name == name) {
        let same = kernel.image == image && std::ptr::fn_addr_eq(kernel.host, host);
        let message = || format!("another kernel is named '{name}' in this process");
        return if same { Ok(*kernel) } else { Err(Failure { errno: EEXIST, message: message() }) };
    }
    let kernel = Kernel { name: String::from(name).leak(), image: image.to_vec().leak(), host };
    kernels.push(kernel);
    Ok(kernel)
}

/// A kernel of C's, checked.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid.
unsafe fn client_kernel(node: &Node, kernel: *const CKernel, threads: u32) -> Result<ClientKernel, Failure> {
    // SAFETY: the caller's promise.
    let kernel = unsafe { *object(kernel, "the kernel")? };
    // SAFETY: the caller's promise.
    let (name, image) =
        unsafe { (text(kernel.name, "the kernel's name")?, bytes_in(kernel.image, kernel.image_bytes)?) };
    let kind = node.device().kind();
    if (kind == "host" && kernel.host.is_none()) || (kind == "cuda" && image.is_empty()) {
        return Err(Failure::invalid(format!("kernel '{name}' has no form for the {kind} device")));
    }
    if threads == 0 || threads > 1024 || !threads.is_multiple_of(32) {
        return Err(Failure::invalid(format!("blocks of {threads} threads cannot be launched")));
    }
    let kept = kept_kernel(name, image, kernel.host)?;
    Ok(ClientKernel { beside_agent: kept, one_grid: kept })
}

/// `gn_launch`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; the kernel is one of GN_CLIENT's and `args` the address of its argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_launch(
    node: *const NodeHandle,
    kernel: *const CKernel,
    blocks: u32,
    threads: u32,
    smem_bytes: u32,
    args: u64,
    timeout_ns: u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let node = unsafe { share(node, "the node") }?;
        // SAFETY: the caller's promise.
        let client = unsafe { client_kernel(&node.node, kernel, threads) }?;
        if blocks == 0 {
            return Err(Failure::invalid("a grid of no blocks cannot be launched"));
        }
        let shape = Shape { blocks, threads, smem_bytes };
        Ok(node.node.launch(client, shape, args, Duration::from_nanos(timeout_ns))?)
    })
}

/// `gn_max_blocks`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; the kernel is one of GN_CLIENT's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_max_blocks(
    node: *const NodeHandle,
    kernel: *const CKernel,
    threads: u32,
    smem_bytes: u32,
    blocks: *mut u32,
) -> c_int {
    guard(|| {
        result_goes_to(blocks, "the number of blocks")?;
        // SAFETY: the caller's promise.
        let node = unsafe { share(node, "the node") }?;
        // SAFETY: the caller's promise.
        let client = unsafe { client_kernel(&node.node, kernel, threads) }?;
        let most = node.node.max_blocks(&client, threads, smem_bytes)?;
        // SAFETY: not null, and the caller's promise.
        unsafe { blocks.write(most) };
        Ok(())
    })
}

/// `gn_launch_together`.
///
/// # Safety
/// As [`gn_launch`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gn_launch_together(
    node: *const NodeHandle,
    kernel: *const CKernel,
    blocks: u32,
    threads: u32,
    smem_bytes: u32,
    args: u64,
    timeout_ns: u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let node = unsafe { share(node, "the node") }?;
        // SAFETY: the caller's promise.
        let client = unsafe { client_kernel(&node.node, kernel, threads) }?;
        let most = node.node.max_blocks(&client, threads, smem_bytes)?;
        if blocks == 0 || blocks > most {
            return Err(Failure::invalid(format!(
                "{blocks} blocks that wait for each other do not fit: at most {most}"
            )));
        }
        let shape = Shape { blocks, threads, smem_bytes };
        Ok(node.node.launch(client, shape, args, Duration::from_nanos(timeout_ns))?)
    })
}
