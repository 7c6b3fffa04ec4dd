// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of a voter.

use gnstor_fleet::goodbye::Goodbyes;
use gnstor_fleet::known::Known;
use gnstor_fleet::voter::Held;
use std::sync::Arc;

/// State of a voter that is not in its metadata.
#[derive(Debug, Default)]
pub(in crate::admin) struct Voting {
    /// The last map that was held, and its bytes.
    pub(in crate::admin) held: Option<(Held<Known>, Arc<[u8]>)>,
    /// The voter's promise or its held map could not be read, so the SSD no longer votes.
    pub(in crate::admin) forgot: bool,
    /// The SSD cannot ask the others for its lease.
    pub(in crate::admin) is_mute: bool,
    /// SSDs that were stopped in order.
    pub(in crate::admin) goodbyes: Goodbyes,
}

/// A map that the voter is about to hold.
#[derive(Debug)]
pub(in crate::admin) struct ToHold {
    pub(in crate::admin) held: Held<Known>,
    pub(in crate::admin) bytes: Vec<u8>,
}
