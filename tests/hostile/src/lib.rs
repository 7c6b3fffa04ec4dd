// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that keeps no rules. It writes the frames of `docs/formats-hca.md` by hand and uses nothing of
//! the product but the byte formats of `gnstor-proto`.
//!
//! ```text
//!   Talk::conversation --> recorded frames --> attacks::run: bent, shuffled, cut, repeated, never read, ...
//!                              |    insider: commands of a client that has rights
//!                              `--> corpus/conversation.bin --> mutate: what the fuzz targets are given
//! ```
//! What it does not do: it judges nothing. A test runs an honest load beside it and looks at that.

pub mod attacks;
#[cfg(test)]
#[path = "../../../proto/testing/deadline.rs"]
mod deadline;
pub mod frames;
pub mod insider;
pub mod mutate;
pub mod random;
pub mod talk;
