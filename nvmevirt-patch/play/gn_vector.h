/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Vector files: a script with the answers that the Rust firmware gave. The program and the module read them
 * by these functions.
 *
 *   0       4         6       8            12          16
 *   "GNVS"  version   zero    body bytes   CRC-32C of the body
 *   body: name length (2), name, then operation length (4), operation, answer length (4), answer, ...
 */
#ifndef GN_VECTOR_H
#define GN_VECTOR_H

#include "gn_play.h"

#define GN_VECTOR_HEAD 16u
#define GN_VECTOR_VERSION 1u
/* Most bytes of a file. */
#define GN_VECTOR_MOST (8u << 20)

struct gn_vector {
  const gn_u8 *bytes;
  gn_u32 len;
  const char *name;
  gn_u32 name_len;
  /* Where the next operation is. */
  gn_u32 at;
  /* The operation in hand: its number from 1 on, its bytes, and the answer in the file. */
  gn_u32 number;
  const gn_u8 *op;
  gn_u32 op_bytes;
  const gn_u8 *wanted;
  gn_u32 wanted_bytes;
};

static inline gn_u32 gn_u32_of(const gn_u8 *at) {
  return at[0] | (gn_u32)at[1] << 8 | (gn_u32)at[2] << 16 | (gn_u32)at[3] << 24;
}

/* Whether the bytes begin as a vector file does. As the length of an operation that is an impossible one. */
bool gn_vector_begins(const gn_u8 *bytes, gn_u32 len);
/* Takes a file, whose bytes stay where they are. What is wrong with it in words; NULL: nothing, and then
 * every length in it is within the file. */
const char *gn_vector_open(struct gn_vector *vector, const gn_u8 *bytes, gn_u32 len);
/* Goes to the next operation; false: there is none. */
bool gn_vector_next(struct gn_vector *vector);
/* Whether this answer is equal to the file's. */
bool gn_vector_is_answer(const struct gn_vector *vector, const gn_u8 *answer, gn_u32 bytes);

#endif
