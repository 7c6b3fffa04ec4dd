// SPDX-License-Identifier: GPL-2.0-only
/* Plays operations of random bytes, impossible lengths, bent vector files, and any ioctl. Each must be
 * answered or refused. A crash, a hang or a successful ioctl is a fault. */
#define _POSIX_C_SOURCE 200809L
#include "gn_hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int gn_fresh(struct gn_hostile *h, struct gn_way *way) {
  struct gn_dev *dev = way->player ? gn_player_device(way->player) : NULL;
  if (dev) {
    h->reads += gn_counts_of(dev)->reads;
    h->writes += gn_counts_of(dev)->writes;
    h->closed += gn_counts_of(dev)->closed;
  }
  h->age = 0;
  h->now_ns = 1000;
  return gn_way_reset(way);
}

/* A file that is taken is played to its end or to its first difference. */
static int gn_file_here(struct gn_hostile *h, struct gn_way *way) {
  static gn_u8 answer[GN_ANSWER_MOST];
  struct gn_vector vector;
  bool must_fail;
  gn_u32 bytes;
  const gn_u8 *file = gn_draw_file(h, &bytes, &must_fail);
  const char *why = gn_vector_open(&vector, file, bytes);
  ++*(why ? &h->bad_files : &h->files);
  if (must_fail && !why) return gn_complain("vector file", "a bent one was taken");
  while (!why && gn_vector_next(&vector)) {
    int answered = gn_play(way->player, vector.op, vector.op_bytes, answer, &why);
    if (answered < 0 || !gn_vector_is_answer(&vector, answer, (gn_u32)answered)) break;
  }
  return gn_fresh(h, way);
}

/* The errno with which the module must end this vector file, or 0 if the file has no error. */
static int gn_end_of(struct gn_vector vector) {
  static gn_u8 answer[GN_ANSWER_MOST];
  struct gn_player *player = gn_player_new();
  const char *why;
  int end = player ? 0 : ENOMEM;
  while (!end && gn_vector_next(&vector)) {
    int answered = gn_play(player, vector.op, vector.op_bytes, answer, &why);
    if (answered < 0)
      end = EINVAL;
    else if (!gn_vector_is_answer(&vector, answer, (gn_u32)answered))
      end = EILSEQ;
  }
  gn_player_delete(player);
  return end;
}

/* The same to the module, which must say EINVAL of what is no file. */
static int gn_file_there(struct gn_hostile *h, struct gn_way *way) {
  static gn_u8 answers[GN_ANSWER_MOST];
  struct gn_vector vector;
  bool must_fail, is_right;
  gn_u32 bytes;
  const gn_u8 *file = gn_draw_file(h, &bytes, &must_fail);
  ssize_t put, got;
  if (gn_fresh(h, way)) return 1;
  is_right = !gn_vector_open(&vector, file, bytes);
  put = write(way->device, file, bytes);
  ++*(is_right ? &h->files : &h->bad_files);
  /* Bytes that do not begin as a file does are operations. */
  if (!gn_vector_begins(file, bytes)) return gn_fresh(h, way);
  if (is_right ? put != (ssize_t)bytes : put >= 0 || errno != EINVAL)
    return gn_complain("vector file",
                       is_right ? "a right one was refused" : "a bent one was not refused by EINVAL");
  while ((got = read(way->device, answers, sizeof answers)) > 0) continue;
  if (is_right && (got < 0 ? errno : 0) != gn_end_of(vector))
    return gn_complain("vector file", "the module ends it otherwise");
  return 0;
}

/* Gives the bytes to the player of this program, which must refuse or answer. */
static int gn_hostile_here(struct gn_hostile *h, struct gn_way *way) {
  static gn_u8 answer[GN_ANSWER_MOST];
  const char *why;
  gn_u32 bytes = gn_draw_any(h) - 4;
  bool refused = gn_play(way->player, h->bytes + 4, bytes, answer, &why) < 0;
  ++*(refused ? &h->refused : &h->played);
  /* Without a device there is nothing that could refuse. */
  return gn_draw(h, 512) == 0 || !gn_player_device(way->player) ? gn_fresh(h, way) : 0;
}

static int gn_any_ioctl(struct gn_hostile *h, int device) {
  static gn_u8 memory[256];
  unsigned long request = (unsigned long)gn_draw(h, 1ull << 32), kind = (unsigned long)gn_draw(h, 3);
  void *at = kind == 0 ? NULL : kind == 1 ? (void *)memory : (void *)(uintptr_t)gn_draw(h, ~0ull);
  /* Type 54h belongs to the kernel, which never passes it to a driver. */
  if ((request >> 8 & 0xFF) == 0x54) return 0;
  ++h->ioctls;
  if (ioctl(device, request, at) >= 0) return gn_complain("ioctl", "one succeeded");
  return errno == ENOTTY ? 0 : gn_complain("ioctl", strerror(errno));
}

/* Plays through the device. After a refusal the device does nothing until it is opened again. */
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
  return put == (ssize_t)bytes && gn_draw(h, 512) ? 0 : gn_fresh(h, way);
}

/* A vector file comes behind so many operations, on average: here, and to the module, where there are few. */
#define GN_OPS_A_FILE(WAY) ((WAY)->device < 0 ? 256u : 32u)

int gn_hostile(struct gn_way *way, gn_u64 seed, gn_u64 count) {
  static struct gn_hostile h;
  gn_u64 turn;
  h.seed = seed;
  h.now_ns = 1000;
  for (turn = 0; turn < count; ++turn) {
    if (way->device < 0 ? gn_hostile_here(&h, way) : gn_hostile_there(&h, way)) return 1;
    if (gn_draw(&h, GN_OPS_A_FILE(way))) continue;
    if (way->device < 0 ? gn_file_here(&h, way) : gn_file_there(&h, way)) return 1;
  }
  if (gn_fresh(&h, way)) return 1;
  printf("hostile, seed %llu: %llu operations taken, %llu refused, %llu ioctls refused\n",
         (unsigned long long)seed, (unsigned long long)h.played, (unsigned long long)h.refused,
         (unsigned long long)h.ioctls);
  printf("vector files: %llu taken, %llu refused\n", (unsigned long long)h.files,
         (unsigned long long)h.bad_files);
  if (way->device < 0)
    printf("the devices did %llu reads, %llu writes, and closed %llu clients\n", (unsigned long long)h.reads,
           (unsigned long long)h.writes, (unsigned long long)h.closed);
  return 0;
}
