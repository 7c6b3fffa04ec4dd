/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the map share. */
#ifndef GN_MAP_INNER_H
#define GN_MAP_INNER_H

#include "gn_map.h"
#include "gn_map_shape.h"

/* Buckets that a search visits before an insertion fails, and its longest chain. */
#define GN_NODES 2000u
#define GN_MAX_MOVES 5u

/* A bucket of the search, and the slot of the bucket before whose key would move here. */
struct gn_node {
  gn_u64 bucket;
  gn_u32 parent;
  gn_u8 slot;
  gn_u8 depth;
};

struct gn_map {
  struct gn_shape shape;
  /* The image. */
  gn_u64 *words;
  gn_u64 len;
  gn_u64 moves;
  gn_u32 stashed;
  bool loading;
  gn_u32 changed;
  struct gn_change changes[GN_MAX_CHANGES];
  struct gn_node *nodes;
};

/* One slot of a bucket. */
struct gn_at {
  gn_u64 bucket;
  gn_u32 slot;
};

static inline gn_u64 *gn_map_line(const struct gn_map *map, gn_u64 bucket) {
  return map->words + bucket * GN_SLOTS;
}

static inline gn_u64 *gn_map_tail(const struct gn_map *map) {
  return map->words + gn_shape_slots(&map->shape);
}

/* Slots of a bucket that are empty, as bits. */
static inline gn_u32 gn_map_empty(const struct gn_map *map, gn_u64 bucket) {
  const gn_u64 *line = gn_map_line(map, bucket);
  gn_u32 slot, bits = 0;
  for (slot = 0; slot < GN_SLOTS; ++slot) bits |= (gn_u32)(line[slot] == 0) << slot;
  return bits;
}

struct gn_probe gn_map_place_key(const struct gn_map *map, gn_u64 key);
/* Where the key of a probe is in the table; false if it is not there. */
bool gn_map_position(const struct gn_map *map, const struct gn_probe *probe, struct gn_at *at);
/* Where a key is in the stash, or GN_STASH. */
gn_u32 gn_map_stash_position(const struct gn_map *map, gn_u64 key);
void gn_map_store(struct gn_map *map, struct gn_at at, gn_u64 content);
/* Moves keys until a slot of one of two full buckets may be overwritten; false: no chain was found. */
bool gn_map_make_room(struct gn_map *map, gn_u64 first, gn_u64 second, struct gn_at *at);

#endif
