// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A user's kernels: the examples of libgnstor and the tests' own (`device/user.cu`), for the CPU execution.

use libgnstor::{ClientKernel, Kernel};
use std::ffi::c_void;

macro_rules! kernel {
    ($name:ident, $one_grid:ident, $what:literal) => {
        #[doc = $what]
        pub fn $name() -> ClientKernel {
            #[expect(unsafe_code, reason = "the kernel's entries for the CPU execution")]
            mod entry {
                use std::ffi::c_void;
                unsafe extern "C" {
                    pub(super) fn $name(launch: *mut c_void);
                    pub(super) fn $one_grid(launch: *mut c_void);
                }
            }
            #[expect(unsafe_code, reason = "forwards to the C++ entry")]
            unsafe extern "C" fn beside_agent(launch: *mut c_void) {
                // SAFETY: called by the CPU runtime with the launch's argument.
                unsafe { entry::$name(launch) }
            }
            #[expect(unsafe_code, reason = "forwards to the C++ entry")]
            unsafe extern "C" fn one_grid(launch: *mut c_void) {
                // SAFETY: called by the CPU runtime with the launch's argument.
                unsafe { entry::$one_grid(launch) }
            }
            ClientKernel {
                beside_agent: Kernel { name: stringify!($name), image: &[], host: beside_agent },
                one_grid: Kernel { name: stringify!($one_grid), image: &[], host: one_grid },
            }
        }
    };
}

kernel!(read_volume, read_volume_one_grid, "`libgnstor/examples/read_volume.cu`.");
kernel!(read_async, read_async_one_grid, "`libgnstor/examples/read_async.cu`.");
kernel!(gn_test_user, gn_test_user_one_grid, "`tests/device/user.cu`.");
kernel!(gn_test_pieces, gn_test_pieces_one_grid, "`tests/device/user.cu`: buffers in pieces.");
kernel!(gn_test_together, gn_test_together_one_grid, "`tests/device/user.cu`: one range by many threads.");
kernel!(gn_test_follow, gn_test_follow_one_grid, "`tests/device/follow.cu`.");
