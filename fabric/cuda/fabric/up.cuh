// SPDX-License-Identifier: Apache-2.0 OR MIT
// The agent's end of the up ring: many warps produce, the Rust half consumes in order.
#pragma once
#include "fabric/abi.h"

namespace gn { namespace hca {

GN_DEV up_entry* up_slot(const ring_ctx& ring, gn_u64 position) {
  return (up_entry*)ring.up_addr + (position & ring.up_mask);
}

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

// Hands an entry that the calling lane has filled in to the Rust half.
GN_DEV void up_publish(up_entry* e, gn_u64 position) {
  mem::st_release_sys(&e->seq, position + 1);  // pairs with the acquire in UpRing::pop
}

// Fills in the words every entry has. The payload is left as it is.
GN_DEV void up_fill(up_entry* e, gn_u32 kind, gn_u32 qpn, gn_u32 index, gn_u32 flags, gn_u32 status, gn_u32 bytes, gn_u32 sum) {
  e->kind = kind;
  e->qpn = qpn;
  e->stamp_ns = now_ns();
  e->index = index;
  e->flags = flags;
  e->status = status;
  e->bytes = bytes;
  e->sum = sum;
}

// One entry without payload, from one lane.
GN_DEV void up_push(ring_ctx& ring, gn_u32 kind, gn_u32 qpn, gn_u32 index, gn_u32 status, gn_u32 bytes, gn_u32 sum) {
  gn_u64 position = up_reserve(ring, 1);
  up_entry* e = up_slot(ring, position);
  up_fill(e, kind, qpn, index, 0, status, bytes, sum);
  up_publish(e, position);
}

}}  // namespace gn::hca
