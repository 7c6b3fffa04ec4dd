// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ends the kernel with an error.
#pragma once
#include "fabric/arch.cuh"

namespace gn {

#if defined(GN_SIMT_HOST)

// The CPU runtime ends a run at once when a lane waits for a barrier of other lanes only.
GN_DEV void trap() { __syncwarp(~(1u << lane_id())); }

#else

GN_DEV void trap() { asm volatile("trap;"); }

#endif

}  // namespace gn
