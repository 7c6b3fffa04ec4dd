// SPDX-License-Identifier: GPL-2.0-only
/* Plays operations here, or writes them to the module's device and reads its answers. */
#define _POSIX_C_SOURCE 200809L
#include "gn_user.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define GN_OUT_BYTES (1u << 18)

static const char *gn_path;

int gn_complain(const char *what, const char *why) {
  fprintf(stderr, "gn_run: %s: %s\n", what, why);
  return 1;
}

static int gn_open(struct gn_way *way) {
  way->device = open(gn_path, O_RDWR);
  return way->device < 0 ? gn_complain(gn_path, strerror(errno)) : 0;
}

int gn_way_open(struct gn_way *way, const char *path) {
  way->player = NULL;
  way->device = -1;
  gn_path = path;
  if (path) return gn_open(way);
  way->player = gn_player_new();
  return way->player ? 0 : gn_complain("memory", "there is not enough");
}

void gn_way_close(struct gn_way *way) {
  gn_player_delete(way->player);
  if (way->device >= 0) close(way->device);
  way->player = NULL;
  way->device = -1;
}

int gn_way_reset(struct gn_way *way) {
  gn_way_close(way);
  return gn_way_open(way, gn_path);
}

static int gn_write_all(int out, const gn_u8 *data, gn_u32 bytes) {
  while (bytes) {
    ssize_t put = write(out, data, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return gn_complain("writing", strerror(errno));
    data += put;
    bytes -= (gn_u32)put;
  }
  return 0;
}

/* Writes whole operations to the device, and copies its answers to `out`. */
static int gn_play_there(struct gn_way *way, const gn_u8 *ops, gn_u32 bytes, int out) {
  static gn_u8 answers[GN_OUT_BYTES];
  while (bytes) {
    ssize_t put = write(way->device, ops, bytes), got;
    if (put < 0) return gn_complain(gn_path, strerror(errno));
    ops += put;
    bytes -= (gn_u32)put;
    while ((got = read(way->device, answers, sizeof answers)) > 0)
      if (gn_write_all(out, answers, (gn_u32)got)) return 1;
    if (got < 0) return gn_complain(gn_path, strerror(errno));
  }
  return 0;
}

int gn_way_play(struct gn_way *way, const gn_u8 *ops, gn_u32 bytes, int out) {
  static gn_u8 answers[GN_OUT_BYTES];
  gn_u32 at = 0, used = 0;
  if (way->device >= 0) return gn_play_there(way, ops, bytes, out);
  while (at < bytes) {
    gn_u32 length = gn_u32_of(ops + at);
    int answered = gn_way_one(way, ops + at + 4, length, answers + used + 4);
    if (answered < 0) return 1;
    answers[used] = (gn_u8)answered;
    answers[used + 1] = (gn_u8)(answered >> 8);
    answers[used + 2] = answers[used + 3] = 0;
    used += 4 + (gn_u32)answered;
    at += 4 + length;
    if (used + 4 + GN_ANSWER_MOST > sizeof answers || at == bytes) {
      if (gn_write_all(out, answers, used)) return 1;
      used = 0;
    }
  }
  return 0;
}

/* The bytes of a DEVICE operation without the one that asks for a twin. */
#define GN_DEVICE_BYTES 35u

int gn_way_one(struct gn_way *way, const gn_u8 *op, gn_u32 bytes, gn_u8 *answer) {
  gn_u8 with_twin[GN_DEVICE_BYTES + 1];
  const char *why;
  int answered;
  if (way->twins && bytes == GN_DEVICE_BYTES && op[0] == GN_OP_DEVICE) {
    memcpy(with_twin, op, bytes);
    with_twin[bytes++] = 1;
    op = with_twin;
  }
  answered = gn_play(way->player, op, bytes, answer, &why);
  if (answered < 0) gn_complain(gn_op_name(op[0]), why);
  return answered;
}

/* Reads exactly this many bytes. */
static bool gn_read_all(int device, gn_u8 *data, gn_u32 bytes) {
  while (bytes) {
    ssize_t got = read(device, data, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      gn_complain(gn_path, got < 0 ? strerror(errno) : "no answer");
      return false;
    }
    data += got;
    bytes -= (gn_u32)got;
  }
  return true;
}

int gn_way_read_answer(struct gn_way *way, gn_u8 *answer) {
  gn_u8 head[4];
  gn_u32 length;
  if (!gn_read_all(way->device, head, sizeof head)) return -1;
  length = gn_u32_of(head);
  if (length > GN_ANSWER_MOST) {
    gn_complain(gn_path, "an answer of no possible length");
    return -1;
  }
  return gn_read_all(way->device, answer, length) ? (int)length : -1;
}
