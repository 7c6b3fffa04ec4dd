/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fleet map as one SSD sees it, and the serving lease (protocol rules 1, 2). Rust: proto/src/placement,
 * deengine/src/permission/{fleet,lease}.rs.
 */
#ifndef GN_FLEET_H
#define GN_FLEET_H

#include "gn_slba.h"

/* Most bytes of an encoded map, and so of a transfer of the daemon's. */
#define GN_MAP_BYTES (1u << 20)

enum { GN_ABSENT = 0, GN_FILLING = 1, GN_SERVING = 2, GN_SERVING_FIRST = 3 };

struct gn_fleet {
  /* The map's bytes without what followed them; NULL: none yet. */
  gn_u8 *bytes;
  gn_u32 len;
  gn_u32 groups;
  gn_u32 width;
  gn_u64 epoch;
  /* Bytes of a row, and the rows. */
  gn_u32 row;
  const gn_u8 *places;
  /* Records of the SSDs in a map of format 3; NULL: it is of format 2. */
  const gn_u8 *ssds;
  /* Whether some SSD is in such a state. */
  bool has_absent;
  bool has_full;
  /* Copies of some group merge; this SSD has last copies and has lost writes (protocol rule 17). */
  bool has_merge;
  bool needs_salvage;
  /* The map gives its places to this content of the SSD, which has this incarnation (protocol rule 1a). */
  bool serves;
  gn_u32 incarnation;
  /* This SSD's index in the map, or GNP_PLACE_NONE. */
  gn_u16 own;
  /* The serving lease; none before the first renewal. */
  bool has_lease;
  /* The map names voters, which grant the lease. This code does not ask them. */
  bool voted;
  gn_u64 until_ns;
  gn_u64 lease_term;
  gn_u64 lease_version;
};

/* Length of the map at the start of `bytes`; 0 if it is not valid. The code uses
 * no part of an invalid map. */
gn_u32 gn_fleet_check(const gn_u8 *bytes, gn_u32 len, gn_u64 *term, gn_u64 *epoch);
/* Whether a valid map may follow the current one. A map of format 3 names its array, and only maps of that
 * array may follow it. */
bool gn_fleet_is_ours(const struct gn_fleet *fleet, const gn_u8 *bytes);
/* Takes a map of `len` bytes that gn_fleet_check has passed. False: no memory, and nothing has changed. */
bool gn_fleet_take(struct gn_fleet *fleet, const gn_u8 *bytes, gn_u32 len, gn_u16 id);
void gn_fleet_drop(struct gn_fleet *fleet);

/* This SSD's place among the replicas of a block: GN_ABSENT and so on. */
int gn_fleet_place(const struct gn_fleet *fleet, const gnp_entry *entry, gn_u32 vba);

/* The row of a block's group. */
const gn_u8 *gn_fleet_row(const struct gn_fleet *fleet, const gnp_entry *entry, gn_u32 vba);
/* A member of the block's group is absent, its copies merge, or too few are left for a write (protocol rules
 * 1b, 1c, 17). */
bool gn_fleet_waits(const struct gn_fleet *fleet, const gnp_entry *entry, gn_u32 vba, bool writes);
/* A member is full, so that only mapped blocks are written (protocol rule 15). */
bool gn_fleet_only_mapped(const struct gn_fleet *fleet, const gnp_entry *entry, gn_u32 vba);

/* Whether a lease that ends at `until` still runs. All comparisons with the end of a lease use this
 * function. */
static inline bool gn_runs(gn_u64 until_ns, gn_u64 now_ns) { return now_ns < until_ns; }

/* The end of a lease of `ms` milliseconds. */
static inline gn_u64 gn_lease_end(gn_u64 now_ns, gn_u32 ms) { return gn_after(now_ns, (gn_u64)ms * 1000000); }

static inline bool gn_serves(const struct gn_fleet *fleet, gn_u64 now_ns) {
  return !fleet->voted && (!fleet->has_lease || gn_runs(fleet->until_ns, now_ns));
}

#endif
