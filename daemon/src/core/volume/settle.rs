// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of a volume's settle. [`crate::core::settle`] has its steps.

use crate::core::request::Request;
use crate::core::{CommandId, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// State of one SSD in a settle.
#[derive(Default, Debug)]
pub(in crate::core) struct Part {
    pub(in crate::core) asked: Option<CommandId>,
    pub(in crate::core) next_at: u64,
    pub(in crate::core) wait_ms: u64,
}

/// A volume that is being settled.
#[derive(Default, Debug)]
pub(in crate::core) struct Settle {
    /// The epoch that the parts belong to.
    pub(in crate::core) epoch: u64,
    pub(in crate::core) parts: BTreeMap<u16, Part>,
    pub(in crate::core) done: BTreeSet<u16>,
    /// Opens for writing that wait.
    pub(in crate::core) waiting: VecDeque<(Ticket, Request)>,
}
