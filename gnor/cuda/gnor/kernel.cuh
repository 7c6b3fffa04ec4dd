// SPDX-License-Identifier: Apache-2.0 OR MIT
// How a client kernel is defined so that it can run in two ways. One is beside the resident agent. The other
// is as blocks of one grid with it, for tools that never run two kernels at once (compute-sanitizer).
//
//   GN_CLIENT(my_kernel, my_args, my_body)      my_body(my_args&, block, blocks), a device function
//
// defines the kernels `my_kernel(client_launch*)` and `my_kernel_one_grid(client_launch*)`.
#pragma once
#include "fabric/hca/agent.cuh"

namespace gn {

struct client_launch {
  const hca::agent_args* agent;  // used by the one-grid form only
  void* args;
  gn_u32 blocks;                 // client blocks
  gn_u32 done;                   // client blocks that have ended, in the one-grid form
};

// In the one-grid form the last client block asks the agent to end.
GN_DEV void client_block_done(client_launch& l) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (mem::add_acqrel_gpu(&l.done, 1u) + 1 != l.blocks) return;
  for (gn_u32 r = 0; r < l.agent->ring_count; ++r)
    mem::st_release_sys((gn_u32*)l.agent->rings[r].stop_addr, l.agent->launch);
}

}  // namespace gn

#define GN_CLIENT(NAME, ARGS, BODY)                                                       \
  GN_KERNEL NAME(gn::client_launch* l) { BODY(*(ARGS*)l->args, blockIdx.x, l->blocks); }  \
  GN_KERNEL NAME##_one_grid(gn::client_launch* l) {                                       \
    if (blockIdx.x < l->agent->blocks) {                                                  \
      gn::hca::agent_main(*l->agent);                                                     \
    } else {                                                                              \
      BODY(*(ARGS*)l->args, blockIdx.x - l->agent->blocks, l->blocks);                    \
      gn::client_block_done(*l);                                                          \
    }                                                                                     \
  }
