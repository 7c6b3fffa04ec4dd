// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that keeps no rules. It builds the frames of `docs/formats-hca.md` by hand. Of the product it
//! uses only the byte formats of `gnstor-proto`.
//!
//! ```text
//!   Talk::conversation --> recorded frames --> attacks::run: bent, shuffled, cut, repeated, never read, ...
//!                              |    insider: commands of a client that has rights
//!                              `--> corpus/conversation.bin --> mutate: inputs of the fuzz targets
//! ```
//! It does not judge the results: a test runs an honest load beside it and checks that.

pub mod attacks;
#[cfg(test)]
#[path = "../../../proto/testing/deadline.rs"]
mod deadline;
pub mod frames;
mod games;
pub mod hello;
pub mod http2;
pub mod insider;
pub mod line;
pub mod mutate;
pub mod proof;
pub mod random;
mod streams;
pub mod talk;
