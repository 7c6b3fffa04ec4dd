// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every layer shares.
//!
//! | module | what |
//! |---|---|
//! | [`time`] | modelled time, in picoseconds |
//! | [`region`] | memory that several agents touch |
//! | [`controller`] | the border between target offload and an SSD |
//! | [`ahead`] | how long before its modelled time something is done |
//! | [`lock`] | how a thread waits for a lock |
//! | [`padding`] | cache lines |
//! | [`peer_map`] | maps whose keys peers choose |
//! | [`round_robin`] | queues whose owners take turns |
//!
//! This crate builds no C++, reads no clock and starts no thread, except for the deadlines of tests
//! (`testing`). The layers of an SSD depend on it alone.

pub mod ahead;
pub mod controller;
pub mod lock;
pub mod padding;
pub mod peer_map;
pub mod region;
pub mod round_robin;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
