// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages and their records, stamps, commits and unmapping. Rust: deengine/ftl/src/write.rs, read.rs. Pages
 * are handed out one by one, so nothing has to be collected here; an emulator that collects calls gn_moved.
 */
#include "gn_dev_inner.h"

bool gn_extent(const struct gn_dev *dev, gn_u16 vid, gn_u32 generation, gn_u32 vba, gn_u32 *page) {
  struct gn_probe probe = gn_map_place(dev->map, vid, vba);
  const struct gn_oob *oob;
  *page = gn_map_find(dev->map, &probe);
  if (*page == GN_NO_PAGE) return true;
  oob = &dev->pages[*page];
  if (oob->vid != vid || oob->vba != vba) return false;
  if (oob->generation != generation) *page = GN_NO_PAGE;
  return true;
}

void gn_give_page(struct gn_dev *dev, gn_u32 page) {
  struct gn_oob *oob = &dev->pages[page];
  oob->state = GN_PAGE_FREE;
  oob->vid = 0;
  dev->free_pages[dev->free_count++] = page;
}

gn_u32 gn_take_page(struct gn_dev *dev) {
  gn_u32 page;
  if (!dev->free_count) return GN_NO_PAGE;
  page = dev->free_pages[--dev->free_count];
  dev->pages[page].state = GN_PAGE_TAKEN;
  return page;
}

void gn_release_page(struct gn_dev *dev, gn_u32 page) {
  if (dev->pages[page].pins)
    dev->pages[page].state = GN_PAGE_LEFT;
  else
    gn_give_page(dev, page);
}

void gn_unpin(struct gn_dev *dev, gn_u32 page) {
  struct gn_oob *oob = &dev->pages[page];
  if (--oob->pins == 0 && oob->state == GN_PAGE_LEFT) gn_give_page(dev, page);
}

bool gn_is_newer(const struct gn_dev *dev, const struct gn_volume *volume, const struct gn_request *request,
                 gn_u32 vba, const struct gn_probe *probe) {
  gn_u32 page = gn_map_find(dev->map, probe);
  struct gn_stamp held;
  if (page != GN_NO_PAGE) {
    const struct gn_oob *oob = &dev->pages[page];
    if (oob->vid == request->vid && oob->vba == vba && oob->generation == volume->entry.generation) {
      /* Unmapping releases the page, so a mapped page has the newest stamp. */
      held.lease_epoch = oob->lease_epoch;
      held.sequence = oob->sequence;
      return gn_stamp_above(request->stamp, held);
    }
  }
  return !gn_history_held(&volume->history, vba, &held) || gn_stamp_above(request->stamp, held);
}

/* A block that a write brings: its address, the page with its data, the sum of it. */
struct gn_block {
  gn_u32 vba;
  gn_u32 page;
  gn_u32 sum;
};

static void gn_apply(struct gn_dev *dev, const struct gn_request *request, const struct gn_probe *probe,
                     struct gn_block block) {
  struct gn_volume *volume = dev->table->slots[request->slot];
  struct gn_oob *oob = &dev->pages[block.page];
  gn_u32 old;
  oob->vid = request->vid;
  oob->state = GN_PAGE_MAPPED;
  oob->generation = volume->entry.generation;
  oob->vba = block.vba;
  oob->sum = block.sum;
  oob->lease_epoch = request->stamp.lease_epoch;
  oob->sequence = request->stamp.sequence;
  /* The map is sized for every logical page, and no commit takes more. */
  old = gn_map_insert(dev->map, probe, block.page);
  if (old < GN_MAP_FULL) gn_release_page(dev, old);
  if (dev->sweep_count) gn_sweep_written(dev);
  gn_history_record(&volume->history, block.vba, request->stamp);
}

struct gn_refused gn_commit(struct gn_dev *dev, struct gn_io *io, const gn_u32 *sums) {
  struct gn_volume *volume = dev->table->slots[io->request.slot];
  const struct gn_request *request = &io->request;
  gn_u32 index, added = 0;
  for (index = 0; index < request->blocks; ++index) {
    struct gn_probe probe = gn_map_place(dev->map, request->vid, request->vba + index);
    if (gn_is_newer(dev, volume, request, request->vba + index, &probe))
      added += gn_map_find(dev->map, &probe) == GN_NO_PAGE;
  }
  if (added && gn_fleet_only_mapped(&dev->fleet, &volume->entry, request->vba))
    return gn_no(GN_GROUP_FULL, (gn_u32)dev->fleet.epoch);
  if (gn_map_len(dev->map) + added > dev->config.logical_pages) return gn_no(GN_CAPACITY_EXCEEDED, 0);
  for (index = 0; index < request->blocks; ++index) {
    struct gn_block block = {request->vba + index, io->pages[index], sums ? sums[index] : 0};
    struct gn_probe probe = gn_map_place(dev->map, request->vid, block.vba);
    if (gn_is_newer(dev, volume, request, block.vba, &probe)) {
      gn_apply(dev, request, &probe, block);
    } else {
      ++dev->counts.overtaken;
      gn_give_page(dev, io->pages[index]);
    }
  }
  io->has_pages = false;
  return gn_ok();
}

void gn_trim(struct gn_dev *dev, const struct gn_request *request) {
  struct gn_volume *volume = dev->table->slots[request->slot];
  gn_u32 index;
  /* All in one chunk, so at most 4,096. */
  for (index = 0; index < request->blocks; ++index) {
    gn_u32 vba = request->vba + index, old;
    struct gn_probe probe = gn_map_place(dev->map, request->vid, vba);
    if (!gn_is_newer(dev, volume, request, vba, &probe)) {
      ++dev->counts.overtaken;
      continue;
    }
    old = gn_map_remove(dev->map, &probe);
    gn_history_record(&volume->history, vba, request->stamp);
    if (old == GN_NO_PAGE) continue;
    gn_release_page(dev, old);
    if (dev->sweep_count) gn_sweep_written(dev);
  }
}

bool gn_moved(struct gn_dev *dev, gn_u32 from, gn_u32 to) {
  struct gn_oob *oob = &dev->pages[from];
  struct gn_probe probe = gn_map_place(dev->map, oob->vid, oob->vba);
  gn_u32 pins = dev->pages[to].pins;
  if (oob->state != GN_PAGE_MAPPED || !gn_map_replace(dev->map, &probe, from, to)) {
    gn_give_page(dev, to);
    return false;
  }
  dev->pages[to] = *oob;
  dev->pages[to].pins = pins;
  gn_release_page(dev, from);
  ++dev->counts.moved;
  return true;
}
