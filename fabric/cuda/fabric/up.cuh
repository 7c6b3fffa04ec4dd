// SPDX-License-Identifier: Apache-2.0 OR MIT
// The agent's end of the up ring: many warps produce, the Rust half consumes in order.
//
//   lanes: an entry each, in shared memory --__syncwarp--> up_store: the warp writes whole 128-byte lines, every word with its phase
#pragma once
#include "fabric/abi.h"

namespace gn { namespace hca {

enum : gn_u32 { UP_WORDS = 16 };

// An entry in shared memory, before it goes out. 16 bytes longer than it is, so that the lanes' entries begin in different banks.
struct alignas(16) up_stage {
  gn_u64 w[UP_WORDS + 2];
};

// Reserves `n` consecutive positions; called by one lane, whose __syncwarp hands the result's ordering to the others.
// Waits while the ring is full: the Rust half always drains it, whatever else it waits for.
GN_DEV gn_u64 up_reserve(ring_ctx& ring, gn_u32 n) {
  gn_u64 first = mem::add_relaxed_gpu(&ring.up_tail, (gn_u64)n);
  gn_u64 size = (gn_u64)ring.up_mask + 1;
  while (first + n - mem::ld_acquire_gpu(&ring.up_head_seen) > size) {
    gn_u64 head = mem::ld_acquire_sys((const gn_u64*)ring.up_head_addr);  // pairs with the release in UpRing::pop
    mem::st_release_gpu(&ring.up_head_seen, head);
    pause(200);
  }
  return first;
}

// Fills in the words every entry has, and clears its arguments. The payload is left as it is.
GN_DEV void up_fill(gn_u64* w, gn_u32 kind, gn_u32 qpn, gn_u32 index, gn_u32 flags, gn_u32 status, gn_u32 bytes, gn_u32 sum) {
  w[0] = (gn_u64)kind << 56 | (gn_u64)(qpn & 0xffffffu) << 32 | index;
  w[1] = now_ns();
  w[2] = (gn_u64)(flags & 0xffu) << 32 | bytes;
  w[3] = (gn_u64)status << 32 | sum;
  w[UP_ARG] = w[UP_ARG + 1] = 0;
}

// Stores one pair of an entry's words at its position. `even` and `odd` have the bits 63 of the whole entry.
GN_DEV void up_store_pair(const ring_ctx& ring, gn_u64 position, gn_u32 pair, gn_u64 a, gn_u64 b, gn_u32 even, gn_u32 odd) {
  gn_u64 phase = (position / ((gn_u64)ring.up_mask + 1)) & 1 ? 0 : (gn_u64)PHASE_BIT;
  if (pair == 1) a |= (gn_u64)even << UP_EVEN_SHIFT | (gn_u64)odd << UP_ODD_SHIFT;
  up_entry* e = (up_entry*)ring.up_addr + (position & ring.up_mask);
  mem::st_poll2_sys(&e->w[pair * 2], (a & ~(gn_u64)PHASE_BIT) | phase, (b & ~(gn_u64)PHASE_BIT) | phase);
}

// Hands `count` staged entries to the Rust half, from `position` on; the whole warp, behind a __syncwarp. Eight lanes write one entry, so
// that it crosses PCIe in one piece. What its receiver may rely on besides the entry's own words has a release before this.
GN_DEV void up_store(const ring_ctx& ring, gn_u64 position, gn_u32 count, const up_stage* stage) {
  gn_u32 pair = lane_id() % 8, shift = lane_id() / 8 * 8;
  for (gn_u32 base = 0; base < count; base += 4) {
    gn_u32 i = base + lane_id() / 8;
    bool mine = i < count;
    gn_u64 a = mine ? stage[i].w[pair * 2] : 0, b = mine ? stage[i].w[pair * 2 + 1] : 0;
    gn_u32 even = __ballot_sync(0xffffffffu, a >> 63 != 0) >> shift & 0xffu, odd = __ballot_sync(0xffffffffu, b >> 63 != 0) >> shift & 0xffu;
    if (mine) up_store_pair(ring, position + i, pair, a, b, even, odd);
  }
  __syncwarp();  // the staged entries have been read
}

// One entry without payload, from the whole warp, whose values are the same; behind a __syncwarp. What any of its lanes has stored before
// is there before the entry.
GN_DEV void up_push_together(ring_ctx& ring, gn_u32 kind, gn_u32 qpn, gn_u32 index, gn_u32 status, gn_u32 bytes, gn_u32 sum) {
  gn_u64 position = 0, w[6];
  if (lane_id() == 0) position = up_reserve(ring, 1);
  position = __shfl_sync(0xffffffffu, position, 0);
  __syncwarp();
  mem::fence_release_sys();
  up_fill(w, kind, qpn, index, 0, status, bytes, sum);
  gn_u32 pair = lane_id();
  if (pair < UP_WORDS / 2) up_store_pair(ring, position, pair, pair == 0 ? w[0] : pair == 1 ? w[2] : 0, pair == 0 ? w[1] : pair == 1 ? w[3] : 0, 0, 0);
}

// One entry without payload, from one lane.
GN_DEV void up_push(ring_ctx& ring, gn_u32 kind, gn_u32 qpn, gn_u32 index, gn_u32 status, gn_u32 bytes, gn_u64 arg0 = 0, gn_u64 arg1 = 0) {
  gn_u64 position = up_reserve(ring, 1), w[6];
  up_fill(w, kind, qpn, index, 0, status, bytes, 0);
  gn_u32 even = (gn_u32)(arg0 >> 63) << UP_ARG / 2, odd = (gn_u32)(arg1 >> 63) << UP_ARG / 2;
  for (gn_u32 pair = 0; pair < UP_WORDS / 2; ++pair) {
    gn_u64 a = pair == 0 ? w[0] : pair == 1 ? w[2] : pair == 2 ? arg0 : 0, b = pair == 0 ? w[1] : pair == 1 ? w[3] : pair == 2 ? arg1 : 0;
    up_store_pair(ring, position, pair, a, b, even, odd);
  }
}

}}  // namespace gn::hca
