/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Places of keys and meaning of slots: arithmetic without memory. Rust: deengine/map/src/shape.rs.
 */
#ifndef GN_MAP_SHAPE_H
#define GN_MAP_SHAPE_H

#include "gn_os.h"

#define GN_KEY_MASK ((1ull << 48) - 1)
#define GN_VALID (1ull << 63)
#define GN_WHICH (1ull << 62)

struct gn_shape {
  gn_u64 buckets;
  gn_u64 pages;
  gn_u64 page_mask;
  /* ceil(2^(64 + shift) / buckets) */
  gn_u64 reciprocal;
  gn_u64 last_rem;
  gn_u64 mask;
  gn_u64 multiply[2];
  gn_u64 undo[2];
  gn_u64 scatter[3];
  gn_u32 page_bits;
  gn_u32 shift;
};

/* False for impossible sizes. */
bool gn_shape_make(struct gn_shape *shape, gn_u64 buckets, gn_u64 pages, gn_u64 seed);

static inline gn_u64 gn_shape_slots(const struct gn_shape *s) { return s->buckets * 8; }

static inline gn_u64 gn_shape_permute(const struct gn_shape *s, gn_u64 key) {
  gn_u64 x = key ^ s->mask;
  x = (x ^ x >> 24) * s->multiply[0] & GN_KEY_MASK;
  x = (x ^ x >> 24) * s->multiply[1] & GN_KEY_MASK;
  return x ^ x >> 24;
}

static inline gn_u64 gn_shape_unpermute(const struct gn_shape *s, gn_u64 p) {
  gn_u64 x = (p ^ p >> 24) * s->undo[1] & GN_KEY_MASK;
  x = (x ^ x >> 24) * s->undo[0] & GN_KEY_MASK;
  return x ^ x >> 24 ^ s->mask;
}

/* The other bucket of a remainder; its own inverse. */
static inline gn_u64 gn_shape_other(const struct gn_shape *s, gn_u64 bucket, gn_u64 rem) {
  gn_u64 x = (rem ^ s->scatter[0]) * s->scatter[1];
  gn_u64 hash = gn_high((x ^ x >> 32) * s->scatter[2], s->buckets);
  return hash >= bucket ? hash - bucket : hash - bucket + s->buckets;
}

static inline gn_u64 gn_shape_rem(const struct gn_shape *s, gn_u64 slot) {
  return (slot & ~(GN_VALID | GN_WHICH)) >> s->page_bits;
}

static inline gn_u64 gn_shape_tag(const struct gn_shape *s, gn_u64 rem) {
  return GN_VALID | rem << s->page_bits;
}

static inline gn_u32 gn_shape_page(const struct gn_shape *s, gn_u64 slot) {
  return (gn_u32)(slot & s->page_mask);
}

static inline gn_u64 gn_shape_point(const struct gn_shape *s, gn_u64 bucket, gn_u64 slot) {
  gn_u64 rem = gn_shape_rem(s, slot);
  gn_u64 first = slot & GN_WHICH ? gn_shape_other(s, bucket, rem) : bucket;
  return rem * s->buckets + first;
}

/* The key in a slot of a bucket. */
static inline gn_u64 gn_shape_key(const struct gn_shape *s, gn_u64 bucket, gn_u64 slot) {
  return gn_shape_unpermute(s, gn_shape_point(s, bucket, slot) & GN_KEY_MASK);
}

/* Whether a key can have the remainder of a slot in this bucket. */
static inline bool gn_shape_possible(const struct gn_shape *s, gn_u64 bucket, gn_u64 slot) {
  gn_u64 rem = gn_shape_rem(s, slot);
  return rem < s->last_rem || (rem == s->last_rem && gn_shape_point(s, bucket, slot) <= GN_KEY_MASK);
}

/* A key names a block where its volume id is not reserved. */
static inline bool gn_key_is_block(gn_u64 key) {
  return key <= GN_KEY_MASK && gnp_id_is_valid((gn_u16)(key >> 32));
}

#endif
