// SPDX-License-Identifier: GPL-2.0-only
/*
 * State that an SSD keeps of deleted volumes. It keeps the last generation of each id for ever, and the ids
 * of the requests that last changed it for a day. Rust: deengine/src/admin/tombstones.rs.
 */
#include "gn_table.h"

#define GN_DAY_NS (24ull * 3600 * 1000000000)

/* A tombstone in the form of VOLUME LIST. */
struct gn_raw_tombstone {
  gn_u8 magic[4];
  gn_u16 format;
  gn_u16 vid;
  gn_u32 generation;
  gn_u32 age_s;
  gn_u64 version;
  gn_u64 term;
  gn_u8 ids[GNP_REQUEST_IDS][16];
  gn_u8 reserved[32];
};
_Static_assert(sizeof(struct gn_raw_tombstone) == GN_TOMBSTONE_BYTES, "192 bytes");

static gn_u64 gn_key(const struct gn_table *table, gn_u32 at) {
  return (gn_u64)table->recent[at].vid << 32 | table->recent[at].generation;
}

/* The first place of the order whose key is at least this one. */
static gn_u32 gn_lower(const struct gn_table *table, gn_u64 key) {
  gn_u32 low = 0, high = table->recent_len;
  while (low < high) {
    gn_u32 middle = (low + high) / 2;
    if (gn_key(table, table->order[middle]) < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Removes the oldest tombstones, in one pass over the order. */
static void gn_drop_oldest(struct gn_table *table, gn_u32 count) {
  gn_u32 from, to = 0;
  if (!count) return;
  for (from = 0; from < table->recent_len; ++from) {
    gn_u32 at = table->order[from], age = (at + GN_MAX_RECENT - table->recent_at) % GN_MAX_RECENT;
    if (age >= count) table->order[to++] = at;
  }
  table->recent_at = (table->recent_at + count) % GN_MAX_RECENT;
  table->recent_len -= count;
}

static void gn_expire(struct gn_table *table, gn_u64 now_ns) {
  gn_u32 count = 0;
  while (count < table->recent_len) {
    gn_u64 died = table->recent[(table->recent_at + count) % GN_MAX_RECENT].died_ns;
    if (now_ns < died || now_ns - died < GN_DAY_NS) break;
    ++count;
  }
  gn_drop_oldest(table, count);
}

void gn_table_bury(struct gn_table *table, gn_u64 now_ns, gn_u16 vid) {
  struct gn_volume *volume = gn_table_find(table, vid);
  struct gn_tombstone *stone;
  gn_u32 at, place;
  if (!volume) return;
  if (!(table->is_dead[vid / 8] >> (vid % 8) & 1)) {
    table->is_dead[vid / 8] |= (gn_u8)(1u << (vid % 8));
    ++table->dead_count;
  }
  table->dead[vid] = volume->entry.generation;
  gn_expire(table, now_ns);
  if (table->recent_len == GN_MAX_RECENT) gn_drop_oldest(table, 1);
  at = (table->recent_at + table->recent_len) % GN_MAX_RECENT;
  stone = &table->recent[at];
  stone->died_ns = now_ns;
  stone->vid = vid;
  stone->generation = volume->entry.generation;
  stone->version = volume->entry.version;
  stone->term = volume->entry.term;
  memcpy(stone->ids, volume->entry.request_ids, sizeof stone->ids);
  place = gn_lower(table, gn_key(table, at));
  memmove(table->order + place + 1, table->order + place, (table->recent_len - place) * sizeof *table->order);
  table->order[place] = at;
  ++table->recent_len;
  volume->used = false;
  table->by_vid[vid] = GN_NO_SLOT;
  --table->volumes;
}

gn_u32 gn_table_list_dead(struct gn_table *table, gn_u64 now_ns, gn_u16 first, gn_u16 skip,
                          struct gn_buffer out) {
  gn_u32 at, count = 0, skipped;
  gn_expire(table, now_ns);
  at = gn_lower(table, (gn_u64)first << 32);
  for (skipped = 0; skipped < skip && at < table->recent_len; ++skipped, ++at)
    if (table->recent[table->order[at]].vid != first) break;
  for (; at < table->recent_len && (count + 1) * GN_TOMBSTONE_BYTES <= out.bytes; ++at, ++count) {
    const struct gn_tombstone *stone = &table->recent[table->order[at]];
    struct gn_raw_tombstone raw;
    gn_u64 age = now_ns < stone->died_ns ? 0 : (now_ns - stone->died_ns) / 1000000000;
    memset(&raw, 0, sizeof raw);
    memcpy(raw.magic, "GNVT", 4);
    raw.format = 1;
    raw.vid = stone->vid;
    raw.generation = stone->generation;
    raw.age_s = age > 0xFFFFFFFFu ? 0xFFFFFFFFu : (gn_u32)age;
    raw.version = stone->version;
    raw.term = stone->term;
    memcpy(raw.ids, stone->ids, sizeof raw.ids);
    memcpy(out.at + count * GN_TOMBSTONE_BYTES, &raw, sizeof raw);
  }
  return count;
}
