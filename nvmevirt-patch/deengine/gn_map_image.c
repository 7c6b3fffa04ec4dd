// SPDX-License-Identifier: GPL-2.0-only
/* The image: meaning of its words, scans, and the check of a loaded one. Rust: deengine/map/src/load.rs. */
#include "gn_map_inner.h"

gn_u32 gn_map_changes(const struct gn_map *map, const struct gn_change **changes) {
  *changes = map->changes;
  return map->changed;
}

bool gn_map_entry(const struct gn_map *map, gn_u64 index, gn_u64 value, struct gn_mapped *is) {
  gn_u64 bucket = index / GN_SLOTS, key;
  if (bucket >= map->shape.buckets || !(value & GN_VALID)) return false;
  key = gn_shape_key(&map->shape, bucket, value);
  is->vid = (gn_u16)(key >> 32);
  is->vba = (gn_u32)key;
  is->page = gn_shape_page(&map->shape, value);
  return gn_key_is_block(key);
}

void gn_map_scan(const struct gn_map *map, gn_u64 first, gn_u64 count, gn_map_each *each, void *context) {
  gn_u64 end = map->shape.buckets, bucket;
  const gn_u64 *tail = gn_map_tail(map);
  struct gn_mapped is;
  gn_u32 at;
  if (count < end && first < end - count) end = first + count;
  for (bucket = first; bucket < end; ++bucket) {
    const gn_u64 *line = gn_map_line(map, bucket);
    for (at = 0; at < GN_SLOTS; ++at)
      if (line[at] && gn_map_entry(map, bucket * GN_SLOTS + at, line[at] | GN_VALID, &is))
        each(context, is.vid, is.vba, is.page);
  }
#ifdef GN_PLANT_STASH
  return;
#endif
  if (first != 0 || count == 0 || !map->stashed) return;
  for (at = 0; at < GN_STASH; ++at) {
    gn_u64 key = tail[2 * at] & ~GN_VALID;
    if (tail[2 * at] & GN_VALID && gn_key_is_block(key))
      each(context, (gn_u16)(key >> 32), (gn_u32)key, (gn_u32)tail[2 * at + 1]);
  }
}

bool gn_map_set_word(struct gn_map *map, gn_u64 index, gn_u64 value) {
  if (index >= gn_map_words(map)) return false;
  map->loading = true;
  map->words[index] = value;
  return true;
}

static int gn_check_word(const struct gn_map *map, gn_u64 bucket, gn_u64 word) {
  if (!(word & GN_VALID)) return GN_IMAGE_WORD;
  if ((word & map->shape.page_mask) >= map->shape.pages) return GN_IMAGE_PAGE;
  if (!gn_shape_possible(&map->shape, bucket, word)) return GN_IMAGE_KEY;
  return gn_key_is_block(gn_shape_key(&map->shape, bucket, word)) ? GN_IMAGE_OK : GN_IMAGE_KEY;
}

/* The first place of a key in the words of the stash. */
static gn_u32 gn_first_in_stash(const gn_u64 *tail, gn_u64 key) {
  gn_u32 at;
  for (at = 0; at < GN_STASH && tail[2 * at] != (GN_VALID | key); ++at) continue;
  return at;
}

static int gn_check_stash(const struct gn_map *map, gn_u32 *count, gn_u64 *index) {
  const gn_u64 *tail = gn_map_tail(map);
  gn_u32 at;
  *count = 0;
  for (at = 0; at < GN_STASH; ++at) {
    gn_u64 first = tail[2 * at], second = tail[2 * at + 1], key = first & ~GN_VALID;
    struct gn_probe probe;
    struct gn_at there;
    *index = gn_shape_slots(&map->shape) + 2 * at;
    if (!first && !second) continue;
    if (!(first & GN_VALID)) return GN_IMAGE_WORD;
    if (!gn_key_is_block(key)) return GN_IMAGE_KEY;
    if (second >= map->shape.pages) {
      ++*index;
      return GN_IMAGE_PAGE;
    }
    probe = gn_map_place_key(map, key);
    if (gn_first_in_stash(tail, key) != at || gn_map_position(map, &probe, &there)) return GN_IMAGE_TWICE;
    ++*count;
  }
  return GN_IMAGE_OK;
}

int gn_map_check(struct gn_map *map, gn_u64 *index) {
  gn_u64 slots = gn_shape_slots(&map->shape), at, len = 0;
  gn_u32 stashed;
  int fault;
  map->loading = true;
  for (at = 0; at < slots; ++at) {
    if (!map->words[at]) continue;
    fault = gn_check_word(map, at / GN_SLOTS, map->words[at]);
    if (fault) {
      *index = at;
      return fault;
    }
    ++len;
  }
  fault = gn_check_stash(map, &stashed, index);
  if (fault) return fault;
  map->stashed = stashed;
  map->len = len + stashed;
  map->loading = false;
  *index = 0;
  return GN_IMAGE_OK;
}
