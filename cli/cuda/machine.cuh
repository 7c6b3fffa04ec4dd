// SPDX-License-Identifier: Apache-2.0 OR MIT
// What only a GPU has, and what stands for it in the CPU execution.
#pragma once
#include "fabric/arch.cuh"

namespace gn {

#if defined(GN_SIMT_HOST)

// None: the device is a thread.
GN_DEV gn_u32 multiprocessors() { return 0; }

// What the CPU's runtime ends a run for at once: a barrier of others.
GN_DEV void trap() { __syncwarp(~(1u << lane_id())); }

#else

// Numbers that a multiprocessor can have: on some GPUs more than there are.
GN_DEV gn_u32 multiprocessors() {
  gn_u32 count;
  asm("mov.u32 %0, %%nsmid;" : "=r"(count));
  return count;
}

GN_DEV void trap() { asm volatile("trap;"); }

#endif

}  // namespace gn
