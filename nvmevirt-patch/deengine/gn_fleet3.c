// SPDX-License-Identifier: GPL-2.0-only
/* Fleet maps of format 3: decoding and checks, and their fields beside the rows. Rust:
 * proto/src/placement/map3, deengine/src/permission/fleet.rs. */
#include "gn_fleet_inner.h"
#include "gn_utf8.h"

#define GN_MAX_VOTERS 7u
#define GN_ADDRESS_BYTES 71u
#define GN_NO_PLACE 0xFFu
#define GN_VOTES 1u
#define GN_WITNESS 3u

/* Checks an SSD's record: state, vote, address, and an epoch that is not in the future. */
static bool gn_ssd_is_right(const gn_u8 *ssd, gn_u64 epoch) {
  gn_u8 state = ssd[GN_SSD3_STATE], flags = ssd[39], len = ssd[40], at;
  if (state < GNP_SSD_IN || state > GNP_SSD_FULL) return false;
  if (flags != 0 && flags != GN_VOTES && flags != GN_WITNESS) return false;
  if (len > GN_ADDRESS_BYTES || !gn_is_utf8(ssd + 41, len)) return false;
  for (at = len; at < GN_ADDRESS_BYTES; ++at)
    if (ssd[41 + at]) return false;
  return gn_u64_at(ssd + GN_SSD3_SHRUNK) <= epoch;
}

/* Whether the SSD of this index may have a place. */
static bool gn_holds(const gn_u8 *ssds, gn_u32 count, gn_u32 index) {
  const gn_u8 *ssd = ssds + index * GN_SSD3;
  if (index >= count) return false;
  return (ssd[GN_SSD3_STATE] == GNP_SSD_IN || ssd[GN_SSD3_STATE] == GNP_SSD_FULL ||
          ssd[GN_SSD3_STATE] == GNP_SSD_ABSENT) &&
         ssd[39] != GN_WITNESS;
}

static bool gn_place_serves(const gn_u8 *row, gn_u32 width, gn_u32 at) {
  return at < width && !(gn_u16_at(row + 2 * at) & GNP_PLACE_FILLING);
}

/* Each SSD of the row may have a place and is named once. The first serves. The SSD that comes in takes over
 * a place that serves. An empty place has the bit of a filling one. */
static bool gn_row_is_right(const gn_u8 *row, gn_u32 width, const gn_u8 *ssds, gn_u32 count) {
  gn_u32 named[GNP_MAX_REPLICAS + 1], names = 0, at, before;
  gn_u32 incoming = gn_u16_at(row + 2 * width);
  gn_u8 takes_over = row[2 * width + 2], first = row[2 * width + 3];
  for (at = 0; at < width; ++at) {
    gn_u32 place = gn_u16_at(row + 2 * at);
    if (place != GNP_PLACE_NONE) named[names++] = place & ~GNP_PLACE_FILLING;
  }
  if ((incoming == GNP_PLACE_NONE) != (takes_over == GN_NO_PLACE)) return false;
  if (incoming != GNP_PLACE_NONE) {
    if (!gn_place_serves(row, width, takes_over)) return false;
    named[names++] = incoming;
  }
  for (at = 0; at < names; ++at) {
    if (!gn_holds(ssds, count, named[at])) return false;
    for (before = 0; before < at; ++before)
      if (named[before] == named[at]) return false;
  }
  return first == GN_NO_PLACE || gn_place_serves(row, width, first);
}

gn_u32 gn_fleet3_check(const gn_u8 *bytes, gn_u32 len, gn_u64 *term, gn_u64 *epoch) {
  gn_u32 width, groups, count, voters = 0, at, row;
  const gn_u8 *ssds = bytes + GN_HEAD3, *rows;
  gn_u64 end;
  if (len < GN_HEAD3) return 0;
  width = gn_u16_at(bytes + 6);
  groups = gn_u32_at(bytes + 48);
  count = gn_u16_at(bytes + 52);
  if (count == 0 || count > GN_MAX_SSDS) return 0;
  if (groups == 0 || groups & (groups - 1) || groups > GN_MAX_GROUPS || width > GNP_MAX_REPLICAS) return 0;
  row = width * 2 + 4;
  end = GN_HEAD3 + (gn_u64)count * GN_SSD3 + (gn_u64)groups * row;
  if (end > len || !gn_fleet_sum_is_right(bytes, (gn_u32)end, GN_HEAD3)) return 0;
  *term = gn_u64_at(bytes + 24);
  *epoch = gn_u64_at(bytes + 32);
  for (at = 0; at < count; ++at) {
    if (!gn_ssd_is_right(ssds + at * GN_SSD3, *epoch)) return 0;
    voters += ssds[at * GN_SSD3 + 39] != 0;
  }
  if (voters > GN_MAX_VOTERS || voters != gn_u16_at(bytes + 54)) return 0;
  rows = ssds + count * GN_SSD3;
  for (at = 0; at < groups; ++at)
    if (!gn_row_is_right(rows + (gn_u64)at * row, width, ssds, count)) return 0;
  return (gn_u32)end;
}

/* Whether the map names no uuid for this SSD. */
static bool gn_has_no_uuid(const gn_u8 *ssd) {
  gn_u32 at;
  for (at = 0; at < 16; ++at)
    if (ssd[at]) return false;
  return true;
}

/* Whether copies of a group merge: of the places below `replicas` none serves, and several fill. */
static bool gn_merges(const gn_u8 *row, gn_u32 replicas) {
  gn_u32 at, fills = 0;
  for (at = 0; at < replicas; ++at) {
    gn_u32 place = gn_u16_at(row + 2 * at);
    if (place == GNP_PLACE_NONE) continue;
    if (!(place & GNP_PLACE_FILLING)) return false;
    ++fills;
  }
  return fills > 1;
}

