/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Record of a page: volume, generation and block of its content, and the content itself. It takes 32 bytes of
 * memory, and is lost when the device ends.
 */
#ifndef GN_OOB_H
#define GN_OOB_H

#include "gn_slba.h"

enum { GN_PAGE_FREE = 0, GN_PAGE_TAKEN = 1, GN_PAGE_MAPPED = 2, GN_PAGE_LEFT = 3 };

struct gn_oob {
  gn_u16 vid;
  /* GN_PAGE_*: LEFT is no longer mapped, but commands under way still read it. */
  gn_u8 state;
  gn_u8 reserved;
  gn_u32 generation;
  gn_u32 vba;
  /* Block sum of the content, computed by the data mover. */
  gn_u32 sum;
  gn_u32 lease_epoch;
  /* Reads under way. */
  gn_u32 pins;
  gn_u64 sequence;
};

#endif
