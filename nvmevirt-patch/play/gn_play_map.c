// SPDX-License-Identifier: GPL-2.0-only
/* Operations on a map alone. Every answer consists of values, or of words of the image. */
#include "gn_play_inner.h"

#define GN_FOUND_MOST 65536u
/* Most blocks of a FILL or LOOK, and words of a WORDS. */
#define GN_FILL_MOST 65536u
#define GN_WORDS_MOST 1000u
/* Odd, so that no two numbers of blocks have the same product. */
#define GN_SPREAD 0x9E3779B1u

/* Keys between two calls of gn_rest in a long operation: some microseconds, even in a slow guest. */
#define GN_REST_EVERY 256

static void gn_value(struct gn_player *p, gn_u64 value) {
  gn_put(p, GN_EV_VALUE, 1);
  gn_put(p, value, 8);
}

static void gn_find_of_vid(void *context, gn_u16 vid, gn_u32 vba, gn_u32 page) {
  struct gn_player *p = context;
  (void)page;
  if (vid == p->scan_vid && p->scan_count < GN_FOUND_MOST) p->found[p->scan_count++] = vba;
}

static void gn_hash_all(void *context, gn_u16 vid, gn_u32 vba, gn_u32 page) {
  struct gn_player *p = context;
  ++p->scan_count;
  p->scan_hash = gnp_mix64(p->scan_hash ^ ((gn_u64)vid << 32 | vba)) + page;
}

static void gn_make(struct gn_player *p, const char **why) {
  gn_u64 entries = gn_get(p, 8), pages = gn_get(p, 8), seed = gn_get(p, 8);
  if (p->is_short) return;
  gn_map_delete(p->map);
  p->map = entries <= GN_PAGES_MOST && pages <= GN_PAGES_MOST ? gn_map_new(entries, pages, seed) : NULL;
  if (!p->found) p->found = gn_alloc(GN_FOUND_MOST * sizeof *p->found);
  if (!p->map || !p->found)
    *why = "a map of these sizes cannot be made";
  else
    gn_value(p, gn_map_words(p->map));
}

static void gn_sweep_map(struct gn_player *p) {
  gn_u16 vid = (gn_u16)gn_get(p, 2);
  gn_u64 first = gn_get(p, 8), count = gn_get(p, 8);
  gn_u32 at;
  if (p->is_short) return;
  p->scan_vid = vid;
  p->scan_count = 0;
  gn_map_scan(p->map, first, count, gn_find_of_vid, p);
  for (at = 0; at < p->scan_count; ++at) {
    struct gn_probe probe = gn_map_place(p->map, p->scan_vid, p->found[at]);
    if (at % GN_REST_EVERY == 0) gn_rest();
    gn_map_remove(p->map, &probe);
  }
  gn_value(p, p->scan_count);
}

static void gn_say_image(struct gn_player *p) {
  gn_u64 words = gn_map_words(p->map);
  gn_value(p, gn_map_len(p->map));
  gn_value(p, gn_map_stashed(p->map));
  gn_value(p, gn_crc32c(0, gn_map_image(p->map), words * 8));
}

static void gn_say_words(struct gn_player *p) {
  gn_u64 first = gn_get(p, 8), words = gn_map_words(p->map);
  gn_u32 count = (gn_u32)gn_get(p, 4), at;
  if (p->is_short) return;
  if (first > words) first = words;
  if (count > GN_WORDS_MOST) count = GN_WORDS_MOST;
  if (count > words - first) count = (gn_u32)(words - first);
  gn_put(p, GN_EV_WORDS, 1);
  gn_put(p, count, 2);
  for (at = 0; at < count; ++at) gn_put(p, gn_map_image(p->map)[first + at], 8);
}

static void gn_set_word(struct gn_player *p) {
  gn_u64 index = gn_get(p, 8), value = gn_get(p, 8);
  if (!p->is_short) gn_value(p, gn_map_set_word(p->map, index, value));
}

static void gn_check_map(struct gn_player *p) {
  gn_u64 index = 0;
  gn_value(p, (gn_u64)gn_map_check(p->map, &index));
  gn_value(p, index);
}

