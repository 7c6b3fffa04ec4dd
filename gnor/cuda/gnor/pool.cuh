// SPDX-License-Identifier: Apache-2.0 OR MIT
// The channel's buffer pool (paper 4.2): pre-registered memory, allocated in kernels by compare-and-swap
// alone.
//
// One 32-bit word describes a 64 KiB block:
//
//    31..17      16        15..0
//   +--------+---------+-----------+
//   |  held  |  WHOLE  | page mask |     WHOLE: given out as 64 KiB; a mask bit: that 4 KiB page is given out
//   +--------+---------+-----------+     held: requests that were given up and may still write here
//
// A buffer is its owner's until it is given back, also where a request on it was given up. Then its blocks
// are held until the late completion has come (protocol rule 9). Nothing of a block that is held is given
// out. Splitting a block is setting its first mask bit, merging is clearing the last one. Both levels live in
// one word, so there is no moment at which a block is in neither. Longer buffers are neighbouring whole
// blocks, at most 1 MiB. A pool that is found empty asks the CPU for more memory behind its range, and goes
// on (decision 16).
#pragma once
#include "gnor/sharing.cuh"

namespace gn {

enum : gn_u32 {
  POOL_PAGE = 4096,
  POOL_BLOCK = 65536,
  POOL_PAGES = 16,
  POOL_WHOLE = 1u << 16,
  POOL_HELD = 1u << 17,
  POOL_PAGE_MASK = 0xffffu
};
enum : gn_u32 { POOL_LONGEST = 1u << 20, POOL_NEAR = 8 };

GN_DEV gn_u32* pool_word(const pool& p, gn_u32 b) { return (gn_u32*)p.words_addr + b; }

// Takes a page of block `b`; 0 if there is none. The first choice follows the hint, so that neighbouring
// threads set different bits. Then an OR succeeds at once, while compare-and-swaps of one word would make
// each other fail.
template <class S>
GN_DEV gn_u64 pool_take_page(const pool& p, gn_u32 b, gn_u32 hint) {
  gn_u32* word = pool_word(p, b);
  gn_u32 seen = S::ld(word), turn = hint % POOL_PAGES;
  while (seen < POOL_PAGE_MASK) {
    gn_u32 open = ~seen & POOL_PAGE_MASK;
    gn_u32 at = (lowest(open >> turn | open << (POOL_PAGES - turn)) + turn) % POOL_PAGES;
    gn_u32 old = S::or_acqrel(word, 1u << at);  // pairs with the release of pool_clear
    if (old > POOL_PAGE_MASK) {  // it was given out whole in between, or is held; the bit means nothing there
      if (!(old >> at & 1u)) S::and_release(word, ~(1u << at));  // only a bit of our own
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

// `pages` pages side by side of block `b`, fewer than a block has; 0 if there is no such run.
template <class S>
GN_DEV gn_u64 pool_take_run(const pool& p, gn_u32 b, gn_u32 pages) {
  gn_u32* word = pool_word(p, b);
  gn_u32 seen = S::ld(word);
  for (;;) {
    gn_u32 at = seen > POOL_PAGE_MASK ? (gn_u32)POOL_PAGES : pool_run(seen, pages);
    if (at == POOL_PAGES) return 0;
    gn_u32 old = S::cas_acqrel(word, seen, seen | ((1u << pages) - 1) << at);  // pairs with pool_clear
    if (old == seen) return p.base + (gn_u64)b * POOL_BLOCK + at * POOL_PAGE;
    seen = old;
  }
}

// Clears bits of a block's word.
template <class S>
GN_DEV void pool_clear(const pool& p, gn_u32 b, gn_u32 bits) {
  gn_u32* word = pool_word(p, b);
  gn_u32 seen = S::ld(word);
  for (;;) {
    gn_u32 old = S::cas_acqrel(word, seen, seen & ~bits);
    if (old == seen) return;
    seen = old;
  }
}

// Takes blocks b..b+n as one buffer. If one of them is not free, it gives the previous ones back and returns
// 0. The order is ascending. So of two threads that want overlapping runs, one finds the other's first block
// taken, and holds nothing that the other needs.
template <class S>
GN_DEV gn_u64 pool_take_blocks(const pool& p, gn_u32 b, gn_u32 n) {
  for (gn_u32 i = 0; i < n; ++i) {
    if (S::ld(pool_word(p, b + i)) == 0u && S::cas_acqrel(pool_word(p, b + i), 0u, (gn_u32)POOL_WHOLE) == 0u)
      continue;
    while (i--) pool_clear<S>(p, b + i, POOL_WHOLE);
    return 0;
  }
  return p.base + (gn_u64)b * POOL_BLOCK;
}

// Takes the memory that the host has granted, or asks for twice as much. Returns whether there is more than
// `blocks` now. Of all threads that find the pool empty at once, one asks. No thread waits here.
template <class S>
GN_DEV bool pool_grow(pool& p, gn_u32 blocks) {
  if (!p.host_addr || blocks >= p.most) return false;
  pool_host& host = *(pool_host*)p.host_addr;
  gn_u32 granted = mem::ld_acquire_sys(&host.granted);  // pairs with the host's release: the memory is there
  if (granted > blocks) {
    S::cas_acqrel(&p.blocks, blocks, granted);
    return true;
  }
  gn_u32 want = 2 * blocks < p.most ? 2 * blocks : p.most, asked = S::ld(&p.asked);
  if (asked < want && S::cas(&p.asked, asked, want) == asked) mem::st_release_sys(&host.asked, want);
  return false;
}

// Takes fewer pages than a block has, from one block. Blocks that are split already fit best. So split blocks
// near the hint are tried before another one is split.
template <class S>
GN_DEV gn_u64 pool_find_pages(const pool& p, gn_u32 blocks, gn_u32 pages, gn_u32 hint) {
  gn_u32 home = hint / POOL_PAGES, near = blocks < POOL_NEAR ? blocks : (gn_u32)POOL_NEAR;
  for (gn_u32 i = 0; i < near + blocks; ++i) {
    gn_u32 b = (home + (i < near ? i : i - near)) % blocks;
    if (i < near && S::ld(pool_word(p, b)) == 0u) continue;
    gn_u64 got = pages == 1 ? pool_take_page<S>(p, b, hint) : pool_take_run<S>(p, b, pages);
    if (got) return got;
  }
  return 0;
}

// `bytes` within the pool's first `blocks`, or 0.
template <class S>
GN_DEV gn_u64 pool_find(const pool& p, gn_u32 blocks, gn_u32 bytes, gn_u32 hint) {
  gn_u32 pages = (bytes + POOL_PAGE - 1) / POOL_PAGE, n = (pages + POOL_PAGES - 1) / POOL_PAGES;
  if (n > blocks) return 0;
  if (pages < POOL_PAGES) return pool_find_pages<S>(p, blocks, pages, hint);
  gn_u32 places = (blocks - n) / n + 1;
  // Large buffers start at the other end, away from blocks that are split, and side by side; then wherever
  // they fit.
  for (gn_u32 i = 0; i < places; ++i) {
    gn_u64 got = pool_take_blocks<S>(p, blocks - n - (hint + i) % places * n, n);
    if (got) return got;
  }
  for (gn_u32 b = 0; n > 1 && b + n <= blocks; ++b) {
    gn_u64 got = pool_take_blocks<S>(p, b, n);
    if (got) return got;
  }
  return 0;
}

// Takes `bytes` of registered memory, contiguous, at most 1 MiB; 0 if there is none. Threads with close hints
// share blocks, so that small buffers split few of them. If nothing is atomic, one thread at a time calls it.
template <class S>
GN_DEV gn_u64 pool_alloc(pool& p, gn_u32 bytes, gn_u32 hint) {
  if (bytes == 0 || bytes > POOL_LONGEST) return 0;
  for (;;) {
    gn_u32 blocks = S::ld_acquire(&p.blocks);  // pairs with pool_grow
    gn_u64 got = pool_find<S>(p, blocks, bytes, hint);
    if (got || !pool_grow<S>(p, blocks)) return got;
  }
}

// Gives a buffer back. `bytes` is the number from the allocation. If nothing is atomic, one thread at a time
// calls it.
template <class S>
GN_DEV void pool_free(const pool& p, gn_u64 address, gn_u32 bytes) {
  gn_u64 offset = address - p.base;
  gn_u32 b = (gn_u32)(offset / POOL_BLOCK), at = (gn_u32)(offset % POOL_BLOCK) / POOL_PAGE;
  gn_u32 pages = (bytes + POOL_PAGE - 1) / POOL_PAGE;
  if (pages < POOL_PAGES) return pool_clear<S>(p, b, ((1u << pages) - 1) << at);
  for (gn_u32 n = (pages + POOL_PAGES - 1) / POOL_PAGES; n--; ++b) pool_clear<S>(p, b, POOL_WHOLE);
}

// Adds POOL_HELD, or its negative, to the words of the buffer's blocks: one more or one fewer request holds
// them.
template <class S>
GN_DEV void pool_hold(const pool& p, gn_u64 address, gn_u32 bytes, gn_u32 by) {
  gn_u64 first = (address - p.base) / POOL_BLOCK, last = (address - p.base + bytes - 1) / POOL_BLOCK;
  for (gn_u64 b = first; b <= last && b < p.most; ++b) S::add_acqrel(pool_word(p, (gn_u32)b), by);
}

GN_DEV bool pool_owns(const pool& p, gn_u64 address) {
  return address >= p.base && address - p.base < (gn_u64)p.most * POOL_BLOCK;
}

}  // namespace gn
