// SPDX-License-Identifier: GPL-2.0-only
/* The fleet map: decoding, checks, the row of a block. */
#include "gn_fleet_inner.h"

#define GN_HEADER 44u
#define GN_SSD_BYTES 8u

bool gn_fleet_sum_is_right(const gn_u8 *bytes, gn_u32 len, gn_u32 head) {
  static const gn_u8 zeros[4];
  gn_u32 crc = gn_crc32c(0, bytes, head - 4);
  crc = gn_crc32c(crc, zeros, sizeof zeros);
  return gn_crc32c(crc, bytes + head, len - head) == gn_u32_at(bytes + head - 4);
}

/* Checks that groups name only SSDs of the map, and each SSD once. */
static bool gn_groups_are_right(const gn_u8 *bytes, const gn_u8 *places, gn_u32 groups, gn_u32 width) {
  gn_u32 count = gn_u16_at(bytes + 28), group, at, before;
  for (group = 0; group < groups; ++group) {
    const gn_u8 *row = places + (gn_u64)group * width * 2;
    for (at = 0; at < width; ++at) {
      gn_u32 place = gn_u16_at(row + 2 * at), index = place & ~GNP_PLACE_FILLING;
      if (place == GNP_PLACE_NONE) continue;
      if (index >= count || bytes[GN_HEADER + index * GN_SSD_BYTES + 2] != GNP_SSD_IN) return false;
      for (before = 0; before < at; ++before) {
        gn_u32 other = gn_u16_at(row + 2 * before);
        if (other != GNP_PLACE_NONE && (other & ~GNP_PLACE_FILLING) == index) return false;
      }
    }
  }
  return true;
}

gn_u32 gn_fleet_check(const gn_u8 *bytes, gn_u32 len, gn_u64 *term, gn_u64 *epoch) {
  gn_u32 width, groups, count, ssd;
  gn_u64 end;
  if (len < GN_HEADER || memcmp(bytes, "GNFM", 4) != 0) return 0;
  if (gn_u16_at(bytes + 4) == GNP_MAP3_FORMAT) return gn_fleet3_check(bytes, len, term, epoch);
  if (gn_u16_at(bytes + 4) != GNP_MAP_FORMAT) return 0;
  width = gn_u16_at(bytes + 6);
  groups = gn_u32_at(bytes + 24);
  count = gn_u16_at(bytes + 28);
  if (count == 0 || count > GN_MAX_SSDS) return 0;
  if (groups == 0 || groups & (groups - 1) || groups > GN_MAX_GROUPS) return 0;
  if (width > GNP_MAX_REPLICAS || width > count || gn_u16_at(bytes + 30) != 0) return 0;
  end = GN_HEADER + (gn_u64)count * GN_SSD_BYTES + (gn_u64)groups * width * 2;
  if (end > len || !gn_fleet_sum_is_right(bytes, (gn_u32)end, GN_HEADER)) return 0;
  for (ssd = 0; ssd < count; ++ssd) {
    gn_u8 state = bytes[GN_HEADER + ssd * GN_SSD_BYTES + 2];
    if (state != GNP_SSD_IN && state != GNP_SSD_OUT) return 0;
  }
  if (!gn_groups_are_right(bytes, bytes + GN_HEADER + count * GN_SSD_BYTES, groups, width)) return 0;
  *term = gn_u64_at(bytes + 8);
  *epoch = gn_u64_at(bytes + 16);
  return (gn_u32)end;
}

bool gn_fleet_take(struct gn_fleet *fleet, const gn_u8 *bytes, gn_u32 len, gn_u16 id) {
  gn_u8 *copy = gn_alloc(len);
  gn_u32 count, ssd;
  if (!copy) return false;
  memcpy(copy, bytes, len);
  gn_free(fleet->bytes);
  fleet->bytes = copy;
  fleet->len = len;
  fleet->width = gn_u16_at(copy + 6);
  fleet->own = GNP_PLACE_NONE;
  fleet->has_absent = fleet->has_full = fleet->has_merge = fleet->needs_salvage = false;
  /* A lease from before the voters has ended. */
  if (fleet->voted) fleet->until_ns = 0;
  fleet->voted = false;
  if (gn_u16_at(copy + 4) == GNP_MAP3_FORMAT) {
    gn_fleet3_take(fleet, id);
    return true;
  }
  fleet->epoch = gn_u64_at(copy + 16);
  fleet->groups = gn_u32_at(copy + 24);
  fleet->row = fleet->width * 2;
  count = gn_u16_at(copy + 28);
  fleet->ssds = NULL;
  fleet->places = copy + GN_HEADER + count * GN_SSD_BYTES;
  /* With format 2 every content may use the places. */
  fleet->serves = true;
  for (ssd = count; ssd-- > 0;)
    if (gn_u16_at(copy + GN_HEADER + ssd * GN_SSD_BYTES) == id) fleet->own = (gn_u16)ssd;
  return true;
}

bool gn_fleet_is_ours(const struct gn_fleet *fleet, const gn_u8 *bytes) {
  if (!fleet->bytes || !fleet->ssds) return true;
#ifdef GN_PLANT_ARRAY
  return gn_u16_at(bytes + 4) == GNP_MAP3_FORMAT;
#else
  return gn_u16_at(bytes + 4) == GNP_MAP3_FORMAT &&
         memcmp(fleet->bytes + GN_ARRAY3, bytes + GN_ARRAY3, GN_ARRAY_BYTES) == 0;
#endif
}

void gn_fleet_drop(struct gn_fleet *fleet) {
  gn_free(fleet->bytes);
  fleet->bytes = NULL;
}

const gn_u8 *gn_fleet_row(const struct gn_fleet *fleet, const gnp_entry *entry, gn_u32 vba) {
  gn_u32 group = gnp_group_of(entry->vid, vba, entry->chunk_shift, entry->factor, fleet->groups);
  return fleet->places + (gn_u64)group * fleet->row;
}

int gn_fleet_place(const struct gn_fleet *fleet, const gnp_entry *entry, gn_u32 vba) {
  const gn_u8 *row = gn_fleet_row(fleet, entry, vba), *behind = row + 2 * fleet->width;
  gn_u32 replicas = entry->replicas < fleet->width ? entry->replicas : fleet->width, at;
  bool first = true;
  if (fleet->own == GNP_PLACE_NONE) return GN_ABSENT;
  for (at = 0; at < replicas; ++at) {
    gn_u32 place = gn_u16_at(row + 2 * at);
#ifndef GN_PLANT_HOLE
    /* An empty place is a missing replica. No later place replaces it. */
    if (place == GNP_PLACE_NONE) continue;
#endif
    if ((place & ~GNP_PLACE_FILLING) == fleet->own) {
      if (place & GNP_PLACE_FILLING) return GN_FILLING;
      /* Format 3 names the first. An SSD at a lower place that begins to serve does not become the first. */
#ifndef GN_PLANT_FIRST
      if (fleet->ssds) first = behind[3] == at;
#endif
      return first ? GN_SERVING_FIRST : GN_SERVING;
    }
#ifdef GN_PLANT_HOLE
    first = false;
#else
    if (!(place & GNP_PLACE_FILLING)) first = false;
#endif
  }
  if (fleet->ssds && gn_u16_at(behind) == fleet->own && behind[2] < replicas) return GN_FILLING;
  return GN_ABSENT;
}
