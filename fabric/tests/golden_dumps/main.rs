// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same queue dumps through both halves of the HCA: the Rust executor and the agent's device code on the CPU.
//! `examples/hca_dumps.rs` runs them on a GPU too.

mod dumps;
