// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C interface; `include/gnstor.h` is its documentation.
//!
//! A handle is an [`Arc`](std::sync::Arc)'s pointer, and each object holds the one it was made from: the
//! order of closing does not matter. Every function that can fail goes through `failure::guard`: no panic
//! crosses the border, and the error's words are kept for `gn_last_error`.
#![expect(unsafe_code, reason = "the border to C: raw pointers and exported names")]

mod argument;
mod client;
mod failure;
mod file;
mod launch;
mod memory;
mod node;
mod volume;

pub use client::*;
pub use failure::gn_last_error;
pub use file::*;
pub use launch::*;
pub use memory::*;
pub use node::*;
pub use volume::*;

const _: () = {
    const fn used_by_many_threads<T: Send + Sync>() {}
    used_by_many_threads::<NodeHandle>();
    used_by_many_threads::<ClientHandle>();
    used_by_many_threads::<FileHandle>();
    used_by_many_threads::<MemoryHandle>();
};
