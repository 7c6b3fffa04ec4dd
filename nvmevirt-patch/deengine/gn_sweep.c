// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sweeps: unmap every block of a deleted volume, some buckets at a time (protocol rule 10). Rust:
 * deengine/ftl/src/sweep.rs, deengine/src/admin/volumes.rs.
 *
 * An insertion of another volume may move a word from a part that the sweep has not reached to a part that it
 * has passed. So may a removal that brings back a word of the stash. So each word that is written behind the
 * front is looked at, and one pass finds everything.
 */
#include "gn_dev_inner.h"

static bool gn_is_swept(const struct gn_dev *dev, const struct gn_sweep *sweep, gn_u16 vid, gn_u32 page) {
  return vid == sweep->vid && dev->pages[page].generation <= sweep->generation;
}

void gn_sweep_start(struct gn_dev *dev, gn_u64 now_ns, gn_u16 vid, gn_u32 generation) {
  gn_u32 at;
  dev->sweep_at_ns = now_ns;
  for (at = 0; at < dev->sweep_count; ++at)
    if (dev->sweeps[at].vid == vid) return;
  /* There are as many sweeps as volumes, so a sweep is always free. */
  if (dev->sweep_count == GN_MAX_VOLUMES) return;
  dev->sweeps[dev->sweep_count].vid = vid;
  dev->sweeps[dev->sweep_count].generation = generation;
  dev->sweeps[dev->sweep_count].next_bucket = 0;
  dev->sweeps[dev->sweep_count].ended = false;
  ++dev->sweep_count;
}

/* Notes the words that the last change of the map has written. */
static void gn_note_words(struct gn_dev *dev) {
  const struct gn_change *changes;
  gn_u32 count = gn_map_changes(dev->map, &changes), at;
  if (dev->written_count + count > GN_MAX_WRITTEN) {
    /* Too many words to check: every sweep begins again. */
    for (at = 0; at < dev->sweep_count; ++at)
      if (!dev->sweeps[at].ended) dev->sweeps[at].next_bucket = 0;
    dev->written_count = 0;
    return;
  }
  memcpy(dev->written + dev->written_count, changes, count * sizeof *changes);
  dev->written_count += count;
}

static void gn_unmap(struct gn_dev *dev, gn_u16 vid, gn_u32 vba) {
  struct gn_probe probe = gn_map_place(dev->map, vid, vba);
  gn_u32 old = gn_map_remove(dev->map, &probe);
  if (old == GN_NO_PAGE) return;
  gn_note_words(dev);
  ++dev->counts.swept;
  gn_release_page(dev, old);
}

static void gn_find(void *context, gn_u16 vid, gn_u32 vba, gn_u32 page) {
  struct gn_dev *dev = context;
  if (dev->found_count < dev->found_most && gn_is_swept(dev, dev->finding, vid, page))
    dev->found[dev->found_count++] = vba;
}

/* Unmaps blocks that the noted words have brought into buckets which their sweep has passed. Unmapping writes
 * words, too. */
static void gn_sweep_noted(struct gn_dev *dev) {
  while (dev->written_count) {
    struct gn_change word = dev->written[--dev->written_count];
    struct gn_mapped is;
    gn_u32 which;
    if (!gn_map_entry(dev->map, word.index, word.value, &is)) continue;
    for (which = 0; which < dev->sweep_count; ++which) {
      const struct gn_sweep *sweep = &dev->sweeps[which];
      if (sweep->ended || word.index / GN_SLOTS >= sweep->next_bucket) continue;
      if (!gn_is_swept(dev, sweep, is.vid, is.page)) continue;
      gn_unmap(dev, is.vid, is.vba);
      break;
    }
  }
}

static void gn_sweep_step(struct gn_dev *dev, struct gn_sweep *sweep) {
  gn_u32 at;
  gn_u64 next = sweep->next_bucket + dev->config.sweep_buckets;
  if (sweep->ended) return;
  dev->finding = sweep;
  dev->found_count = 0;
  gn_map_scan(dev->map, sweep->next_bucket, dev->config.sweep_buckets, gn_find, dev);
  /* These buckets are listed. A key that moves there from now on is in a part that the sweep has passed. */
  sweep->next_bucket = next;
  for (at = 0; at < dev->found_count; ++at) gn_unmap(dev, sweep->vid, dev->found[at]);
  gn_sweep_noted(dev);
  if (sweep->next_bucket >= gn_map_buckets(dev->map)) sweep->ended = true;
}

void gn_sweep_written(struct gn_dev *dev) {
  gn_note_words(dev);
  gn_sweep_noted(dev);
}

