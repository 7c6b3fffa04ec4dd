// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of the translation layer, in modelled time: what collection costs, and what presets promise.

mod collection;
mod figures;

#[path = "../benches/common/mod.rs"]
mod common;
#[path = "../../testing/deadline.rs"]
mod deadline;
#[path = "../../testing/long.rs"]
mod long;
