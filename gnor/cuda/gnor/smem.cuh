// SPDX-License-Identifier: Apache-2.0 OR MIT
// A channel that one block has to itself may lie in the block's shared memory while its kernel runs. Its
// words are touched a dozen times for each batch, one after the other. Device memory is ten times as far
// away: a warp that takes completions acquires, and an acquire empties the L1.
//
//   load_smem        device memory --> shared memory       all threads; then none uses the old place
//   write_back   shared memory --> device memory       all threads, after their last use
//
// Queues, capsules, doorbell pages and pool are the HCA's too and stay where they are. Only what device code
// keeps of them moves. What it keeps of DUMPs, which few channels need, does not.
#pragma once
#include "gnor/append.cuh"

namespace gn {

struct smem_channel {
  channel c;
  queue_pair qps[MAX_SSDS];
};
static_assert(sizeof(channel) % 8 == 0 && sizeof(queue_pair) % 8 == 0, "copied word by word");

// The threads of the block together, eight bytes each in turn.
GN_DEV void copy_words(void* to, const void* from, gn_u32 bytes) {
  for (gn_u32 i = threadIdx.x; i < bytes / 8; i += blockDim.x) ((gn_u64*)to)[i] = ((const gn_u64*)from)[i];
}

GN_DEV channel& load_smem(const channel& home, smem_channel& room) {
  __syncthreads();  // no thread of the block uses it now
  copy_words(&room.c, &home, (gn_u32)sizeof(channel));
  copy_words(room.qps, (const void*)home.qps_addr, home.ssds * (gn_u32)sizeof(queue_pair));
  __syncthreads();
  if (threadIdx.x == 0) room.c.qps_addr = (gn_u64)room.qps;
  __syncthreads();
  return room.c;
}

GN_DEV void write_back(channel& home, smem_channel& room) {
  gn_u64 qps_addr = home.qps_addr;
  __syncthreads();
  if (threadIdx.x == 0) room.c.qps_addr = qps_addr;
  __syncthreads();
  copy_words((void*)qps_addr, room.qps, room.c.ssds * (gn_u32)sizeof(queue_pair));
  copy_words(&home, &room.c, (gn_u32)sizeof(channel));
  __syncthreads();
}

}  // namespace gn