static void gn_scan_map(struct gn_player *p) {
  gn_u64 first = gn_get(p, 8), count = gn_get(p, 8);
  if (p->is_short) return;
  p->scan_count = 0;
  p->scan_hash = 0;
  gn_map_scan(p->map, first, count, gn_hash_all, p);
  gn_value(p, p->scan_count);
  gn_value(p, p->scan_hash);
}

/* Maps many blocks of a seed, each to the page of its number, or looks them up. Returns the number of blocks
 * that had a place, or have their page. */
static void gn_many(struct gn_player *p, bool looks) {
  static const gn_u16 vids[3] = {1, 7, 0xFFFE};
  gn_u64 first = gn_get(p, 8), seed = gn_get(p, 8), pages = gn_map_pages(p->map), right = 0;
  gn_u32 count = (gn_u32)gn_get(p, 4), at;
  if (p->is_short) return;
  for (at = 0; at < count && at < GN_FILL_MOST; ++at) {
    gn_u64 number = first + at;
    struct gn_probe probe = gn_map_place(p->map, vids[number % 3], (gn_u32)number * GN_SPREAD ^ (gn_u32)seed);
    gn_u32 page = (gn_u32)(number % pages);
    if (at % GN_REST_EVERY == 0) gn_rest();
    if (looks)
      right += gn_map_find(p->map, &probe) == page;
    else
      right += gn_map_insert(p->map, &probe, page) != GN_MAP_FULL;
  }
  gn_value(p, right);
}

/* Operations on one block. */
static void gn_block_op(struct gn_player *p, gn_u8 op, const char **why) {
  gn_u16 vid = (gn_u16)gn_get(p, 2);
  gn_u32 vba = (gn_u32)gn_get(p, 4);
  struct gn_probe probe = gn_map_place(p->map, vid, vba);
  gn_u32 from = 0, to = 0;
  if (op == GN_OP_REPLACE) from = (gn_u32)gn_get(p, 4);
  if (op == GN_OP_REPLACE || op == GN_OP_INSERT) to = (gn_u32)gn_get(p, 4);
  if (p->is_short) return;
  if (!gnp_id_is_valid(vid) || to >= gn_map_pages(p->map)) {
    *why = "a block or page that there is not";
    return;
  }
  if (op == GN_OP_INSERT) gn_value(p, gn_map_insert(p->map, &probe, to));
  if (op == GN_OP_REMOVE) gn_value(p, gn_map_remove(p->map, &probe));
  if (op == GN_OP_REPLACE) gn_value(p, gn_map_replace(p->map, &probe, from, to));
  if (op == GN_OP_FIND) gn_value(p, gn_map_find(p->map, &probe));
}

/* Operations on a map whose image is whole. */
static void gn_use_map(struct gn_player *p, gn_u8 op, const char **why) {
  if (gn_map_loading(p->map))
    *why = "the map was loaded and not checked";
  else if (op == GN_OP_SWEEP)
    gn_sweep_map(p);
  else if (op == GN_OP_IMAGE)
    gn_say_image(p);
  else if (op == GN_OP_SCAN)
    gn_scan_map(p);
  else if (op == GN_OP_FILL || op == GN_OP_LOOK)
    gn_many(p, op == GN_OP_LOOK);
  else if (op == GN_OP_WORDS)
    gn_say_words(p);
  else
    gn_block_op(p, op, why);
}

bool gn_play_map(struct gn_player *p, gn_u8 op, const char **why) {
  if (op < GN_OP_MAP || op > GN_OP_WORDS) return false;
  if (op == GN_OP_MAP)
    gn_make(p, why);
  else if (!p->map)
    *why = "there is no map yet";
  else if (op == GN_OP_SET_WORD)
    gn_set_word(p);
  else if (op == GN_OP_CHECK)
    gn_check_map(p);
  else if (op == GN_OP_CLEAR)
    gn_map_clear(p->map);
  else
    gn_use_map(p, op, why);
  return true;
}
