// SPDX-License-Identifier: Apache-2.0 OR MIT
//! GNoR: the GPU-centric NVMe-over-RDMA initiator (paper 4.2).
//!
//! ```text
//!   CPU                                              GPU (or its CPU execution)
//!   [`node::Node`]       HCA, engine
//!   [`session::Session`] admin queues to the SSDs that are there
//!   [`channel::Channel`] memory, CQ, QPs, MRs  ----> gnor/cuda/gnor: connect.cuh   receives, Fabrics Connect
//!                                                                    io.cuh        requests, split, replicas
//!                                                                    append.cuh    lock-free send queues
//!                                                                    complete.cuh  completion queue
//!                                                                    pool.cuh      buffers
//! ```
//! The CPU does its part once per channel. No I/O passes through it.

pub mod abi;
mod anew;
pub mod channel;
mod connect;
mod error;
pub mod growth;
mod layout;
mod map_watch;
pub mod node;
mod paths;
pub mod session;
