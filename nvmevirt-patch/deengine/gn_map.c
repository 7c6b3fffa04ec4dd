// SPDX-License-Identifier: GPL-2.0-only
/* The table: look-up, insertion, removal. Rust: deengine/map/src/{map,writer,stash}.rs. */
#include "gn_map_inner.h"

/* A new key goes to its first bucket if that has this many empty slots, else to the emptier of the two. */
#define GN_ENOUGH 4

struct gn_map *gn_map_new(gn_u64 entries, gn_u64 pages, gn_u64 seed) {
  struct gn_map *map;
  struct gn_shape shape;
  gn_u64 slots;
  if (entries > ~0ull / 100) return NULL;
  slots = entries * 100 / 93 + (entries * 100 % 93 != 0);
  if (!gn_shape_make(&shape, slots / GN_SLOTS + (slots % GN_SLOTS != 0), pages, seed)) return NULL;
  map = gn_alloc(sizeof *map);
  if (!map) return NULL;
  map->shape = shape;
  map->words = gn_alloc((gn_shape_slots(&shape) + 2 * GN_STASH) * sizeof *map->words);
  map->nodes = gn_alloc(GN_NODES * sizeof *map->nodes);
  if (!map->words || !map->nodes) {
    gn_map_delete(map);
    return NULL;
  }
  return map;
}

void gn_map_delete(struct gn_map *map) {
  if (!map) return;
  gn_free(map->words);
  gn_free(map->nodes);
  gn_free(map);
}

void gn_map_clear(struct gn_map *map) {
  memset(map->words, 0, gn_map_words(map) * sizeof *map->words);
  map->len = 0;
  map->stashed = 0;
  map->changed = 0;
  map->loading = false;
}

gn_u64 gn_map_len(const struct gn_map *map) { return map->len; }
gn_u32 gn_map_stashed(const struct gn_map *map) { return map->stashed; }
gn_u64 gn_map_buckets(const struct gn_map *map) { return map->shape.buckets; }
gn_u64 gn_map_pages(const struct gn_map *map) { return map->shape.pages; }
gn_u64 gn_map_moves(const struct gn_map *map) { return map->moves; }
gn_u64 gn_map_words(const struct gn_map *map) { return gn_shape_slots(&map->shape) + 2 * GN_STASH; }
const gn_u64 *gn_map_image(const struct gn_map *map) { return map->words; }
bool gn_map_loading(const struct gn_map *map) { return map->loading; }

struct gn_probe gn_map_place_key(const struct gn_map *map, gn_u64 key) {
  const struct gn_shape *s = &map->shape;
  struct gn_probe probe;
  gn_u64 p = gn_shape_permute(s, key);
  gn_u64 rem = gn_high(p, s->reciprocal) >> s->shift;
  probe.key = key;
  probe.first = p - rem * s->buckets;
  probe.second = gn_shape_other(s, probe.first, rem);
  probe.tag = gn_shape_tag(s, rem);
  return probe;
}

struct gn_probe gn_map_place(const struct gn_map *map, gn_u16 vid, gn_u32 vba) {
  return gn_map_place_key(map, (gn_u64)vid << 32 | vba);
}

/* The slot of a bucket with this tag. The page is the lowest bits, so `slot ^ tag` is a page where the tag
 * matches, and more than any page elsewhere. */
static bool gn_look(const struct gn_map *map, gn_u64 bucket, gn_u64 tag, struct gn_at *at) {
  const gn_u64 *line = gn_map_line(map, bucket);
  gn_u32 slot, hit = 0;
  for (slot = 0; slot < GN_SLOTS; ++slot) hit |= (gn_u32)((line[slot] ^ tag) <= map->shape.page_mask) << slot;
  if (!hit) return false;
  at->bucket = bucket;
  at->slot = (gn_u32)__builtin_ctz(hit);
  return true;
}

bool gn_map_position(const struct gn_map *map, const struct gn_probe *probe, struct gn_at *at) {
  return gn_look(map, probe->first, probe->tag, at) || gn_look(map, probe->second, probe->tag | GN_WHICH, at);
}

gn_u32 gn_map_stash_position(const struct gn_map *map, gn_u64 key) {
  const gn_u64 *tail = gn_map_tail(map);
  gn_u32 at;
  if (!map->stashed) return GN_STASH;
  for (at = 0; at < GN_STASH; ++at)
    if (tail[2 * at] == (GN_VALID | key)) return at;
  return GN_STASH;
}

static void gn_note(struct gn_map *map, gn_u64 index, gn_u64 value) {
  if (map->changed < GN_MAX_CHANGES) {
    map->changes[map->changed].index = index;
    map->changes[map->changed].value = value;
    ++map->changed;
  }
}

void gn_map_store(struct gn_map *map, struct gn_at at, gn_u64 content) {
  gn_map_line(map, at.bucket)[at.slot] = content;
  gn_note(map, at.bucket * GN_SLOTS + at.slot, content);
}

static void gn_stash_set(struct gn_map *map, gn_u32 at, gn_u64 key, gn_u64 page) {
  gn_u64 *tail = gn_map_tail(map);
  tail[2 * at] = key;
  tail[2 * at + 1] = page;
  gn_note(map, gn_shape_slots(&map->shape) + 2 * at, key);
  gn_note(map, gn_shape_slots(&map->shape) + 2 * at + 1, page);
}

