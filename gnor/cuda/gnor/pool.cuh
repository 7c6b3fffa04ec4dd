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

// A page of block `b`, or 0. The first choice follows the hint, so that threads side by side set different bits: an OR then succeeds at
// once, where their compare-and-swaps of one word would fail each other.
GN_DEV gn_u64 pool_take_page(pool& p, gn_u32 b, gn_u32 hint) {
  gn_u32* word = (gn_u32*)p.words_addr + b;
  gn_u32 seen = mem::ld_relaxed_gpu(word), turn = hint % POOL_PAGES;
  while (!(seen & POOL_WHOLE) && (seen & POOL_PAGE_MASK) != POOL_PAGE_MASK) {
    gn_u32 open = ~seen & POOL_PAGE_MASK;
    gn_u32 at = ((gn_u32)__ffs((int)(open >> turn | open << (POOL_PAGES - turn))) - 1 + turn) % POOL_PAGES;
    gn_u32 old = mem::or_acqrel_gpu(word, 1u << at);  // pairs with the CAS of pool_free
    if (old & POOL_WHOLE) {  // it was given out whole in between; the bit means nothing there
      if (!(old >> at & 1u)) mem::and_release_gpu(word, ~(1u << at));  // only a bit of our own
      return 0;
    }
    if (!(old >> at & 1u)) return p.base + (gn_u64)b * POOL_BLOCK + at * POOL_PAGE;
    seen = old;
  }
  return 0;
}

// Lowest position of `n` free pages side by side in `mask`, or POOL_PAGES.
GN_DEV gn_u32 pool_run(gn_u32 mask, gn_u32 n) {
  gn_u32 want = (1u << n) - 1;
  for (gn_u32 at = 0; at + n <= POOL_PAGES; ++at)
    if ((mask & (want << at)) == 0) return at;
  return POOL_PAGES;
}

// `pages` pages side by side of block `b`, or all of it; 0 if there is no such run.
GN_DEV gn_u64 pool_take_run(pool& p, gn_u32 b, gn_u32 pages) {
  gn_u32* word = (gn_u32*)p.words_addr + b;
  gn_u32 seen = mem::ld_relaxed_gpu(word);
  for (;;) {
    gn_u32 next = POOL_WHOLE, offset = 0;
    if (pages == POOL_PAGES) {
      if (seen != 0) return 0;
    } else {
      gn_u32 at = seen & POOL_WHOLE ? (gn_u32)POOL_PAGES : pool_run(seen & POOL_PAGE_MASK, pages);
      if (at == POOL_PAGES) return 0;
      next = seen | ((1u << pages) - 1) << at;
      offset = at * POOL_PAGE;
    }
    gn_u32 old = mem::cas_acqrel_gpu(word, seen, next);  // pairs with the CAS of pool_free
    if (old == seen) return p.base + (gn_u64)b * POOL_BLOCK + offset;
    seen = old;
  }
}

// `bytes` of registered memory, contiguous, at most 64 KiB; 0 if there is none. Threads whose hints are close share blocks, so that
// small buffers split few of them.
GN_DEV gn_u64 pool_alloc(pool& p, gn_u32 bytes, gn_u32 hint) {
  if (bytes == 0 || bytes > POOL_BLOCK) return 0;
  gn_u32 pages = (bytes + POOL_PAGE - 1) / POOL_PAGE;
  gn_u32 home = hint / POOL_PAGES;
  for (gn_u32 i = 0; i < p.blocks; ++i) {
    // Large buffers start at the other end, away from blocks that are split.
    gn_u32 b = pages == POOL_PAGES ? p.blocks - 1 - (hint + i) % p.blocks : (home + i) % p.blocks;
    gn_u64 got = pages == 1 ? pool_take_page(p, b, hint) : pool_take_run(p, b, pages);
    if (got) return got;
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
