// SPDX-License-Identifier: GPL-2.0-only
/* Operations of random bytes, lengths that cannot be, and any ioctl. What is
 * played answers or is refused; a crash, a hang or an ioctl that succeeds is a fault. */
#define _POSIX_C_SOURCE 200809L
#include "gn_user.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define GN_DRAWN_MOST 4096u

struct gn_hostile {
  gn_u64 seed;
  gn_u8 bytes[GN_DRAWN_MOST + 4];
  gn_u64 played;
  gn_u64 refused;
  gn_u64 ioctls;
  /* The next operation makes a device. */
  bool is_fresh;
};

static gn_u64 gn_draw(struct gn_hostile *h, gn_u64 below) {
  h->seed = gnp_mix64(h->seed + 0x9E3779B97F4A7C15ull);
  return h->seed % below;
}

/* A field of an operation: mostly small, as large ones are refused early. */
static gn_u8 gn_draw_byte(struct gn_hostile *h, gn_u32 at) {
  if (gn_draw(h, 4) == 0) return (gn_u8)gn_draw(h, 256);
  return at % 4 == 1 ? (gn_u8)gn_draw(h, 16) : 0;
}

/* An operation behind its length; its bytes in all. Every tenth has a length that is not its own. */
static gn_u32 gn_draw_op(struct gn_hostile *h) {
  gn_u32 length = 1 + (gn_u32)gn_draw(h, gn_draw(h, 8) ? 96 : GN_DRAWN_MOST), said = length, at;
  for (at = 0; at < length; ++at) h->bytes[4 + at] = gn_draw_byte(h, at);
  if (gn_draw(h, 8)) h->bytes[4] = (gn_u8)(gn_draw(h, 4) ? 1 + gn_draw(h, 8) : 0x10 + gn_draw(h, 11));
  if (gn_draw(h, 10) == 0) said = (gn_u32)gn_draw(h, gn_draw(h, 2) ? 1ull << 32 : 64);
  for (at = 0; at < 4; ++at) h->bytes[at] = (gn_u8)(said >> 8 * at);
  return 4 + length;
}

static void gn_set(gn_u8 *at, gn_u64 value, gn_u32 bytes) {
  gn_u32 index;
  for (index = 0; index < bytes; ++index) at[index] = (gn_u8)(value >> 8 * index);
}

/* A device that there can be, so that what follows has one; every sixteenth time of any size. */
static gn_u32 gn_draw_device(struct gn_hostile *h) {
  gn_u64 blocks = gn_draw(h, 16) ? 64 + gn_draw(h, 4096) : gn_draw(h, 1ull << gn_draw(h, 64));
  gn_set(h->bytes, 35, 4);
  h->bytes[4] = GN_OP_DEVICE;
  gn_set(h->bytes + 5, blocks, 8);
  gn_set(h->bytes + 13, blocks + 64, 8);
  gn_set(h->bytes + 21, gn_draw(h, 1ull << 32), 8);
  gn_set(h->bytes + 29, gn_draw(h, 4), 2);
  gn_set(h->bytes + 31, 1 + gn_draw(h, 64), 4);
  gn_set(h->bytes + 35, 1 + gn_draw(h, 64), 4);
  return 39;
}

static gn_u32 gn_draw_any(struct gn_hostile *h) {
  if (h->is_fresh) {
    h->is_fresh = false;
    return gn_draw_device(h);
  }
  return gn_draw_op(h);
}

static int gn_fresh(struct gn_hostile *h, struct gn_way *way) {
  h->is_fresh = true;
  return gn_way_reset(way);
}

/* Here: the player gets the bytes as they are, and refuses or answers. */
static int gn_hostile_here(struct gn_hostile *h, struct gn_way *way) {
  static gn_u8 answer[GN_ANSWER_MOST];
  const char *why;
  gn_u32 bytes = gn_draw_any(h) - 4;
  if (gn_play(way->player, h->bytes + 4, bytes, answer, &why) < 0)
    ++h->refused;
  else
    ++h->played;
  return gn_draw(h, 64) ? 0 : gn_fresh(h, way);
}

static int gn_any_ioctl(struct gn_hostile *h, int device) {
  static gn_u8 memory[256];
  unsigned long request = (unsigned long)gn_draw(h, 1ull << 32), kind = (unsigned long)gn_draw(h, 3);
  void *at = kind == 0 ? NULL : kind == 1 ? (void *)memory : (void *)(uintptr_t)gn_draw(h, ~0ull);
  /* Type 54h is the kernel's own: it never comes to a driver's table. */
  if ((request >> 8 & 0xFF) == 0x54) return 0;
  ++h->ioctls;
  if (ioctl(device, request, at) >= 0) return gn_complain("ioctl", "one succeeded");
  return errno == ENOTTY ? 0 : gn_complain("ioctl", strerror(errno));
}

/* Through the device, which a refusal leaves broken until it is opened anew. */
static int gn_hostile_there(struct gn_hostile *h, struct gn_way *way) {
  static gn_u8 answers[GN_ANSWER_MOST];
  gn_u32 bytes = gn_draw_any(h);
  ssize_t put = write(way->device, h->bytes, bytes);
  if (put < 0 && errno != EINVAL && errno != EAGAIN) return gn_complain("write", strerror(errno));
  if (put == (ssize_t)bytes)
    ++h->played;
  else
    ++h->refused;
  while (read(way->device, answers, sizeof answers) > 0) continue;
  if (gn_any_ioctl(h, way->device)) return 1;
  return put == (ssize_t)bytes && gn_draw(h, 64) ? 0 : gn_fresh(h, way);
}

int gn_hostile(struct gn_way *way, gn_u64 seed, gn_u64 count) {
  static struct gn_hostile h;
  gn_u64 turn;
  h.seed = seed;
  h.is_fresh = true;
  for (turn = 0; turn < count; ++turn)
    if (way->device < 0 ? gn_hostile_here(&h, way) : gn_hostile_there(&h, way)) return 1;
  printf("hostile, seed %llu: %llu operations taken, %llu refused, %llu ioctls refused\n",
         (unsigned long long)seed, (unsigned long long)h.played, (unsigned long long)h.refused,
         (unsigned long long)h.ioctls);
  return 0;
}
