// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The formats against the C header, the golden files and the documents.

mod c_header;
mod placement_golden;
mod status_tables;

#[path = "../testing/deadline.rs"]
mod deadline;
