/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The merged map [VID,VBA] -> page: the exact quotient cuckoo table of deengine/map, word for word, so that
 * an image of one loads in the other. One caller at a time.
 *
 *   slot   63 valid | 62 which | zeros | remainder | page       8 slots a bucket
 *   image  buckets * 8 slots, then 32 entries of the stash: valid | key, page
 */
#ifndef GN_MAP_H
#define GN_MAP_H

#include "gn_os.h"

#define GN_SLOTS 8u
#define GN_STASH 32u
/* Most words that one call changes. */
#define GN_MAX_CHANGES 16u
#define GN_NO_PAGE 0xFFFFFFFFu
#define GN_MAP_FULL 0xFFFFFFFEu

struct gn_map;

/* Where a block may be. */
struct gn_probe {
  gn_u64 key;
  gn_u64 tag;
  gn_u64 first;
  gn_u64 second;
};

/* A word that the last change has written. */
struct gn_change {
  gn_u64 index;
  gn_u64 value;
};

/* What gn_map_check has found wrong. */
enum { GN_IMAGE_OK = 0, GN_IMAGE_WORD = 1, GN_IMAGE_PAGE = 2, GN_IMAGE_KEY = 3, GN_IMAGE_TWICE = 4 };

/* A map for this many keys at 93 % load, with pages below `pages`; NULL: no memory, or impossible sizes. */
struct gn_map *gn_map_new(gn_u64 entries, gn_u64 pages, gn_u64 seed);
void gn_map_delete(struct gn_map *map);
void gn_map_clear(struct gn_map *map);

struct gn_probe gn_map_place(const struct gn_map *map, gn_u16 vid, gn_u32 vba);
/* Asks for the first bucket, ahead of a look-up. */
void gn_map_prefetch(const struct gn_map *map, const struct gn_probe *probe);
/* The page of a block, or GN_NO_PAGE. */
gn_u32 gn_map_find(const struct gn_map *map, const struct gn_probe *probe);
/* Maps a block to a page. Returns the former page, GN_NO_PAGE for a new block, or GN_MAP_FULL. */
gn_u32 gn_map_insert(struct gn_map *map, const struct gn_probe *probe, gn_u32 page);
/* Unmaps a block. Returns its former page, or GN_NO_PAGE. */
gn_u32 gn_map_remove(struct gn_map *map, const struct gn_probe *probe);
/* Changes the page of a block from `from` to `to`. Returns whether the page was `from`. */
bool gn_map_replace(struct gn_map *map, const struct gn_probe *probe, gn_u32 from, gn_u32 to);

gn_u64 gn_map_len(const struct gn_map *map);
gn_u32 gn_map_stashed(const struct gn_map *map);
gn_u64 gn_map_buckets(const struct gn_map *map);
gn_u64 gn_map_pages(const struct gn_map *map);
gn_u64 gn_map_moves(const struct gn_map *map);
/* Words of the image. */
gn_u64 gn_map_words(const struct gn_map *map);
const gn_u64 *gn_map_image(const struct gn_map *map);

/* The words that the last insertion has written, in order. */
gn_u32 gn_map_changes(const struct gn_map *map, const struct gn_change **changes);
/* The block and page of a word of the table; false for an empty slot and for the stash. */
struct gn_mapped {
  gn_u16 vid;
  gn_u32 vba;
  gn_u32 page;
};
bool gn_map_entry(const struct gn_map *map, gn_u64 index, gn_u64 value, struct gn_mapped *is);

/* Calls `each` with the mapped blocks of `count` buckets from `first`; the stash belongs to bucket 0. */
typedef void gn_map_each(void *context, gn_u16 vid, gn_u32 vba, gn_u32 page);
void gn_map_scan(const struct gn_map *map, gn_u64 first, gn_u64 count, gn_map_each *each, void *context);

/* Sets a word of the image. Call gn_map_check before any other use. False: no such word exists. */
bool gn_map_set_word(struct gn_map *map, gn_u64 index, gn_u64 value);
/* Checks the words that were set. Returns GN_IMAGE_*, and the place. */
int gn_map_check(struct gn_map *map, gn_u64 *index);
bool gn_map_loading(const struct gn_map *map);

#endif
