// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RDMA as both ends see it.
pub mod admin;
pub mod controller;
pub mod region;
pub mod time;
