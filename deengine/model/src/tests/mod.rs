// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the model, all in virtual time.

mod calendars;
mod figures;
mod lanes;
mod settings;
mod times;
mod toml_files;
mod write_buffers;
