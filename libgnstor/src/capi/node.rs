// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device with its node.

use super::argument::{hand_out, result_goes_to, take_back, text};
use super::failure::{Failure, guard};
use crate::error::Error;
use gnstor_fabric::device::{Choice, Device, Residency};
use gnstor_fabric::runtime::TransportThreads;
use gnstor_fabric::transport::{RcTransport, TransportConfig};
use gnstor_gnor::node::Node;
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// `gn_node`.
#[derive(Debug)]
pub struct NodeHandle {
    // The engine ends after the node, which must detach from it first.
    pub(super) node: Arc<Node>,
    _engine: TransportThreads,
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
            other => {
                return Err(Failure::invalid(format!("the device '{other}' is not one of auto, cuda, host")));
            }
        };
        let device = Device::open(choice)?;
        let os = |cause| Error::Os { what: "starting the fabric engine".into(), cause };
        let engine =
            TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]).map_err(os)?;
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
