// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the model, all in virtual time.

mod calendars;
#[path = "../../../testing/deadline.rs"]
mod deadline;
mod figures;
mod links;
mod settings;
mod times;
mod toml_files;
mod write_buffers;

pub(crate) use deadline::deadline;
