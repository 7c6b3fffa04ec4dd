// SPDX-License-Identifier: GPL-2.0-only
/* VOLUME ADD, CHMOD, DELETE, LIST. Rust: deengine/src/permission/mod.rs. */
#include "gn_table.h"

/* The most by which a daemon's term may exceed the last term, and the highest term. */
#define GN_TERM_JUMP (1ull << 20)
#define GN_MAX_TERM 0xFFFFFFFFull
#define GN_LEAST_VOLUMES 64u
#define GN_BLOCKS_PER_VOLUME 512u

struct gn_table *gn_table_new(gn_u64 logical_pages) {
  struct gn_table *table = gn_alloc(sizeof *table);
  gn_u64 volumes = logical_pages / GN_BLOCKS_PER_VOLUME;
  if (!table) return NULL;
  if (volumes < GN_LEAST_VOLUMES) volumes = GN_LEAST_VOLUMES;
  table->most_volumes = volumes > GN_MAX_VOLUMES ? GN_MAX_VOLUMES : (gn_u32)volumes;
  table->most_dead = table->most_volumes * 16 > 65536 ? 65536 : table->most_volumes * 16;
  memset(table->by_vid, 0xFF, sizeof table->by_vid);
  table->recent = gn_alloc((gn_u64)GN_MAX_RECENT * sizeof *table->recent);
  table->order = gn_alloc((gn_u64)GN_MAX_RECENT * sizeof *table->order);
  if (!table->recent || !table->order) {
    gn_table_delete(table);
    return NULL;
  }
  return table;
}

void gn_table_delete(struct gn_table *table) {
  gn_u32 slot;
  if (!table) return;
  for (slot = 0; slot < GN_MAX_VOLUMES; ++slot) gn_free(table->slots[slot]);
  gn_free(table->recent);
  gn_free(table->order);
  gn_free(table);
}

struct gn_refused gn_table_check_term(const struct gn_table *table, gn_u64 term) {
  if (term < table->term) return gn_no(GN_STALE_TERM, 0);
  /* A larger jump would use up the terms and exclude every later daemon. An SSD that has heard of no term may
     be new in an old array. */
  if (table->term > 0 && term - table->term > GN_TERM_JUMP) return gn_no(GN_INVALID_FIELD, 0);
  if (term > table->term && term > GN_MAX_TERM) return gn_no(GN_INVALID_FIELD, 0);
  return gn_ok();
}

struct gn_refused gn_table_term(struct gn_table *table, gn_u64 term) {
  struct gn_refused refused = gn_table_check_term(table, term);
  if (!refused.code) table->term = term;
  return refused;
}

static bool gn_dead(const struct gn_table *table, gn_u16 vid) {
  return table->is_dead[vid / 8] >> (vid % 8) & 1;
}

/* Whether there is room for the entry and for a tombstone of each volume. */
static bool gn_has_room(const struct gn_table *table, gn_u16 vid) {
  gn_u32 slot, beside = 0;
  for (slot = 0; slot < GN_MAX_VOLUMES; ++slot) {
    const struct gn_volume *volume = table->slots[slot];
    if (volume && volume->used && volume->entry.vid != vid && !gn_dead(table, volume->entry.vid)) ++beside;
  }
  return table->volumes < table->most_volumes &&
         table->dead_count + beside + !gn_dead(table, vid) <= table->most_dead;
}

/* Makes the list of readers and writer: ascending, each once. */
static void gn_make_readers(struct gn_volume *volume) {
  const gnp_entry *entry = &volume->entry;
  gn_u32 from, at, count = 0;
  for (from = 0; from <= entry->reader_count; ++from) {
    gn_u16 client = from < entry->reader_count ? entry->readers[from] : entry->writer;
    if (client == 0) continue;
#ifdef GN_PLANT_READERS
    at = count;
#else
    for (at = count; at > 0 && volume->readers[at - 1] > client; --at) continue;
    if (at > 0 && volume->readers[at - 1] == client) continue;
    memmove(volume->readers + at + 1, volume->readers + at, (count - at) * sizeof *volume->readers);
#endif
    volume->readers[at] = client;
    ++count;
  }
  volume->reader_count = count;
}

static void gn_set_entry(struct gn_volume *volume, const gnp_entry *entry, gn_u64 now_ns) {
  volume->entry = *entry;
  volume->lease_until_ns = entry->lease_ms ? gn_lease_end(now_ns, entry->lease_ms) : 0;
  gn_make_readers(volume);
}

/* The entry has been replaced. Commands that it allowed count as older from here on. */
static void gn_age(struct gn_volume *volume) {
  ++volume->serial;
  volume->in_flight_older += volume->in_flight;
  volume->in_flight = 0;
}

