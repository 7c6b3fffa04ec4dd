// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RDMA as both ends see it. The crate has memory regions, RC queue pairs of genuine mlx5 bytes, and an
//! emulated HCA that executes them. It also has links, and NVMe-oF target offload.
//!
//! ```text
//!    initiator's memory                                  array's memory
//!   +------------------+   UpEntry    +-----------------------------------+
//!   | SQ RQ CQ DBR UAR | ===========> | transport:  conn --> link --> target  | --> controller::Controller
//!   |   in GPU memory: |   rings      |          (RC order, acks, errors)  | <-- Effect: Pull Push Complete
//!   |   hca/agent, a   | <=========== |                                    |
//!   |   resident kernel|    Down      +-----------------------------------+
//!   |   in host memory:|                      |  tcp, to another process's transport
//!   |   hca/soft       |
//!   +------------------+
//! ```
//!
//! What it does not do: it knows nothing of volumes, placement or flash. Components are stepped with `now`;
//! only [`runtime`] has a clock and a thread.
//!
//! | module | what |
//! |---|---|
//! | [`mlx5`] | queue bytes |
//! | [`hca`] | queue pairs, executed where their memory is |
//! | [`transport`] | RC connections, target offload |
//! | [`tcp`] | connections between processes |
//! | [`host_queue`], [`admin`] | admin queues in host memory |
//! | [`device`] | where device code runs: CUDA, or the CPU |
//! | [`link`] | modelled link |
//! | [`cm`] | refused connections |
//! | [`runtime`] | a transport on a thread |

pub mod admin;
pub mod cm;
pub mod device;
pub mod hca;
pub mod host_queue;
pub mod link;
pub mod mlx5;
pub mod runtime;
pub mod tcp;
pub mod transport;
mod wait;
