// SPDX-License-Identifier: Apache-2.0 OR MIT
// The agent's end of the up ring: many warps produce, the transport consumes in order.
//
//   lanes: an entry each, in shared memory --__syncwarp--> up_store: the warp writes whole 128-byte lines,
//   every word with its phase
#pragma once
#include "fabric/hca/abi.h"

namespace gn { namespace hca {

enum : gn_u32 { UP_WORDS = 16 };

// An entry in shared memory, before it goes out. 16 bytes longer than it is, so that the lanes' entries begin
// in different banks.
struct alignas(16) up_stage {
  gn_u64 w[UP_WORDS + 2];
};

// Reserves `n` consecutive positions. One lane calls it, and its __syncwarp passes the result's ordering on
// to the others. The transport takes entries in order, so a producer must not wait between this call and its
// store. The call waits while the ring is full; the transport always drains it, whatever else it waits for.
GN_DEV gn_u32 up_reserve(ring_ctx& ring, gn_u32 n) {
  gn_u32 first = mem::add_relaxed_cta(&ring.up_tail, n);
  while (first + n - mem::ld_acquire_cta(&ring.up_head_seen) > ring.up_mask + 1) {
    // pairs with the release in UpRing::pop
    gn_u64 head = mem::ld_acquire_sys((const gn_u64*)ring.up_head_addr);
    mem::st_release_cta(&ring.up_head_seen, (gn_u32)head);
    pause(200);
  }
  return first;
}

// What the words say that every entry has.
struct up_fields {
  gn_u32 kind, qpn = 0, index = 0, status = 0, bytes = 0, flags = 0, sum = 0;
};

// Fills in these words. Arguments and payload are left as they are.
GN_DEV void up_fill(gn_u64* w, const up_fields& e) {
  w[0] = (gn_u64)e.kind << 56 | (gn_u64)(e.qpn & 0xffffffu) << 32 | e.index;
  w[1] = now_ns();
  w[2] = (gn_u64)(e.flags & 0xffu) << 32 | e.bytes;
  w[3] = (gn_u64)e.status << 32 | e.sum;
}

// The bits 63 of an entry's even words and of its odd ones, as word 2 has them.
GN_DEV gn_u64 up_top_bits(gn_u32 even, gn_u32 odd) {
  return (gn_u64)even << UP_EVEN_SHIFT | (gn_u64)odd << UP_ODD_SHIFT;
}

// Stores one pair of an entry's words at its position.
GN_DEV void up_store_pair(const ring_ctx& ring, gn_u32 position, gn_u32 pair, gn_u64 a, gn_u64 b) {
  gn_u64 phase = position & (ring.up_mask + 1) ? 0 : (gn_u64)PHASE_BIT;
  up_entry* e = (up_entry*)ring.up_addr + (position & ring.up_mask);
  mem::st_poll2_sys(&e->w[pair * 2], (a & ~(gn_u64)PHASE_BIT) | phase, (b & ~(gn_u64)PHASE_BIT) | phase);
}

// Hands over `count` staged entries to the transport, from `position` on. The whole warp calls it, after a
// __syncwarp. Eight lanes write one entry, so that it crosses PCIe in one piece. If the receiver relies on
// more than the entry's own words, the caller releases that before.
GN_DEV void up_store(const ring_ctx& ring, gn_u32 position, gn_u32 count, const up_stage* stage) {
  gn_u32 pair = lane_id() % 8, shift = lane_id() / 8 * 8;
  for (gn_u32 base = 0; base < count; base += 4) {
    gn_u32 i = base + lane_id() / 8;
    bool mine = i < count;
    gn_u64 a = mine ? stage[i].w[pair * 2] : 0, b = mine ? stage[i].w[pair * 2 + 1] : 0;
    gn_u32 even = __ballot_sync(0xffffffffu, a >> 63 != 0) >> shift & 0xffu,
           odd = __ballot_sync(0xffffffffu, b >> 63 != 0) >> shift & 0xffu;
    if (pair == 1) a |= up_top_bits(even, odd);
    if (mine) up_store_pair(ring, position + i, pair, a, b);
  }
  __syncwarp();  // the staged entries have been read
}

// Entries that a warp keeps to itself for a while: lane i has the words of the i-th that are not zero.
struct up_kept {
  gn_u64 w0 = 0, w2 = 0, w3 = 0;
  gn_u32 count = 0;  // the same in all lanes
};

// Keeps one more entry without payload. The whole warp calls it, with the same values in all lanes.
GN_DEV void up_keep(up_kept& kept, const up_fields& e) {
  gn_u64 w[4];
  up_fill(w, e);
  if (lane_id() == kept.count) kept.w0 = w[0], kept.w2 = w[2], kept.w3 = w[3];
  kept.count += 1;
}

// Hands over the kept entries. The whole warp calls it. All earlier stores of any lane are visible before the
// entries: one fence serves all.
GN_DEV void up_push_together(ring_ctx& ring, up_kept& kept) {
  mem::fence_release_sys();
  gn_u32 first = 0;
  if (lane_id() == 0) first = up_reserve(ring, kept.count);
  first = __shfl_sync(0xffffffffu, first, 0);
  __syncwarp();
  gn_u64 stamp = now_ns();
  for (gn_u32 base = 0; base < kept.count; base += 4) {
    gn_u32 i = base + lane_id() / 8, pair = lane_id() % 8;
    gn_u64 w0 = __shfl_sync(0xffffffffu, kept.w0, (int)i), w2 = __shfl_sync(0xffffffffu, kept.w2, (int)i),
           w3 = __shfl_sync(0xffffffffu, kept.w3, (int)i);
    if (i < kept.count)
      up_store_pair(ring, first + i, pair,
                    pair == 0   ? w0
                    : pair == 1 ? w2
                                : 0,
                    pair == 0   ? stamp
                    : pair == 1 ? w3
                                : 0);
  }
  kept.count = 0;
}

// Pushes one entry without payload, from one lane.
GN_DEV void up_push(ring_ctx& ring, const up_fields& e, gn_u64 arg0 = 0, gn_u64 arg1 = 0) {
  gn_u32 position = up_reserve(ring, 1);
  gn_u64 w[4];
  up_fill(w, e);
  w[2] |= up_top_bits((gn_u32)(arg0 >> 63) << UP_ARG / 2, (gn_u32)(arg1 >> 63) << UP_ARG / 2);
  for (gn_u32 pair = 0; pair < UP_WORDS / 2; ++pair) {
    gn_u64 a = pair == 0   ? w[0]
               : pair == 1 ? w[2]
               : pair == 2 ? arg0
                           : 0,
           b = pair == 0   ? w[1]
               : pair == 1 ? w[3]
               : pair == 2 ? arg1
                           : 0;
    up_store_pair(ring, position, pair, a, b);
  }
}
}}  // namespace gn::hca