void gn_map_prefetch(const struct gn_map *map, const struct gn_probe *probe) {
  __builtin_prefetch(gn_map_line(map, probe->first));
}

gn_u32 gn_map_find(const struct gn_map *map, const struct gn_probe *probe) {
  struct gn_at at;
  gn_u32 stash;
  if (gn_map_position(map, probe, &at))
    return gn_shape_page(&map->shape, gn_map_line(map, at.bucket)[at.slot]);
  stash = gn_map_stash_position(map, probe->key);
  return stash < GN_STASH ? (gn_u32)gn_map_tail(map)[2 * stash + 1] : GN_NO_PAGE;
}

/* Changes the page of a slot. Returns the former page. */
static gn_u32 gn_set_page(struct gn_map *map, struct gn_at at, gn_u32 page) {
  gn_u64 old = gn_map_line(map, at.bucket)[at.slot];
  gn_map_store(map, at, (old & ~map->shape.page_mask) | page);
  return gn_shape_page(&map->shape, old);
}

/* Ones among eight bits; the kernel has no function of the compiler's for it. */
static int gn_ones(gn_u32 bits) {
  static const gn_u8 ones[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
  return ones[bits & 15] + ones[bits >> 4 & 15];
}

/* Puts a new key into one of its buckets. Moves other keys if necessary. */
static bool gn_place(struct gn_map *map, const struct gn_probe *probe, gn_u64 content) {
  gn_u32 first = gn_map_empty(map, probe->first), second = gn_map_empty(map, probe->second);
  int firsts = gn_ones(first), seconds = gn_ones(second);
  bool other = firsts < GN_ENOUGH && seconds > firsts;
  gn_u32 empty = other ? second : first;
  struct gn_at at;
  if (empty) {
    at.bucket = other ? probe->second : probe->first;
    at.slot = (gn_u32)__builtin_ctz(empty);
  } else if (!gn_map_make_room(map, probe->first, probe->second, &at)) {
    return false;
  }
  gn_map_store(map, at, at.bucket == probe->first ? content : content | GN_WHICH);
  return true;
}

gn_u32 gn_map_insert(struct gn_map *map, const struct gn_probe *probe, gn_u32 page) {
  struct gn_at at;
  gn_u32 stash, gap;
  map->changed = 0;
  if (gn_map_position(map, probe, &at)) return gn_set_page(map, at, page);
  stash = gn_map_stash_position(map, probe->key);
  if (stash < GN_STASH) {
    gn_u32 old = (gn_u32)gn_map_tail(map)[2 * stash + 1];
    gn_stash_set(map, stash, GN_VALID | probe->key, page);
    return old;
  }
  if (!gn_place(map, probe, probe->tag | page)) {
    for (gap = 0; gap < GN_STASH && gn_map_tail(map)[2 * gap] & GN_VALID; ++gap) continue;
    if (gap == GN_STASH) return GN_MAP_FULL;
    gn_stash_set(map, gap, GN_VALID | probe->key, page);
    ++map->stashed;
  }
  ++map->len;
  return GN_NO_PAGE;
}

/* After a removal the first entry of the stash may fit into the table again. */
static void gn_unstash(struct gn_map *map) {
  const gn_u64 *tail = gn_map_tail(map);
  struct gn_probe probe;
  gn_u32 at;
  if (!map->stashed) return;
  for (at = 0; at < GN_STASH && !(tail[2 * at] & GN_VALID); ++at) continue;
  if (at == GN_STASH) return;
  probe = gn_map_place_key(map, tail[2 * at] & ~GN_VALID);
  if (gn_place(map, &probe, probe.tag | (gn_u32)tail[2 * at + 1])) {
    gn_stash_set(map, at, 0, 0);
    --map->stashed;
  }
}

gn_u32 gn_map_remove(struct gn_map *map, const struct gn_probe *probe) {
  struct gn_at at;
  gn_u32 page, stash;
  map->changed = 0;
  if (gn_map_position(map, probe, &at)) {
    page = gn_shape_page(&map->shape, gn_map_line(map, at.bucket)[at.slot]);
    gn_map_store(map, at, 0);
    gn_unstash(map);
  } else {
    stash = gn_map_stash_position(map, probe->key);
    if (stash == GN_STASH) return GN_NO_PAGE;
    page = (gn_u32)gn_map_tail(map)[2 * stash + 1];
    gn_stash_set(map, stash, 0, 0);
    --map->stashed;
  }
  --map->len;
  return page;
}

bool gn_map_replace(struct gn_map *map, const struct gn_probe *probe, gn_u32 from, gn_u32 to) {
  struct gn_at at;
  gn_u32 stash;
  map->changed = 0;
  if (gn_map_position(map, probe, &at)) {
    if (gn_shape_page(&map->shape, gn_map_line(map, at.bucket)[at.slot]) != from) return false;
    gn_set_page(map, at, to);
    return true;
  }
  stash = gn_map_stash_position(map, probe->key);
  if (stash == GN_STASH || (gn_u32)gn_map_tail(map)[2 * stash + 1] != from) return false;
  gn_stash_set(map, stash, GN_VALID | probe->key, to);
  return true;
}
