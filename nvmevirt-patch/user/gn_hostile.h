/* SPDX-License-Identifier: GPL-2.0-only */
/* State of a run with random bytes from one seed. */
#ifndef GN_HOSTILE_H
#define GN_HOSTILE_H

#include "gn_user.h"

#define GN_DRAWN_MOST 8192u

struct gn_hostile {
  gn_u64 seed;
  gn_u8 bytes[GN_DRAWN_MOST + 4];
  gn_u64 played;
  gn_u64 refused;
  gn_u64 ioctls;
  /* Vector files that were taken, and vector files that were refused as a whole. */
  gn_u64 files;
  gn_u64 bad_files;
  /* Operations since the device was made. */
  gn_u32 age;
  gn_u64 now_ns;
  gn_u32 token;
  /* Counters of the devices in this program. */
  gn_u64 reads;
  gn_u64 writes;
  gn_u64 closed;
};

gn_u64 gn_draw(struct gn_hostile *h, gn_u64 below);
void gn_set(gn_u8 *at, gn_u64 value, gn_u32 bytes);
/* An operation behind its length, in h->bytes; its bytes in all. */
gn_u32 gn_draw_any(struct gn_hostile *h);
/* Draws a vector file, mostly bent. `must_fail`: a file that is bent in this way must be refused. */
const gn_u8 *gn_draw_file(struct gn_hostile *h, gn_u32 *bytes, bool *must_fail);

#endif
