// SPDX-License-Identifier: Apache-2.0 OR MIT
// Command ids and request slots: bitmaps in the channel, taken and returned with one atomic.
#pragma once
#include "gnor/abi.h"

namespace gn {

enum : gn_u32 { NO_SLOT = 0xffffffffu };

// A free bit of `words` bitmap words, or NO_SLOT. Never waits: whoever finds nothing free submits what it has and polls.
GN_DEV gn_u32 slot_take(gn_u32* bits, gn_u32 words, gn_u32 hint) {
  for (gn_u32 i = 0; i < words; ++i) {
    gn_u32 w = (hint / 32 + i) % words;
    gn_u32 seen = mem::ld_relaxed_gpu(&bits[w]);
    while (~seen) {
      gn_u32 turn = hint & 31u;
      gn_u32 open = ~seen;
      gn_u32 rotated = turn ? (open >> turn | open << (32 - turn)) : open;
      gn_u32 b = ((gn_u32)__ffs((int)rotated) - 1 + turn) & 31u;
      gn_u32 old = mem::or_acqrel_gpu(&bits[w], 1u << b);  // pairs with the release of slot_give
      if (!(old >> b & 1u)) return w * 32 + b;
      seen = old | 1u << b;
    }
  }
  return NO_SLOT;
}

GN_DEV void slot_give(gn_u32* bits, gn_u32 slot) { mem::and_release_gpu(&bits[slot / 32], ~(1u << (slot & 31u))); }

}  // namespace gn
