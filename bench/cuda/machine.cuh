// SPDX-License-Identifier: Apache-2.0 OR MIT
// What only a GPU has, and what stands for it in the CPU execution.
#pragma once
#include "fabric/arch.cuh"

namespace gn {

#if defined(GN_SIMT_HOST)

// None: the device is a thread.
GN_DEV gn_u32 multiprocessors() { return 0; }

#else

// Numbers that a multiprocessor can have: on some GPUs more than there are.
GN_DEV gn_u32 multiprocessors() {
  gn_u32 count;
  asm("mov.u32 %0, %%nsmid;" : "=r"(count));
  return count;
}

#endif

}  // namespace gn
