/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions that the two formats of the fleet map share: fields at any alignment, the checksum. */
#ifndef GN_FLEET_INNER_H
#define GN_FLEET_INNER_H

#include "gn_fleet.h"

#define GN_MAX_SSDS 4096u
#define GN_MAX_GROUPS (1u << 24)

/* Format 3: the head, an SSD's record, and fields in it. */
#define GN_HEAD3 60u
#define GN_ARRAY3 8u
#define GN_ARRAY_BYTES 16u
#define GN_SSD3 112u
#define GN_SSD3_SHRUNK 16u
#define GN_SSD3_INCARNATION 24u
#define GN_SSD3_ID 32u
#define GN_SSD3_STATE 38u

static inline gn_u16 gn_u16_at(const gn_u8 *at) { return (gn_u16)(at[0] | at[1] << 8); }
static inline gn_u32 gn_u32_at(const gn_u8 *at) { return gn_u16_at(at) | (gn_u32)gn_u16_at(at + 2) << 16; }
static inline gn_u64 gn_u64_at(const gn_u8 *at) { return gn_u32_at(at) | (gn_u64)gn_u32_at(at + 4) << 32; }

/* The checksum in the last four bytes of the head covers the map with that field zero. */
bool gn_fleet_sum_is_right(const gn_u8 *bytes, gn_u32 len, gn_u32 head);
/* gn_fleet_check of format 3. */
gn_u32 gn_fleet3_check(const gn_u8 *bytes, gn_u32 len, gn_u64 *term, gn_u64 *epoch);
/* The rest of gn_fleet_take, for a map of format 3 in fleet->bytes. */
void gn_fleet3_take(struct gn_fleet *fleet, gn_u16 id);

#endif
