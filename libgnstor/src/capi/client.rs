// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients, and the memory that they have registered.

use super::argument::{hand_out, object, result_goes_to, share, take_back, text};
use super::failure::{Failure, guard};
use super::node::NodeHandle;
use crate::client::{Client, ConnectOptions};
use crate::error::Error;
use gnstor_fabric::device::DeviceError;
use gnstor_gnor::node::NodeError;
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// `gn_client`.
#[derive(Debug)]
pub struct ClientHandle {
    pub(super) client: Arc<Client>,
    _node: Arc<NodeHandle>,
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
