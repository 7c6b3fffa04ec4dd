// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every layer shares.
//!
//! | module | what |
//! |---|---|
//! | [`time`] | modelled time, in picoseconds |
//! | [`region`] | memory that several agents touch |
//! | [`controller`] | the border between target offload and an SSD |
//!
//! This crate builds no C++, reads no clock and starts no thread. The layers of an SSD depend on it alone.

pub mod controller;
pub mod region;
pub mod time;
