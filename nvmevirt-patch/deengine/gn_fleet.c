// SPDX-License-Identifier: GPL-2.0-only
/* The fleet map: decoding, checks, the row of a block. */
#include "gn_fleet.h"

#define GN_HEADER 44u
#define GN_SSD_BYTES 8u
#define GN_MAX_SSDS 4096u
#define GN_CRC_AT 40u

static gn_u16 gn_u16_at(const gn_u8 *at) { return (gn_u16)(at[0] | at[1] << 8); }
static gn_u32 gn_u32_at(const gn_u8 *at) { return gn_u16_at(at) | (gn_u32)gn_u16_at(at + 2) << 16; }
static gn_u64 gn_u64_at(const gn_u8 *at) { return gn_u32_at(at) | (gn_u64)gn_u32_at(at + 4) << 32; }

/* The checksum covers the map with the field itself zero. */
static bool gn_sum_is_right(const gn_u8 *bytes, gn_u32 len) {
  static const gn_u8 zeros[4];
  gn_u32 crc = gn_crc32c(0, bytes, GN_CRC_AT);
  crc = gn_crc32c(crc, zeros, sizeof zeros);
  return gn_crc32c(crc, bytes + GN_HEADER, len - GN_HEADER) == gn_u32_at(bytes + GN_CRC_AT);
}

/* No group names an SSD that is not in, or one twice. */
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
  if (len < GN_HEADER || memcmp(bytes, "GNFM", 4) != 0 || gn_u16_at(bytes + 4) != GNP_MAP_FORMAT) return 0;
  width = gn_u16_at(bytes + 6);
  groups = gn_u32_at(bytes + 24);
  count = gn_u16_at(bytes + 28);
  if (count == 0 || count > GN_MAX_SSDS) return 0;
  if (groups == 0 || groups & (groups - 1) || groups > 1u << 24) return 0;
  if (width > GNP_MAX_REPLICAS || width > count || gn_u16_at(bytes + 30) != 0) return 0;
  end = GN_HEADER + (gn_u64)count * GN_SSD_BYTES + (gn_u64)groups * width * 2;
  if (end > len || !gn_sum_is_right(bytes, (gn_u32)end)) return 0;
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
  fleet->epoch = gn_u64_at(copy + 16);
  fleet->groups = gn_u32_at(copy + 24);
  count = gn_u16_at(copy + 28);
  fleet->places = copy + GN_HEADER + count * GN_SSD_BYTES;
  fleet->own = GNP_PLACE_NONE;
  for (ssd = count; ssd-- > 0;)
    if (gn_u16_at(copy + GN_HEADER + ssd * GN_SSD_BYTES) == id) fleet->own = (gn_u16)ssd;
  return true;
}

void gn_fleet_drop(struct gn_fleet *fleet) {
  gn_free(fleet->bytes);
  fleet->bytes = NULL;
}

int gn_fleet_place(const struct gn_fleet *fleet, const gnp_entry *entry, gn_u32 vba) {
  gn_u32 group = gnp_group_of(entry->vid, vba, entry->chunk_shift, entry->factor, fleet->groups);
  const gn_u8 *row = fleet->places + (gn_u64)group * fleet->width * 2;
  gn_u32 replicas = entry->replicas < fleet->width ? entry->replicas : fleet->width, at;
  bool first = true;
  for (at = 0; at < replicas; ++at) {
    gn_u32 place = gn_u16_at(row + 2 * at);
#ifndef GN_PLANT_HOLE
    /* An empty place is a missing replica; no later place stands in for it. */
    if (place == GNP_PLACE_NONE) continue;
#endif
    if (fleet->own != GNP_PLACE_NONE && (place & ~GNP_PLACE_FILLING) == fleet->own) {
      if (place & GNP_PLACE_FILLING) return GN_FILLING;
      return first ? GN_SERVING_FIRST : GN_SERVING;
    }
#ifdef GN_PLANT_HOLE
    first = false;
#else
    if (!(place & GNP_PLACE_FILLING)) first = false;
#endif
  }
  return GN_ABSENT;
}
