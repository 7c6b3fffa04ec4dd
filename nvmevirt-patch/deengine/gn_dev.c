// SPDX-License-Identifier: GPL-2.0-only
/* One SSD: how it is made and ended, its commands under way, and the daemon's commands that wait for them. */
#include "gn_dev_inner.h"

/* A handle is an index and the age of its place, so a late call names no other command. */
#define GN_INDEX_BITS 16u
#define GN_INDEX_MASK ((1u << GN_INDEX_BITS) - 1)
#define GN_NO_IO 0xFFFFFFFFu

static bool gn_fits(const struct gn_config *c) {
  return c->logical_pages > 0 && c->pages >= c->logical_pages && c->pages <= 1ull << 31 && c->commands > 0 &&
         c->commands <= GN_INDEX_MASK && c->sweep_buckets > 0 && c->sweep_buckets <= 1u << 16;
}

struct gn_dev *gn_dev_new(const struct gn_config *config) {
  struct gn_dev *dev;
  gn_u32 at;
  if (!gn_fits(config)) return NULL;
  dev = gn_alloc(sizeof *dev);
  if (!dev) return NULL;
  dev->config = *config;
  dev->fleet.incarnation = 1;
  dev->found_most = config->sweep_buckets * GN_SLOTS + GN_STASH;
  dev->map = gn_map_new(config->logical_pages, config->pages, config->seed);
  dev->table = gn_table_new(config->logical_pages);
  dev->pages = gn_alloc(config->pages * sizeof *dev->pages);
  dev->free_pages = gn_alloc(config->pages * sizeof *dev->free_pages);
  dev->ios = gn_alloc((gn_u64)config->commands * sizeof *dev->ios);
  dev->io_pages = gn_alloc((gn_u64)config->commands * GN_MAX_BLOCKS * sizeof *dev->io_pages);
  dev->found = gn_alloc((gn_u64)dev->found_most * sizeof *dev->found);
  if (!dev->map || !dev->table || !dev->pages || !dev->free_pages || !dev->ios || !dev->io_pages ||
      !dev->found) {
    gn_dev_delete(dev);
    return NULL;
  }
  for (at = 0; at < config->pages; ++at) dev->free_pages[at] = (gn_u32)config->pages - 1 - at;
  dev->free_count = (gn_u32)config->pages;
  for (at = 0; at < config->commands; ++at) {
    dev->ios[at].next_free = at + 1 < config->commands ? at + 1 : GN_NO_IO;
    dev->ios[at].pages = dev->io_pages + (gn_u64)at * GN_MAX_BLOCKS;
  }
  return dev;
}

void gn_dev_delete(struct gn_dev *dev) {
  if (!dev) return;
  gn_map_delete(dev->map);
  gn_table_delete(dev->table);
  gn_fleet_drop(&dev->fleet);
  gn_free(dev->pages);
  gn_free(dev->free_pages);
  gn_free(dev->ios);
  gn_free(dev->io_pages);
  gn_free(dev->found);
  gn_free(dev);
}

const struct gn_oob *gn_page(const struct gn_dev *dev, gn_u32 page) { return &dev->pages[page]; }
const struct gn_counts *gn_counts_of(const struct gn_dev *dev) { return &dev->counts; }
const struct gn_map *gn_map_of(const struct gn_dev *dev) { return dev->map; }
gn_u32 gn_in_flight(const struct gn_dev *dev) { return dev->in_flight; }
gn_u32 gn_free_pages(const struct gn_dev *dev) { return dev->free_count; }
gn_u64 gn_pages_of(const struct gn_dev *dev) { return dev->config.pages; }

void gn_answer(struct gn_dev *dev, struct gn_verdict *v, gn_u16 vid, struct gn_refused refused) {
  memset(v, 0, sizeof *v);
  v->action = GN_DONE;
  if (!refused.code) return;
  v->action = GN_REFUSE;
  v->status = gn_status_of(refused.code);
  v->dw0 = (gn_u32)vid << 16 | refused.code;
  if (dev->config.id < 255) v->dw0 |= (gn_u32)(dev->config.id + 1) << 8;
  v->dw1 = refused.epoch;
  ++dev->counts.refusals[refused.code];
}

