// SPDX-License-Identifier: GPL-2.0-only
/* Draws vector files: correct files with wrong answers, and bent files. */
#include "gn_hostile.h"

#define GN_FILE_OPS 6u
/* Name, operations, and answers of a few bytes. */
#define GN_FILE_BYTES (GN_VECTOR_HEAD + 2u + 16u + GN_FILE_OPS * (GN_DRAWN_MOST + 64u) + 64u)

static void gn_seal_file(gn_u8 *file, gn_u32 bytes) {
  gn_set(file + 8, bytes - GN_VECTOR_HEAD, 4);
  gn_set(file + 12, gn_crc32c(0, file + GN_VECTOR_HEAD, bytes - GN_VECTOR_HEAD), 4);
}

static gn_u32 gn_draw_right_file(struct gn_hostile *h, gn_u8 *file) {
  gn_u32 name = (gn_u32)gn_draw(h, 16), ops = (gn_u32)gn_draw(h, GN_FILE_OPS + 1);
  gn_u32 at = GN_VECTOR_HEAD + 2 + name, op;
  memset(file, 0, GN_FILE_BYTES);
  memcpy(file, "GNVS", 4);
  file[4] = GN_VECTOR_VERSION;
  gn_set(file + GN_VECTOR_HEAD, name, 2);
  memset(file + GN_VECTOR_HEAD + 2, 'n', name);
  for (op = 0; op < ops; ++op) {
    gn_u32 bytes, answer = gn_draw(h, 3) ? 0 : (gn_u32)gn_draw(h, 32);
    h->age = op;
    bytes = gn_draw_any(h);
    /* Its own length, whatever the operation says. */
    gn_set(h->bytes, bytes - 4, 4);
    memcpy(file + at, h->bytes, bytes);
    at += bytes;
    gn_set(file + at, answer, 4);
    at += 4 + answer;
  }
  gn_seal_file(file, at);
  return at;
}

const gn_u8 *gn_draw_file(struct gn_hostile *h, gn_u32 *bytes, bool *must_fail) {
  static gn_u8 file[GN_FILE_BYTES];
  gn_u32 whole = gn_draw_right_file(h, file), body = whole - GN_VECTOR_HEAD;
  *bytes = whole;
  *must_fail = true;
  switch (gn_draw(h, 8)) {
    case 0: /* Cut short. */
      *bytes = (gn_u32)gn_draw(h, whole);
      break;
    case 1: /* More behind it. */
      *bytes = whole + 1 + (gn_u32)gn_draw(h, 8);
      break;
    case 2: /* Magic number, version, reserved field. */
      file[gn_draw(h, 8)] ^= (gn_u8)(1 + gn_draw(h, 255));
      break;
    case 3: /* Length, checksum. */
      file[8 + gn_draw(h, 8)] ^= (gn_u8)(1 + gn_draw(h, 255));
      break;
    case 4: /* A bit of the body. */
      file[GN_VECTOR_HEAD + gn_draw(h, body)] ^= (gn_u8)(1u << gn_draw(h, 8));
      break;
    case 5: /* A byte of the body under a right checksum: a length may be wrong, or it may be all right. */
      file[GN_VECTOR_HEAD + gn_draw(h, body)] = (gn_u8)gn_draw(h, 256);
      gn_seal_file(file, whole);
      *must_fail = false;
      break;
    case 6: /* The same, cut. */
      *bytes = GN_VECTOR_HEAD + (gn_u32)gn_draw(h, body);
      gn_seal_file(file, *bytes);
      *must_fail = false;
      break;
    default:
      *must_fail = false;
  }
  return file;
}
