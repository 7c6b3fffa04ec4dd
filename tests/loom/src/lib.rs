// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of the crate `gnstor-fabric`, compiled without the rest of that crate, for tests under loom.

#[path = "../../../fabric/src/hca/abi.rs"]
pub mod abi;
#[path = "../../../fabric/src/hca/ring.rs"]
pub mod ring;
