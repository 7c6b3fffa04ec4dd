// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device headers of GNoR, compiled for the CPU.

mod device;
mod layout;
mod placement;
