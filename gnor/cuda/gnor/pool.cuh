// SPDX-License-Identifier: Apache-2.0 OR MIT
// The channel's buffer pool (paper 4.2): pre-registered memory, allocated in kernels by compare-and-swap alone.
//
// One 32-bit word describes a 64 KiB block:
//
//    31..17      16        15..0
//   +--------+---------+-----------+
//   |   0    |  WHOLE  | page mask |     WHOLE: given out as 64 KiB; a mask bit: that 4 KiB page is given out
//   +--------+---------+-----------+
//
// Splitting a block is setting its first mask bit, merging is clearing the last one: both levels live in one word, so
// there is no moment at which a block is in neither.
#pragma once
#include "gnor/abi.h"

namespace gn {

enum : gn_u32 { POOL_PAGE = 4096, POOL_BLOCK = 65536, POOL_PAGES = 16, POOL_WHOLE = 1u << 16, POOL_PAGE_MASK = 0xffffu };

// Lowest position of `n` free pages side by side in `mask`, or POOL_PAGES.
GN_DEV gn_u32 pool_run(gn_u32 mask, gn_u32 n) {
  gn_u32 want = (1u << n) - 1;
  for (gn_u32 at = 0; at + n <= POOL_PAGES; ++at)
    if ((mask & (want << at)) == 0) return at;
  return POOL_PAGES;
}

// `bytes` of registered memory, contiguous, at most 64 KiB; 0 if there is none. `hint` spreads the callers.
GN_DEV gn_u64 pool_alloc(pool& p, gn_u32 bytes, gn_u32 hint) {
  if (bytes == 0 || bytes > POOL_BLOCK) return 0;
  gn_u32 pages = (bytes + POOL_PAGE - 1) / POOL_PAGE;
  gn_u32* words = (gn_u32*)p.words_addr;
  // Small buffers fill blocks that are split already before they split another one.
  for (gn_u32 pass = pages == POOL_PAGES ? 1 : 0; pass < 2; ++pass) {
    for (gn_u32 i = 0; i < p.blocks; ++i) {
      gn_u32 b = (hint + i) % p.blocks;
      gn_u32 seen = mem::ld_relaxed_gpu(&words[b]);
      for (;;) {
        gn_u32 next, offset = 0;
        if (pages == POOL_PAGES) {
          if (seen != 0) break;
          next = POOL_WHOLE;
        } else {
          if ((seen & POOL_WHOLE) || (pass == 0 && seen == 0)) break;
          gn_u32 at = pool_run(seen & POOL_PAGE_MASK, pages);
          if (at == POOL_PAGES) break;
          next = seen | (((1u << pages) - 1) << at);
          offset = at * POOL_PAGE;
        }
        gn_u32 old = mem::cas_acqrel_gpu(&words[b], seen, next);  // pairs with the CAS of pool_free
        if (old == seen) return p.base + (gn_u64)b * POOL_BLOCK + offset;
        seen = old;
      }
    }
  }
  return 0;
}

// Gives a buffer back. `bytes` is what was asked for.
GN_DEV void pool_free(pool& p, gn_u64 address, gn_u32 bytes) {
  gn_u64 offset = address - p.base;
  gn_u32 b = (gn_u32)(offset / POOL_BLOCK), at = (gn_u32)(offset % POOL_BLOCK) / POOL_PAGE;
  gn_u32 pages = (bytes + POOL_PAGE - 1) / POOL_PAGE;
  gn_u32 bits = pages == POOL_PAGES ? (gn_u32)POOL_WHOLE : ((1u << pages) - 1) << at;
  gn_u32* word = (gn_u32*)p.words_addr + b;
  gn_u32 seen = mem::ld_relaxed_gpu(word);
  for (;;) {
    gn_u32 old = mem::cas_acqrel_gpu(word, seen, seen & ~bits);
    if (old == seen) return;
    seen = old;
  }
}

GN_DEV bool pool_owns(const pool& p, gn_u64 address) {
  return address >= p.base && address - p.base < (gn_u64)p.blocks * POOL_BLOCK;
}

}  // namespace gn