static struct gn_refused gn_check_add(struct gn_table *table, const gnp_entry *entry, gn_u32 *free) {
  struct gn_refused refused = gn_table_check_term(table, entry->term);
  const struct gn_volume *volume = gn_table_find(table, entry->vid);
  if (refused.code) return refused;
  if (volume) {
    bool deleting = volume->entry.state == GNP_VOLUME_DELETING;
    return gn_no(deleting ? GN_SWEEP_PENDING : GN_VOLUME_EXISTS, 0);
  }
  if (entry->state == GNP_VOLUME_DELETING) return gn_no(GN_INVALID_FIELD, 0);
#ifndef GN_PLANT_TOMBSTONE
  if (gn_dead(table, entry->vid) && entry->generation <= table->dead[entry->vid])
    return gn_no(GN_STALE_VERSION, 0);
#endif
  for (*free = 0; *free < GN_MAX_VOLUMES; ++*free)
    if (!table->slots[*free] || !table->slots[*free]->used) break;
  if (*free == GN_MAX_VOLUMES || !gn_has_room(table, entry->vid)) return gn_no(GN_TABLE_FULL, 0);
  return gn_ok();
}

struct gn_refused gn_table_add(struct gn_table *table, gn_u64 now_ns) {
  const gnp_entry *entry = &table->scratch;
  struct gn_volume *volume;
  gn_u32 free;
  struct gn_refused refused = gn_check_add(table, entry, &free);
  if (refused.code) return refused;
  if (!table->slots[free]) table->slots[free] = gn_alloc(sizeof *volume);
  volume = table->slots[free];
  if (!volume) return gn_no(GN_NOT_READY, 0);
  table->term = entry->term;
  gn_history_clear(&volume->history);
  volume->used = true;
  volume->former_writer = 0;
  volume->in_flight = volume->in_flight_older = 0;
  table->serial += 1ull << 32;
  volume->serial = table->serial;
  gn_set_entry(volume, entry, now_ns);
  table->by_vid[entry->vid] = (gn_u16)free;
  ++table->volumes;
  return gn_ok();
}

struct gn_refused gn_table_chmod(struct gn_table *table, gn_u64 now_ns) {
  const gnp_entry *entry = &table->scratch;
  struct gn_refused refused = gn_table_check_term(table, entry->term);
  struct gn_volume *volume = gn_table_find(table, entry->vid);
  const gnp_entry *old;
  if (refused.code) return refused;
  if (!volume) return gn_no(GN_VOLUME_ABSENT, 0);
  old = &volume->entry;
  if (old->state == GNP_VOLUME_DELETING) return gn_no(GN_DELETING, 0);
  if (entry->version <= old->version) return gn_no(GN_STALE_VERSION, 0);
  /* Fields that determine the placement cannot change under mapped blocks. */
  if (entry->generation != old->generation || entry->replicas != old->replicas ||
      entry->chunk_shift != old->chunk_shift || entry->factor != old->factor ||
      entry->capacity_blocks < old->capacity_blocks || entry->lease_epoch < old->lease_epoch ||
      entry->state == GNP_VOLUME_DELETING)
    return gn_no(GN_INVALID_FIELD, 0);
  table->term = entry->term;
  if (old->writer != 0 && old->writer != entry->writer) volume->former_writer = old->writer;
  gn_set_entry(volume, entry, now_ns);
  gn_age(volume);
  return gn_ok();
}

struct gn_refused gn_table_remove(struct gn_table *table, const struct gn_deletion *order, bool *gone) {
  struct gn_refused refused = gn_table_check_term(table, order->term);
  struct gn_volume *volume = gn_table_find(table, order->vid);
  *gone = false;
  if (refused.code) return refused;
  if (!volume && gn_dead(table, order->vid) && table->dead[order->vid] == order->generation) {
    *gone = true;
    return gn_ok();
  }
  if (!volume) return gn_no(GN_VOLUME_ABSENT, 0);
  if (order->generation != volume->entry.generation)
    return gn_no(order->generation < volume->entry.generation ? GN_STALE_VERSION : GN_VOLUME_ABSENT, 0);
  if (volume->entry.state != GNP_VOLUME_DELETING && order->version <= volume->entry.version)
    return gn_no(GN_STALE_VERSION, 0);
  table->term = order->term;
  if (volume->entry.state == GNP_VOLUME_DELETING) return gn_ok();
  volume->entry.state = GNP_VOLUME_DELETING;
  volume->entry.version = order->version;
  volume->entry.term = order->term;
  gn_entry_seal(&volume->entry);
  gn_age(volume);
  return gn_ok();
}

bool gn_table_fenced(const struct gn_table *table, gn_u16 vid) {
  const struct gn_volume *volume = gn_table_find(table, vid);
  return !volume || volume->in_flight_older == 0;
}

gn_u32 gn_table_list(const struct gn_table *table, gn_u16 first, struct gn_buffer out) {
  gn_u32 vid, count = 0;
  for (vid = first; vid < 65536 && (count + 1) * sizeof(gnp_entry) <= out.bytes; ++vid) {
    const struct gn_volume *volume = gn_table_find(table, (gn_u16)vid);
    if (!volume) continue;
    memcpy(out.at + count * sizeof(gnp_entry), &volume->entry, sizeof(gnp_entry));
    ++count;
  }
  return count;
}
