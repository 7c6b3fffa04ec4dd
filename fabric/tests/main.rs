// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both ends of RDMA from outside: transport, rings, HCA executors, and the C++ side of their structures.

mod fused;
mod golden_dumps;
mod lateness;
mod layout;
mod quiesce;
mod rc_requests;
mod rc_transport;
mod simt;
mod stopped;
mod take_back;
mod wakes;