struct gn_io *gn_io_new(struct gn_dev *dev, gn_u32 *handle) {
  struct gn_io *io;
  gn_u32 at = dev->free_io;
  if (at == GN_NO_IO) return NULL;
  io = &dev->ios[at];
  dev->free_io = io->next_free;
  io->used = true;
  io->counted = io->orphan = io->closing = io->has_pages = false;
  *handle = (io->age << GN_INDEX_BITS | at) + 1;
  ++dev->in_flight;
  return io;
}

struct gn_judge gn_judge_at(const struct gn_dev *dev, gn_u64 now_ns) {
  struct gn_judge by = {dev->table, &dev->fleet, now_ns};
  return by;
}

struct gn_io *gn_io_of(struct gn_dev *dev, gn_u32 handle) {
  gn_u32 name = handle - 1, at = name & GN_INDEX_MASK;
  struct gn_io *io;
  if (handle == 0 || at >= dev->config.commands) return NULL;
  io = &dev->ios[at];
  return io->used && (io->age << GN_INDEX_BITS | at) == name ? io : NULL;
}

void gn_leave(struct gn_dev *dev, struct gn_io *io) {
  struct gn_volume *volume;
  if (!io->counted) return;
  io->counted = false;
  volume = gn_table_find(dev->table, io->request.vid);
  /* After a forced fence another volume may have taken the slot. */
  if (!volume || dev->table->slots[io->request.slot] != volume ||
      volume->entry.generation != io->generation)
    return;
#ifdef GN_PLANT_FENCE
  if (volume->serial >> 32 == io->serial >> 32)
    --volume->in_flight;
#else
  if (volume->serial == io->serial)
    --volume->in_flight;
#endif
  else
    --volume->in_flight_older;
  gn_complete_fences(dev);
}

void gn_io_end(struct gn_dev *dev, struct gn_io *io) {
  gn_u32 index;
  if (io->has_pages) {
    for (index = 0; index < io->request.blocks; ++index) {
      if (io->action == GN_WRITE)
        gn_give_page(dev, io->pages[index]);
      else if (io->pages[index] != GN_NO_PAGE)
        gn_unpin(dev, io->pages[index]);
    }
  }
  gn_leave(dev, io);
  io->used = false;
  io->age = (io->age + 1) & 0x7FFF;
  io->next_free = dev->free_io;
  dev->free_io = (gn_u32)(io - dev->ios);
  --dev->in_flight;
}

void gn_complete_fences(struct gn_dev *dev) {
  gn_u32 at;
  for (at = 0; at < dev->fence_count; ++at)
    if (gn_table_fenced(dev->table, dev->fences[at].vid)) dev->fences[at].done = true;
}

void gn_fence(struct gn_dev *dev, gn_u64 now_ns, gn_u16 vid, struct gn_verdict *v) {
  struct gn_fence *fence;
  gn_answer(dev, v, vid, gn_ok());
  if (gn_table_fenced(dev->table, vid)) return;
  /* The emulator's admin queue is shorter than this list. */
  if (dev->fence_count == GN_MAX_FENCES) {
    gn_answer(dev, v, vid, gn_no(GN_NOT_READY, 0));
    return;
  }
  fence = &dev->fences[dev->fence_count++];
  fence->handle = v->handle = ++dev->next_fence;
  fence->vid = vid;
  fence->deadline_ns = gn_after(now_ns, GN_FENCE_NS);
  fence->done = false;
  v->action = GN_WAIT;
}

bool gn_poll(struct gn_dev *dev, gn_u32 *handle) {
  gn_u32 at;
  for (at = 0; at < dev->fence_count; ++at) {
    if (!dev->fences[at].done) continue;
    *handle = dev->fences[at].handle;
    --dev->fence_count;
    memmove(dev->fences + at, dev->fences + at + 1, (dev->fence_count - at) * sizeof *dev->fences);
    return true;
  }
  return false;
}
