// SPDX-License-Identifier: Apache-2.0 OR MIT
// The data that the load generator writes, and the checks of the data that it reads.
#pragma once
#include "bench.h"

namespace gn { namespace bench {

enum : gn_u32 { ALL = 0xffffffffu };

// Place of a unit's block. With PIECES, pieces are in reverse order: pages for up to 64 KiB, blocks for more.
// So no two of them are neighbours.
template <bool PIECES>
GN_DEV gn_u64 block_of(gn_u64 unit, gn_u32 blocks, gn_u32 block) {
  gn_u32 shift = blocks > MOST_PIECES ? (gn_u32)PIECE_BLOCK : (gn_u32)PIECE_PAGE;
  if (PIECES) block = ((blocks - 1 - block) >> shift << shift) + (block & ((1u << shift) - 1));
  return unit + (gn_u64)block * GN_BLOCK;
}

// Describes the same places to the library.
GN_DEV void tell_pieces(buffer& b, gn_u64 unit, gn_u32 blocks) {
  b.base = unit;
  b.pages = blocks;
  b.shift = blocks > MOST_PIECES ? (gn_u32)PIECE_BLOCK : (gn_u32)PIECE_PAGE;
  gn_u32 n = blocks >> b.shift;
  for (gn_u32 i = 0; i < n; ++i) b.piece[i] = (gn_u16)(n - 1 - i);
}

// What a unit's buffer holds, or has to hold: the blocks from `vba` on, as written for the `generation`th
// time.
struct content {
  gn_u64 buffer;
  gn_u32 vid, vba, generation;
};

// Writes the pattern into a unit's buffer; the whole warp.
template <bool PIECES>
GN_DEV void fill_unit(const args& a, const content& u) {
  gn_u64 age = header_age(u.generation, a.seed);
  for (gn_u32 block = 0; block < a.unit_blocks; ++block) {
    pattern p = pattern_of(header_place(u.vid, u.vba + block), age);
#pragma unroll
    for (gn_u32 s = 0; s < SECTORS; ++s) {
      gn_u32 data[4];
      piece_of(p, s, lane_id(), data);
      gn_u64 to = block_of<PIECES>(u.buffer, a.unit_blocks, block);
      mem::st16((void*)(to + s * SECTOR + lane_id() * 16), data);
    }
  }
}

// Overwrites every header, so that a read without data cannot pass for the previous one. One thread calls it.
GN_DEV void poison_unit(const args& a, gn_u64 buffer) {
  const gn_u32 data[4] = {0xDEADBEEFu, 0xDEADBEEFu, 0xDEADBEEFu, 0xDEADBEEFu};
  for (gn_u32 sector = 0; sector < a.unit_blocks * SECTORS; ++sector)
    mem::st16((void*)(buffer + sector * SECTOR), data);
}

GN_DEV void note_wrong(lane_result& r, gn_u64 place, gn_u32 generation, gn_u64 found0, gn_u64 found1) {
  if (r.wrong_sector != ~0ull) return;  // the first one is kept
  r.wrong_sector = place & 0xffffffffffffull;
  r.wanted = generation;
  r.found[0] = found0;
  r.found[1] = found1;
}

// Compares every header of a unit that was read. One thread; a block's headers are loaded side by side.
template <bool PIECES>
GN_DEV bool headers_right(const args& a, lane_result& r, const content& u) {
  gn_u64 age = header_age(u.generation, a.seed);
  bool right = true;
  for (gn_u32 block = 0; block < a.unit_blocks; ++block) {
    gn_u32 data[SECTORS][4];
#pragma unroll
    for (gn_u32 s = 0; s < SECTORS; ++s)
      mem::ld16_stream((const void*)(block_of<PIECES>(u.buffer, a.unit_blocks, block) + s * SECTOR), data[s]);
#pragma unroll
    for (gn_u32 s = 0; s < SECTORS; ++s) {
      gn_u64 place = header_place(u.vid, u.vba + block) + s;
      gn_u64 found0 = (gn_u64)data[s][1] << 32 | data[s][0], found1 = (gn_u64)data[s][3] << 32 | data[s][2];
      if (found0 == place && found1 == age) continue;
      right = false;
      note_wrong(r, place, u.generation, found0, found1);
    }
  }
  return right;
}

// Compares every byte of the first block of `u`. The whole warp calls it, for the thread whose counters get
// the result. All lanes get the same result.
GN_DEV bool block_right(const args& a, const content& u) {
  pattern p = pattern_of(header_place(u.vid, u.vba), header_age(u.generation, a.seed));
  gn_u32 data[SECTORS][4], wrong = 0;
#pragma unroll
  for (gn_u32 s = 0; s < SECTORS; ++s)
    mem::ld16_stream((const void*)(u.buffer + s * SECTOR + lane_id() * 16), data[s]);
#pragma unroll
  for (gn_u32 s = 0; s < SECTORS; ++s) {
    gn_u32 want[4];
    piece_of(p, s, lane_id(), want);
    for (gn_u32 k = 0; k < 4; ++k) wrong |= data[s][k] ^ want[k];
  }
  return !__any_sync(ALL, wrong != 0);
}

// Checks what each lane with `check` set has read; the whole warp.
template <bool PIECES>
GN_DEV void verify(const args& a, lane_result& r, bool check, const content& u, gn_u32 draw) {
  bool right = !check || headers_right<PIECES>(a, r, u);
  // One block of 64 is compared in full; a random draw for each unit decides which.
  gn_u32 step = a.flags & WHOLE ? 1u : 64u, first = draw % step;
  for (gn_u32 todo = __ballot_sync(ALL, check && first < a.unit_blocks); todo; todo &= todo - 1) {
    int lane = __ffs((int)todo) - 1;
    gn_u64 from = __shfl_sync(ALL, u.buffer, lane);
    gn_u32 at = __shfl_sync(ALL, u.vba, lane), age = __shfl_sync(ALL, u.generation, lane);
    for (gn_u32 block = __shfl_sync(ALL, first, lane); block < a.unit_blocks; block += step) {
      bool same = block_right(a, {block_of<PIECES>(from, a.unit_blocks, block), u.vid, at + block, age});
      if (lane_id() != (gn_u32)lane) continue;
      r.whole_blocks += 1;
      if (same) continue;
      right = false;
      gn_u64 place = header_place(u.vid, at + block);
      note_wrong(r, place, age, place, header_age(age, a.seed));  // its headers are right
    }
  }
  if (!check) return;
  if (right) r.verified += 1;
  else r.wrong += 1;
  if (right && (a.flags & WHOLE)) r.generations += u.generation;
}

}}  // namespace gn::bench