static bool gn_any_merge(const struct gn_fleet *fleet) {
  gn_u32 group, replicas;
  for (group = 0; group < fleet->groups; ++group)
    for (replicas = 2; replicas <= fleet->width; ++replicas)
      if (gn_merges(fleet->places + (gn_u64)group * fleet->row, replicas)) return true;
  return false;
}

static bool gn_any_serving(const struct gn_fleet *fleet, gn_u32 ssd) {
  gn_u32 group, at;
  for (group = 0; group < fleet->groups; ++group)
    for (at = 0; at < fleet->width; ++at)
      if (gn_u16_at(fleet->places + (gn_u64)group * fleet->row + 2 * at) == ssd) return true;
  return false;
}

void gn_fleet3_take(struct gn_fleet *fleet, gn_u16 id) {
  gn_u32 count = gn_u16_at(fleet->bytes + 52), at;
  const gn_u8 *own = NULL;
  fleet->epoch = gn_u64_at(fleet->bytes + 32);
  fleet->groups = gn_u32_at(fleet->bytes + 48);
  fleet->row = fleet->width * 2 + 4;
  fleet->ssds = fleet->bytes + GN_HEAD3;
  fleet->places = fleet->ssds + count * GN_SSD3;
  fleet->voted = gn_u16_at(fleet->bytes + 54) != 0;
  for (at = count; at-- > 0;) {
    const gn_u8 *ssd = fleet->ssds + at * GN_SSD3;
    if (gn_u16_at(ssd + GN_SSD3_ID) == id) {
      fleet->own = (gn_u16)at;
      own = ssd;
    }
    fleet->has_absent |= ssd[GN_SSD3_STATE] == GNP_SSD_ABSENT;
    fleet->has_full |= ssd[GN_SSD3_STATE] == GNP_SSD_FULL;
  }
  fleet->serves = false;
  fleet->needs_salvage = false;
  fleet->has_merge = gn_any_merge(fleet);
  if (!own || !gn_has_no_uuid(own)) return;
  fleet->needs_salvage = own[GN_SSD3_STATE] == GNP_SSD_ABSENT &&
                         gn_u32_at(own + GN_SSD3_INCARNATION) < fleet->incarnation &&
                         gn_any_serving(fleet, fleet->own);
#ifndef GN_PLANT_CONTENT
  if (gn_u32_at(own + GN_SSD3_INCARNATION) != fleet->incarnation) return;
#endif
  /* A map that drops this content ends the content's incarnation (protocol rule 1a). */
  if (own[GN_SSD3_STATE] == GNP_SSD_OUT) ++fleet->incarnation;
  fleet->serves = own[GN_SSD3_STATE] == GNP_SSD_IN || own[GN_SSD3_STATE] == GNP_SSD_FULL;
}

/* The n-th SSD that takes a block's writes. The SSD that comes in is after the others. GNP_PLACE_NONE: there
 * is no n-th. */
static gn_u32 gn_member(const struct gn_fleet *fleet, const gn_u8 *row, gn_u32 replicas, gn_u32 n) {
  gn_u32 place;
  if (n == replicas)
    return row[2 * fleet->width + 2] < replicas ? gn_u16_at(row + 2 * fleet->width) : GNP_PLACE_NONE;
  place = gn_u16_at(row + 2 * n);
  return place == GNP_PLACE_NONE ? GNP_PLACE_NONE : place & ~GNP_PLACE_FILLING;
}

/* The number of members of the block's group, and how many of them are in this state. */
static gn_u32 gn_members(const struct gn_fleet *fleet, const gnp_entry *entry, gn_u32 vba, gn_u8 state,
                         gn_u32 *in_state) {
  const gn_u8 *row = gn_fleet_row(fleet, entry, vba);
  gn_u32 replicas = entry->replicas < fleet->width ? entry->replicas : fleet->width, n, members = 0;
  *in_state = 0;
  for (n = 0; n <= replicas; ++n) {
    gn_u32 ssd = gn_member(fleet, row, replicas, n);
    if (ssd == GNP_PLACE_NONE) continue;
    ++members;
    *in_state += fleet->ssds[ssd * GN_SSD3 + GN_SSD3_STATE] == state;
  }
  return members;
}

bool gn_fleet_waits(const struct gn_fleet *fleet, const gnp_entry *entry, gn_u32 vba, bool writes) {
  gn_u32 absent, members, least = entry->replicas < 3 ? 1 : entry->replicas - 1u;
  if (!fleet->has_absent && !fleet->has_merge && (!fleet->ssds || !writes || entry->replicas < 3))
    return false;
  if (fleet->has_merge && gn_merges(gn_fleet_row(fleet, entry, vba),
                                    entry->replicas < fleet->width ? entry->replicas : fleet->width))
    return true;
  members = gn_members(fleet, entry, vba, GNP_SSD_ABSENT, &absent);
#ifdef GN_PLANT_ABSENT
  absent = 0;
#endif
  return absent > 0 || (writes && members < least);
}

bool gn_fleet_only_mapped(const struct gn_fleet *fleet, const gnp_entry *entry, gn_u32 vba) {
  gn_u32 full;
  if (!fleet->ssds || !fleet->has_full) return false;
  gn_members(fleet, entry, vba, GNP_SSD_FULL, &full);
  /* A place that fills does not know which blocks are mapped. */
#ifdef GN_PLANT_FULL
  return full > 0;
#endif
  return full > 0 && gn_fleet_place(fleet, entry, vba) != GN_FILLING;
}
