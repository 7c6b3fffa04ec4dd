// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels of C programs.

use super::argument::{bytes_in, object, result_goes_to, share, text};
use super::failure::{EEXIST, Failure, guard};
use super::node::NodeHandle;
use gnstor_fabric::device::{HostEntry, Kernel};
use gnstor_fabric::hca::agent::{ClientKernel, Shape};
use gnstor_gnor::node::Node;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;
use std::time::Duration;

/// `gn_kernel`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CKernel {
    name: *const c_char,
    image: *const c_void,
    image_bytes: usize,
    host: Option<HostEntry>,
}

/// Kernels that C programs have launched. The device keeps every image that it has loaded under a kernel's
/// name, so each is kept for ever.
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

/// The arguments of a launch, as C gives them.
struct Call {
    node: *const NodeHandle,
    kernel: *const CKernel,
    shape: Shape,
    args: u64,
    timeout_ns: u64,
}

/// Launches a kernel of C's if `fits` has nothing against it.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; the kernel is one of GN_CLIENT's and `args` the address of
/// its argument.
unsafe fn launch(
    Call { node, kernel, shape, args, timeout_ns }: Call,
    fits: impl FnOnce(&Node, &ClientKernel) -> Result<(), Failure>,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let node = unsafe { share(node, "the node") }?;
        // SAFETY: the caller's promise.
        let client = unsafe { client_kernel(&node.node, kernel, shape.threads) }?;
        fits(&node.node, &client)?;
        Ok(node.node.launch(client, shape, args, Duration::from_nanos(timeout_ns))?)
    })
}

/// `gn_launch`.
///
/// # Safety
/// As gnstor.h says: pointers are null or valid; the kernel is one of GN_CLIENT's and `args` the address of
/// its argument.
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
    let shape = Shape { blocks, threads, smem_bytes };
    let fits = |_: &Node, _: &ClientKernel| match blocks {
        0 => Err(Failure::invalid("a grid of no blocks cannot be launched")),
        _ => Ok(()),
    };
    // SAFETY: the caller's promise.
    unsafe { launch(Call { node, kernel, shape, args, timeout_ns }, fits) }
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
    let shape = Shape { blocks, threads, smem_bytes };
    let fits = |node: &Node, client: &ClientKernel| match node.max_blocks(client, threads, smem_bytes)? {
        most if (1..=most).contains(&blocks) => Ok(()),
        most => Err(Failure::invalid(format!(
            "{blocks} blocks that wait for each other do not fit: at most {most}"
        ))),
    };
    // SAFETY: the caller's promise.
    unsafe { launch(Call { node, kernel, shape, args, timeout_ns }, fits) }
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
