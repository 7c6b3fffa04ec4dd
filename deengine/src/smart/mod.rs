// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an SSD counts and how healthy it is.

pub(crate) mod counters;
pub(crate) mod health;
pub(crate) mod smart_counters;
pub(crate) mod stats;
