/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stamp histories: the last 4,096 (block, stamp) pairs that were applied to a volume (protocol rule 6). Rust:
 * deengine/ftl/src/stamp_history.rs.
 *
 *   heads (hash of the block) -> newest entry -> older entry -> ...
 *   ring   | oldest ......... newest | next to be overwritten
 */
#ifndef GN_STAMP_H
#define GN_STAMP_H

#include "gn_slba.h"

#define GN_HISTORY 4096u
#define GN_CHAINS 8192u

struct gn_history {
  gn_u32 len;
  gn_u32 next;
  gn_u32 vbas[GN_HISTORY];
  struct gn_stamp stamps[GN_HISTORY];
  /* The link after each entry of a chain, and to its first entry: an index + 1, or 0. */
  gn_u16 links[GN_HISTORY];
  gn_u16 heads[GN_CHAINS];
};

void gn_history_clear(struct gn_history *history);
/* The last applied stamp of a block within the history. */
bool gn_history_held(const struct gn_history *history, gn_u32 vba, struct gn_stamp *stamp);
/* Records an applied stamp. It replaces the oldest entry. */
void gn_history_record(struct gn_history *history, gn_u32 vba, struct gn_stamp stamp);

#endif