static void gn_sweep_all(struct gn_dev *dev, gn_u64 now_ns) {
  gn_u32 at, kept = 0;
  if (!dev->sweep_count || dev->sweep_at_ns > now_ns) return;
  for (at = 0; at < dev->sweep_count; ++at) gn_sweep_step(dev, &dev->sweeps[at]);
  for (at = 0; at < dev->sweep_count; ++at) {
    /* A transfer that was judged by the former entry may still be under way. */
    if (dev->sweeps[at].ended && gn_table_fenced(dev->table, dev->sweeps[at].vid))
      gn_table_bury(dev->table, now_ns, dev->sweeps[at].vid);
    else
      dev->sweeps[kept++] = dev->sweeps[at];
  }
  dev->sweep_count = kept;
  dev->sweep_at_ns = gn_after(now_ns, GN_SWEEP_PAUSE_NS);
}

static void gn_orphan(struct gn_dev *dev, struct gn_io *io) {
  io->orphan = true;
  gn_leave(dev, io);
}

static bool gn_has_bit(const gn_u8 *bits, gn_u16 client) { return bits[client / 8] >> (client % 8) & 1; }

/* Notes that a client's queues must be closed. */
static void gn_name_closed(struct gn_dev *dev, gn_u16 client) {
  if (gn_has_bit(dev->closed, client)) return;
  dev->closed[client / 8] |= (gn_u8)(1u << (client % 8));
  ++dev->closed_count;
  ++dev->counts.closed;
}

static bool gn_is_late(const struct gn_dev *dev, const struct gn_io *io, const struct gn_fence *fence) {
  const struct gn_volume *volume = gn_table_find(dev->table, fence->vid);
  return volume && io->used && io->counted && io->request.vid == fence->vid && io->serial != volume->serial;
}

/* Notes the clients whose commands delay an overdue fence. `compares` selects compares or all others. */
static bool gn_name_late(struct gn_dev *dev, gn_u64 now_ns, bool compares) {
  bool any = false;
  gn_u32 at, which;
  for (which = 0; which < dev->fence_count; ++which) {
    const struct gn_fence *fence = &dev->fences[which];
    if (fence->done || fence->deadline_ns > now_ns) continue;
    for (at = 0; at < dev->config.commands; ++at) {
      const struct gn_io *io = &dev->ios[at];
      if ((io->action == GN_COMPARE) != compares || !gn_is_late(dev, io, fence)) continue;
      dev->closing[io->client / 8] |= (gn_u8)(1u << (io->client % 8));
      gn_name_closed(dev, io->client);
      any = true;
    }
  }
  return any;
}

/* The commands of a client end with its queues: compares at once, as the firmware's controller holds them.
 * Its workers hold reads and writes, and end them after the step. */
static void gn_close_late(struct gn_dev *dev, gn_u64 now_ns, bool compares) {
  gn_u32 at;
  if (!gn_name_late(dev, now_ns, compares)) return;
  for (at = 0; at < dev->config.commands; ++at) {
    struct gn_io *io = &dev->ios[at];
    if (!io->used || io->orphan || !gn_has_bit(dev->closing, io->client)) continue;
    if (io->action == GN_COMPARE)
      gn_orphan(dev, io);
    else
      io->closing = dev->ends_closing = true;
  }
  memset(dev->closing, 0, sizeof dev->closing);
}

static void gn_end_closing(struct gn_dev *dev) {
  gn_u32 at;
  if (!dev->ends_closing) return;
  dev->ends_closing = false;
  for (at = 0; at < dev->config.commands; ++at) {
    struct gn_io *io = &dev->ios[at];
    if (io->used && io->closing && !io->orphan) gn_orphan(dev, io);
  }
}

void gn_tick(struct gn_dev *dev, gn_u64 now_ns) {
  gn_close_late(dev, now_ns, true);
  /* A volume whose last transfers end with their queue is buried by the next step of its sweep. */
  gn_sweep_all(dev, now_ns);
  gn_close_late(dev, now_ns, false);
  gn_end_closing(dev);
}

gn_u64 gn_next_ns(const struct gn_dev *dev) {
  gn_u64 next = dev->sweep_count ? dev->sweep_at_ns : ~0ull;
  gn_u32 fence;
  for (fence = 0; fence < dev->fence_count; ++fence)
    if (!dev->fences[fence].done && dev->fences[fence].deadline_ns < next)
      next = dev->fences[fence].deadline_ns;
  return next;
}

bool gn_closed(struct gn_dev *dev, gn_u16 *client) {
  gn_u32 at;
  if (!dev->closed_count) return false;
  for (at = 0; at < 65536; ++at) {
    if (!(dev->closed[at / 8] >> (at % 8) & 1)) continue;
    dev->closed[at / 8] &= (gn_u8)~(1u << (at % 8));
    --dev->closed_count;
    *client = (gn_u16)at;
    return true;
  }
  return false;
}
