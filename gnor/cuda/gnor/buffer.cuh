// SPDX-License-Identifier: Apache-2.0 OR MIT
// Buffers of several pieces (paper 4.2). A kernel that can do with memory that is not contiguous takes them
// when the pool has room, but no room side by side. A command has one descriptor, so a request is cut where a
// piece ends, too. Every piece is an RDMA operation of its own (decision 31).
#pragma once
#include "gnor/pool.cuh"

namespace gn {

enum : gn_u32 { MOST_PIECES = 16, IN_PIECES = 1 };

// Places of the pieces: pages for a buffer of up to 64 KiB, blocks for a longer one; or the whole buffer is
// one piece. Requests refer to it by its address, so it must not move or change while they run. If other
// threads advance them (submit_async), it must be in global memory.
struct alignas(16) buffer {
  gn_u64 base;              // the pool's, or the buffer's if it is contiguous
  gn_u32 pages;             // 4 KiB each; 0: none
  gn_u32 shift;             // log2 of the pages of a piece: 0, 4, or 8 if there is only one
  gn_u16 piece[MOST_PIECES];  // in pieces from `base`

  // Place of byte `offset`, which must be in the buffer. The rest of its page follows.
  GN_DEV gn_u64 at(gn_u32 offset) const {
    gn_u32 page = offset / POOL_PAGE, within = page & ((1u << shift) - 1);
    return base + ((gn_u64)piece[page >> shift] << shift | within) * POOL_PAGE + offset % POOL_PAGE;
  }
};
static_assert(sizeof(buffer) == 48, "");
enum : gn_u32 { PIECE_PAGE = 0, PIECE_BLOCK = 4, PIECE_ALL = 8 };

// How a request names its data: by an address, or by a buffer and a page. The page, at which the data begins,
// is above the 56 bits that an address has.
enum : gn_u32 { FIRST_AT = 56 };
GN_DEV bool in_pieces(gn_u64 name) { return name & IN_PIECES; }
GN_DEV gn_u64 name_of(const buffer& b, gn_u32 first) {
  return (gn_u64)first << FIRST_AT | (gn_u64)&b | IN_PIECES;
}
GN_DEV const buffer& buffer_of(gn_u64 name) { return *(const buffer*)(name << 8 >> 8 & ~(gn_u64)IN_PIECES); }
GN_DEV gn_u32 first_of(gn_u64 name) { return (gn_u32)(name >> FIRST_AT); }

// Pages from `page` on that lie side by side for sure.
GN_DEV gn_u32 to_end_of_piece(const buffer& b, gn_u32 page) {
  gn_u32 n = 1u << b.shift;
  return n - (page & (n - 1));
}

// Parts into which the first `sent` blocks of a request at `vba` are cut. Chunks of 2^`shift` blocks and the
// pieces cut them. The data lies from page `first` on.
GN_DEV gn_u32 parts_of(const buffer& b, gn_u32 first, gn_u32 vba, gn_u32 shift, gn_u32 sent) {
  if (!sent) return 0;
  gn_u32 of_chunks = ((vba + sent - 1) >> shift) - (vba >> shift),
         of_pieces = ((first + sent - 1) >> b.shift) - (first >> b.shift);
  // The borders of both are at multiples of a power of two. So every border of the coarser one is a border of
  // the finer one, or none is.
  gn_u32 finer = shift < b.shift ? shift : b.shift;
  bool same = ((vba - first) & ((1u << finer) - 1)) == 0;
  return 1 + (!same ? of_chunks + of_pieces : shift < b.shift ? of_chunks : of_pieces);
}

// Takes single pages or blocks, wherever they are, as many as `b` wants. Returns whether there were enough.
template <class S>
GN_DEV bool pool_gather(const pool& p, gn_u32 blocks, gn_u32 hint, buffer& b) {
  gn_u32 wants = (b.pages + (1u << b.shift) - 1) >> b.shift, got = 0;
  // more blocks cannot be named by a number of 16 bits
  if (blocks > 0x10000u >> (PIECE_BLOCK - b.shift)) blocks = 0x10000u >> (PIECE_BLOCK - b.shift);
  for (gn_u32 i = 0; i < blocks && got < wants; ++i) {
    gn_u32 at = (hint / POOL_PAGES + i) % blocks;
    while (got < wants) {
      gn_u64 address =
          b.shift == PIECE_PAGE ? pool_take_page<S>(p, at, hint + got) : pool_take_blocks<S>(p, at, 1);
      if (!address) break;
      b.piece[got++] = (gn_u16)((address - p.base) / POOL_PAGE >> b.shift);
    }
  }
  if (got == wants) return true;
  b.pages = got << b.shift;  // a later call finds them again
  return false;
}

// Gives a buffer back, as pool_free.
template <class S>
GN_DEV void pool_free_buffer(const pool& p, buffer& b) {
  gn_u32 step = b.shift == PIECE_ALL ? b.pages : 1u << b.shift;
  for (gn_u32 page = 0; page < b.pages; page += step)
    pool_free<S>(p, b.at(page * POOL_PAGE), step * POOL_PAGE);
  b.pages = 0;
}

// Only one thread gathers at a time. Several threads, each with a part of what is left, would give it back
// and try again for ever. No thread waits for the lock, which is a bit of `asked`. While it is taken, no
// thread asks for more memory, either.
enum : gn_u32 { GATHERING = 1u << 31 };
template <class S>
GN_DEV bool gather_lock(pool& p) {
  gn_u32 asked = S::ld(&p.asked);
  return !(asked & GATHERING) && S::cas_acqrel(&p.asked, asked, asked | GATHERING) == asked;
}

// A buffer of `bytes`, at most 1 MiB, if there is room side by side.
template <class S>
GN_DEV bool pool_alloc_whole(const pool& p, gn_u32 blocks, gn_u32 bytes, gn_u32 hint, buffer& b) {
  b.base = bytes && bytes <= POOL_LONGEST ? pool_find<S>(p, blocks, bytes, hint) : (gn_u64)0;
  b.pages = b.base ? (bytes + POOL_PAGE - 1) / POOL_PAGE : 0u;
  b.shift = PIECE_ALL;
  b.piece[0] = 0;
  return b.base != 0;
}

// As pool_alloc_whole, otherwise in pieces. Asks for more memory only if there is room for neither. Returns
// false if there is none, or if another thread is gathering. The lanes of a warp call it one after the other.
template <class S>
GN_DEV bool pool_alloc_buffer(pool& p, gn_u32 bytes, gn_u32 hint, buffer& b) {
  for (;;) {
    gn_u32 blocks = S::ld_acquire(&p.blocks);  // pairs with pool_grow
    if (pool_alloc_whole<S>(p, blocks, bytes, hint, b)) return true;
    if (bytes == 0 || bytes > POOL_LONGEST || !gather_lock<S>(p)) return false;
    b.base = p.base;
    b.pages = (bytes + POOL_PAGE - 1) / POOL_PAGE;
    b.shift = b.pages > POOL_PAGES ? PIECE_BLOCK : PIECE_PAGE;
    bool got = pool_gather<S>(p, blocks, hint, b);
    if (!got) pool_free_buffer<S>(p, b);
    S::and_release(&p.asked, ~(gn_u32)GATHERING);
    if (got || !pool_grow<S>(p, blocks)) return got;
  }
}

// Adds `by` to the hold counts of the blocks that `n` pages from `first` on are in, as pool_hold.
template <class S>
GN_DEV void pool_hold_buffer(const pool& p, const buffer& b, gn_u32 first, gn_u32 n, gn_u32 by) {
  for (gn_u32 page = first, step; page < first + n; page += step) {
    step = to_end_of_piece(b, page);
    if (step > first + n - page) step = first + n - page;
    pool_hold<S>(p, b.at(page * POOL_PAGE), step * POOL_PAGE, by);
  }
}

}  // namespace gn
