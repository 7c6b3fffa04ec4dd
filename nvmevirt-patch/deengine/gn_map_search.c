// SPDX-License-Identifier: GPL-2.0-only
/*
 * The search for the shortest chain of moves that empties a slot. It goes breadth first from the two full
 * buckets, at most GN_NODES buckets and GN_MAX_MOVES moves. Rust: deengine/map/src/search.rs.
 */
#include "gn_map_inner.h"

#define GN_ROOT 0xFFFFFFFFu

struct gn_ways {
  gn_u64 buckets[GN_SLOTS];
  gn_u8 slots[GN_SLOTS];
};

/* Buckets that the keys of a full bucket could move to. Keys that would move to their first bucket come
 * first: readers look there first. */
static void gn_ways_from(const struct gn_map *map, gn_u64 bucket, struct gn_ways *ways) {
  const gn_u64 *line = gn_map_line(map, bucket);
  gn_u32 slot, seconds = 0, firsts = 0;
  for (slot = 0; slot < GN_SLOTS; ++slot) firsts += (line[slot] & GN_WHICH) != 0;
  for (slot = 0; slot < GN_SLOTS; ++slot) {
    gn_u32 *at = line[slot] & GN_WHICH ? &seconds : &firsts;
    ways->buckets[*at] = gn_shape_other(&map->shape, bucket, gn_shape_rem(&map->shape, line[slot]));
    ways->slots[*at] = (gn_u8)slot;
    ++*at;
  }
}

/* Copies a slot to its key's other bucket. */
static void gn_shift(struct gn_map *map, struct gn_at from, struct gn_at to) {
  gn_u64 content = gn_map_line(map, from.bucket)[from.slot];
#ifdef GN_PLANT_WHICH
  gn_map_store(map, to, content);
#else
  gn_map_store(map, to, content ^ GN_WHICH);
#endif
  ++map->moves;
}

/* Makes the moves of the chain, beginning with the move into the empty slot. Returns the slot for the new
 * key. */
static struct gn_at gn_walk(struct gn_map *map, gn_u32 node, gn_u32 slot, struct gn_at empty) {
  struct gn_at to = empty;
  gn_u32 turn;
  for (turn = 0; turn <= GN_MAX_MOVES; ++turn) {
    struct gn_at from;
    from.bucket = map->nodes[node].bucket;
    from.slot = slot;
    gn_shift(map, from, to);
    to = from;
    if (map->nodes[node].parent == GN_ROOT) break;
    slot = map->nodes[node].slot;
    node = map->nodes[node].parent;
  }
  return to;
}

bool gn_map_make_room(struct gn_map *map, gn_u64 first, gn_u64 second, struct gn_at *at) {
  struct gn_node root = {first, GN_ROOT, 0, 1};
  gn_u32 count = 0, head, turn;
  map->nodes[count++] = root;
  root.bucket = second;
  if (second != first) map->nodes[count++] = root;
  for (head = 0; head < count; ++head) {
    gn_u64 from = map->nodes[head].bucket;
    gn_u8 depth = map->nodes[head].depth;
    struct gn_ways ways;
    gn_ways_from(map, from, &ways);
    for (turn = 0; turn < GN_SLOTS; ++turn) {
      gn_u32 empty;
      if (ways.buckets[turn] == from) continue;
      empty = gn_map_empty(map, ways.buckets[turn]);
      if (empty) {
        struct gn_at last;
        last.bucket = ways.buckets[turn];
        last.slot = (gn_u32)__builtin_ctz(empty);
        *at = gn_walk(map, head, ways.slots[turn], last);
        return true;
      }
      if (count < GN_NODES && depth < GN_MAX_MOVES) {
        struct gn_node next = {ways.buckets[turn], head, ways.slots[turn], (gn_u8)(depth + 1)};
        map->nodes[count++] = next;
      }
    }
  }
  return false;
}
