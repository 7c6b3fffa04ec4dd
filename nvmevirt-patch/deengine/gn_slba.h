/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The names in a command: SLBA = VID 63:48 | client 47:32 | VBA 31:0, the stamp of a write, and the
 * comparison of epochs. Rust: proto/src/slba.rs, deengine/src/permission/fleet.rs.
 */
#ifndef GN_SLBA_H
#define GN_SLBA_H

#include "gn_os.h"
#include "gn_status.h"

/* Order of two writes of a block: lease epoch first, then the sequence of the writer. */
struct gn_stamp {
  gn_u32 lease_epoch;
  gn_u64 sequence;
};

static inline bool gn_stamp_above(struct gn_stamp a, struct gn_stamp b) {
#ifdef GN_PLANT_STAMP
  return a.lease_epoch != b.lease_epoch ? a.lease_epoch > b.lease_epoch : a.sequence >= b.sequence;
#else
  return a.lease_epoch != b.lease_epoch ? a.lease_epoch > b.lease_epoch : a.sequence > b.sequence;
#endif
}

/* A refusal for the completion. Code 0: no refusal. */
struct gn_refused {
  gn_u8 code;
  /* The map or lease epoch of the refusal, else 0. */
  gn_u32 epoch;
};

static inline struct gn_refused gn_no(gn_u8 code, gn_u32 epoch) {
  struct gn_refused refused = {code, epoch};
  return refused;
}

static inline struct gn_refused gn_ok(void) { return gn_no(0, 0); }

/* The map epoch of a command against that of this SSD: both have 32 bits and may wrap. */
static inline struct gn_refused gn_check_epoch(gn_u32 theirs, gn_u32 ours) {
  if (theirs == ours) return gn_ok();
#ifdef GN_PLANT_EPOCH
  return gn_no(theirs > ours ? GN_MAP_BEHIND : GN_STALE_MAP, ours);
#else
  return gn_no((gn_u32)(theirs - ours) < 1u << 31 ? GN_MAP_BEHIND : GN_STALE_MAP, ours);
#endif
}

#endif
