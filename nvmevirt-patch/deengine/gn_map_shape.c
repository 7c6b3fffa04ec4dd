// SPDX-License-Identifier: GPL-2.0-only
/* Sizes and constants of a map, from its seed. Rust: deengine/map/src/shape.rs. */
#include "gn_map_shape.h"

static gn_u32 gn_leading(gn_u64 x) { return x ? (gn_u32)__builtin_clzll(x) : 64; }

static gn_u32 gn_ones(gn_u64 x) {
  gn_u32 count = 0;
  for (; x; x &= x - 1) ++count;
  return count;
}

/* ceil(2^(64 + shift) / divisor), bit by bit: the kernel has no division of 128 bits. */
static gn_u64 gn_reciprocal(gn_u32 shift, gn_u64 divisor) {
  gn_u128 rest = 0, quotient = 0;
  int bit;
  for (bit = 64 + (int)shift; bit >= 0; --bit) {
    rest = rest << 1 | (bit == 64 + (int)shift);
    quotient <<= 1;
    if (rest >= divisor) {
      rest -= divisor;
      quotient |= 1;
    }
  }
  return (gn_u64)(quotient + (rest != 0));
}

static gn_u64 gn_draw(gn_u64 *drawn) {
  *drawn += 0x9E3779B97F4A7C15ull;
  return gnp_mix64(*drawn);
}

/* An odd number with about as many ones as zeros in its lower 48 bits. One draw in some 15 is refused. */
static gn_u64 gn_factor(gn_u64 *drawn) {
  for (;;) {
    gn_u64 number = gn_draw(drawn) | 1;
    gn_u32 ones = gn_ones(number & GN_KEY_MASK);
    if (ones >= 18 && ones <= 30) return number;
  }
}

/* The inverse of an odd number modulo 2^48, by Newton's iteration. */
static gn_u64 gn_inverse(gn_u64 odd) {
  gn_u64 x = odd;
  int turn;
  for (turn = 0; turn < 5; ++turn) x *= 2 - odd * x;
  return x & GN_KEY_MASK;
}

bool gn_shape_make(struct gn_shape *s, gn_u64 buckets, gn_u64 pages, gn_u64 seed) {
  gn_u64 drawn = seed, least;
  gn_u32 field;
  if (pages == 0 || pages > 1ull << 32 || buckets > 1ull << 32) return false;
  s->pages = pages;
  s->page_bits = 64 - gn_leading(pages - 1);
  /* With 2^(48 - f) buckets the remainder has f bits. */
  field = 62 - s->page_bits;
  least = 1ull << (48 > field ? 48 - field : 0);
  if (buckets < 8) buckets = 8;
  if (buckets < least) buckets = least;
  s->buckets = buckets;
  s->shift = 63 - gn_leading(buckets - 1);
  s->reciprocal = gn_reciprocal(s->shift, buckets);
  s->page_mask = (1ull << s->page_bits) - 1;
  s->last_rem = GN_KEY_MASK / buckets;
  s->mask = gn_draw(&drawn) & GN_KEY_MASK;
  s->multiply[0] = gn_factor(&drawn) & GN_KEY_MASK;
  s->multiply[1] = gn_factor(&drawn) & GN_KEY_MASK;
  s->scatter[0] = gn_draw(&drawn);
  s->scatter[1] = gn_factor(&drawn);
  s->scatter[2] = gn_factor(&drawn);
  s->undo[0] = gn_inverse(s->multiply[0]);
  s->undo[1] = gn_inverse(s->multiply[1]);
  return true;
}
