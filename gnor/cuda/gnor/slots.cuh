// SPDX-License-Identifier: Apache-2.0 OR MIT
// Slots: a bitmap in the channel, from which a warp takes up to 32 at once.
#pragma once
#include "gnor/sharing.cuh"

namespace gn {

enum : gn_u32 { NO_SLOT = 0xffffffffu };

// The lowest `n` bits of `mask`, or all it has.
GN_DEV gn_u32 some_of(gn_u32 mask, gn_u32 n) {
  return (gn_u32)__popc(mask) <= n ? mask : mask & ((1u << nth_bit(mask, n)) - 1);
}

// Up to `n` free bits of one word; one thread. Never waits.
template <class S>
GN_DEV gn_u32 bits_take(gn_u32* word, gn_u32 n) {
  gn_u32 seen = S::ld(word);
  while (~seen) {
    gn_u32 want = some_of(~seen, n);
    gn_u32 old = S::or_acqrel(word, want);  // pairs with the release of slots_give
    if (want & ~old) return want & ~old;
    seen = old;
  }
  return 0;
}

// A slot for each lane of `mask` that wants one, NO_SLOT where there are too few; the lanes call it together, and one of them asks for
// all. Never waits: whoever gets none polls and tries again.
template <class S>
GN_DEV gn_u32 slots_take(channel& c, gn_u32 mask, bool want, gn_u32 hint) {
  gn_u32 todo = __ballot_sync(mask, want), slot = NO_SLOT;
  gn_u32 w = __shfl_sync(mask, hint / 32, (int)lowest(mask));  // neighbours begin at the same word, other warps at others
  for (gn_u32 i = 0; i < SLOTS / 32 && todo; ++i, ++w) {
    w %= SLOTS / 32;
    gn_u32 got = 0, rank = (gn_u32)__popc(todo & lt_mask());
    if (lane_id() == lowest(mask)) got = bits_take<S>(&c.slot_bits[w], (gn_u32)__popc(todo));
    got = __shfl_sync(mask, got, (int)lowest(mask));
    if (todo >> lane_id() & 1u && rank < (gn_u32)__popc(got)) slot = w * 32 + nth_bit(got, rank);
    todo = __ballot_sync(mask, want && slot == NO_SLOT);
  }
  __syncwarp(mask);  // the asking lane's acquire reaches the others
  return slot;
}

// Gives back the slot of each lane of `mask` that has `give` set; the lanes call it together.
template <class S>
GN_DEV void slots_give(channel& c, gn_u32 mask, bool give, gn_u32 slot) {
  gn_u32 todo = __ballot_sync(mask, give);
  if (!todo) return;
  __syncwarp(mask);  // what the lanes did with their slots is before the release
  while (todo) {
    gn_u32 w = __shfl_sync(mask, slot / 32, (int)lowest(todo));
    bool here = give && slot / 32 == w;
    gn_u32 bits = __reduce_or_sync(mask, here ? 1u << (slot & 31u) : 0u);
    if (lane_id() == lowest(mask)) S::and_release(&c.slot_bits[w], ~bits);
    todo &= ~__ballot_sync(mask, here);
  }
  if (S::ALONE) __syncwarp(mask);
}

}  // namespace gn
