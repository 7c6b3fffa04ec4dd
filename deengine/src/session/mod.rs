// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions: how queues and the NVMe controllers that they belong to begin, and how they end.

mod authentication;
mod client_end;
mod fabrics;
mod teardown;
