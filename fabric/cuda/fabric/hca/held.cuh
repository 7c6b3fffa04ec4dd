// SPDX-License-Identifier: Apache-2.0 OR MIT
// The unordered mode: inbound data waits until its owner's queue pair executes a DUMP, long after the
// completion that announces it.
//
// A NIC may behave so if writes to GPU memory are not ordered
// (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING). Then a client that trusts its completions reads old
// bytes now and then. In this mode it does so every time, so that a test can find it.
//
//   mover: copy to a place in the table --FULL--> report, response, completion
//   DUMP:  front end copies to where it belongs --FREE-->
//
// Messages may wait, too (`held_messages`). That finds a client that reads a response before its DUMP. If
// data finds no place, or is longer than one, it goes to its destination at once.
#pragma once
#include "fabric/hca/abi.h"

namespace gn { namespace hca {

enum : gn_u32 { NO_PLACE = 0xffffffffu };

// Place number `which` of this ring.
GN_DEV held_ctx* held_place(const agent_args& a, gn_u32 which) {
  return (held_ctx*)a.held_addr + (gn_u64)a.ring * HELD_PLACES + which;
}

// Place of the data: after the tables of all rings, one after the other.
GN_DEV gn_u8* held_data(const agent_args& a, gn_u32 which) {
  gn_u64 tables = (gn_u64)a.ring_count * HELD_PLACES * sizeof(held_ctx);
  return (gn_u8*)a.held_addr + tables + ((gn_u64)a.ring * HELD_PLACES + which) * HELD_BYTES;
}

// Takes a free place for data whose destination is `to`; NO_PLACE if the data must not wait. The whole warp
// calls it.
GN_DEV gn_u32 hold(const agent_args& a, gn_u32 qpn, gn_u64 to, gn_u32 bytes) {
  if (bytes > HELD_BYTES) return NO_PLACE;
#pragma unroll 1
  for (gn_u32 base = 0; base < HELD_PLACES; base += 32) {
    gn_u32 at = base + lane_id();
    bool is_free = mem::ld_relaxed_gpu(&held_place(a, at)->state) == HELD_FREE;
    for (gn_u32 todo = __ballot_sync(0xffffffffu, is_free); todo; todo &= todo - 1) {
      gn_u32 which = (gn_u32)__ffs((int)todo) - 1, got = 0;
      if (lane_id() == which) {
        held_ctx* place = held_place(a, at);
        // pairs with `release_held`
        got = mem::cas_acqrel_gpu(&place->state, (gn_u32)HELD_FREE, (gn_u32)HELD_FILLING) == HELD_FREE;
        if (got) {
          place->to = to;
          place->qpn = qpn;
          place->bytes = bytes;
        }
      }
      got = __shfl_sync(0xffffffffu, got, (int)which);
      __syncwarp();
      if (got) return base + which;
    }
  }
  return NO_PLACE;
}

// The same for the 16 bytes of a message; false if they must not wait. One lane calls it.
GN_DEV bool hold_message(const agent_args& a, gn_u32 qpn, gn_u64 to, const gn_u32 (&v)[4]) {
#pragma unroll 1
  for (gn_u32 i = 0; i < HELD_PLACES; i += 32) {
    gn_u32 at = i + lane_id();  // each lane has its own
    held_ctx* place = held_place(a, at);
    if (mem::ld_relaxed_gpu(&place->state) != HELD_FREE) continue;
    // pairs with `release_held`
    if (mem::cas_acqrel_gpu(&place->state, (gn_u32)HELD_FREE, (gn_u32)HELD_FILLING) != HELD_FREE) continue;
    place->to = to;
    place->qpn = qpn;
    place->bytes = 16;
    mem::st16(held_data(a, at), v);
    mem::st_release_gpu(&place->state, (gn_u32)HELD_FULL);  // pairs with the acquire in `release_held`
    return true;
  }
  return false;
}

// From here on no waiting data is copied for this queue pair. What it has in flight is about to end, and its
// owner may reuse the memory. One lane calls it, after any DUMP in progress.
GN_DEV void close_held(const agent_args& a, qp_ctx& qp) {
  if (!a.held_addr) return;
  mem::or_acqrel_gpu(&qp.held_guard, (gn_u32)HELD_CLOSED);
  // pairs with the release in release_held
  while (mem::ld_acquire_gpu(&qp.held_guard) & HELD_COPYING) pause(20);
}

// Executes a DUMP of this queue pair: copies its waiting data to the destinations. The whole warp calls it;
// the lane that reports the DUMP releases the data.
GN_DEV void release_held(const agent_args& a, qp_ctx& qp) {
  gn_u32 guard = 0;
  if (lane_id() == 0) guard = mem::or_acqrel_gpu(&qp.held_guard, (gn_u32)HELD_COPYING);
  if (__shfl_sync(0xffffffffu, guard, 0) & HELD_CLOSED) return;
#pragma unroll 1
  for (gn_u32 base = 0; base < HELD_PLACES; base += 32) {
    gn_u32 at = base + lane_id();
    bool ours =
        mem::ld_acquire_gpu(&held_place(a, at)->state) == HELD_FULL && held_place(a, at)->qpn == qp.qpn;
    gn_u32 todo = __ballot_sync(0xffffffffu, ours);
    __syncwarp();  // the acquires reach the lanes that copy
    for (; todo; todo &= todo - 1) {
      gn_u32 which = base + (gn_u32)__ffs((int)todo) - 1;
      held_ctx* place = held_place(a, which);
      gn_u8 *to = (gn_u8*)place->to, *from = held_data(a, which);
      // Byte by byte: speed does not matter here, and registers of the front end cost registers of every
      // agent thread.
      for (gn_u32 i = lane_id(); i < place->bytes; i += 32) to[i] = mem::ld_relaxed_gpu(from + i);
      __syncwarp();
      if (lane_id() == 0) mem::st_release_gpu(&place->state, (gn_u32)HELD_FREE);
    }
  }
  __syncwarp();
  if (lane_id() == 0) mem::and_release_gpu(&qp.held_guard, ~(gn_u32)HELD_COPYING);
}

}}  // namespace gn::hca
