// SPDX-License-Identifier: Apache-2.0 OR MIT
// The unordered mode: inbound data waits until its owner's queue pair executes a DUMP, long after the completion that speaks of it.
//
// A NIC may do so where writes to GPU memory are not ordered (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING): a client that
// trusts its completions reads old bytes there, now and then. Here it does every time, so that a test can find it.
//
//   mover: copy to a place in the table --FULL--> report, response, completion ... DUMP: front end copies to where it belongs --FREE-->
//
// A copy that finds no place, or is longer than one, goes to where it belongs at once: "late" is what a NIC may be, not what it must.
#pragma once
#include "fabric/abi.h"

namespace gn { namespace hca {

GN_DEV held_ctx* held_table(const agent_args& a) { return (held_ctx*)a.held_addr + (gn_u64)blockIdx.x * a.held_places; }

// The data's place: behind the tables of all blocks, one after the other.
GN_DEV gn_u8* held_data(const agent_args& a, const held_ctx* place) {
  held_ctx* first = (held_ctx*)a.held_addr;
  return (gn_u8*)(first + (gn_u64)a.blocks * a.held_places) + (gn_u64)(place - first) * HELD_BYTES;
}

// Takes a free place for data that belongs at `to`; null where the data is not to wait. The whole warp.
GN_DEV held_ctx* hold(const agent_args& a, gn_u32 qpn, gn_u64 to, gn_u32 bytes) {
  if (a.held_places == 0 || bytes > HELD_BYTES) return nullptr;
  held_ctx* table = held_table(a);
  for (gn_u32 base = 0; base < a.held_places; base += 32) {
    gn_u32 at = base + lane_id();
    bool is_free = at < a.held_places && mem::ld_relaxed_gpu(&table[at].state) == HELD_FREE;
    for (gn_u32 todo = __ballot_sync(0xffffffffu, is_free); todo; todo &= todo - 1) {
      gn_u32 which = (gn_u32)__ffs((int)todo) - 1, got = 0;
      held_ctx* place = table + base + which;
      if (lane_id() == which) {
        got = mem::cas_acqrel_gpu(&place->state, (gn_u32)HELD_FREE, (gn_u32)HELD_FILLING) == HELD_FREE;  // pairs with `release_held`
        if (got) {
          place->to = to;
          place->qpn = qpn;
          place->bytes = bytes;
        }
      }
      got = __shfl_sync(0xffffffffu, got, (int)which);
      __syncwarp();
      if (got) return place;
    }
  }
  return nullptr;
}

}}  // namespace gn::hca
