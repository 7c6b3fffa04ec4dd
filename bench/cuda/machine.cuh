// SPDX-License-Identifier: Apache-2.0 OR MIT
// What only a GPU has, and what stands for it in the CPU execution.
#pragma once
#include "fabric/arch.cuh"

namespace gn {

#if defined(GN_SIMT_HOST)

// The CPU has no multiprocessors: the device is a thread.
GN_DEV gn_u32 multiprocessors() { return 0; }

#else

// The range of multiprocessor numbers. On some GPUs it is larger than their count.
GN_DEV gn_u32 multiprocessors() {
  gn_u32 count;
  asm("mov.u32 %0, %%nsmid;" : "=r"(count));
  return count;
}

#endif

}  // namespace gn
