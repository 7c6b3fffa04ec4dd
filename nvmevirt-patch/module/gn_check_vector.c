// SPDX-License-Identifier: GPL-2.0-only
/*
 * A vector file in one write: it is checked, and played while its answers are read. They end with the first
 * one that is not the file's; the next read then fails with EILSEQ, and the log says where.
 */
#include <linux/sched.h>

#include "gn_check.h"

struct gn_check_vectors gn_check_vectors;

static int gn_refuse(gn_u8 *held, int result, const char *why) {
  gn_free(held);
  ++gn_check_vectors.refused;
  gn_log("vector file: %s\n", why);
  return result;
}

ssize_t gn_check_take_vector(struct gn_file *file, const char __user *from, size_t bytes) {
  struct gn_player *player;
  const char *why;
  gn_u8 *held;
  if (bytes > GN_VECTOR_MOST) return gn_refuse(NULL, -EFBIG, "more than 8 MiB");
  held = gn_alloc(bytes);
  if (!held) return gn_refuse(NULL, -ENOMEM, "there is not enough memory");
  if (copy_from_user(held, from, bytes)) return gn_refuse(held, -EFAULT, "it cannot be read");
  why = gn_vector_open(&file->vector, held, (gn_u32)bytes);
  if (why) return gn_refuse(held, -EINVAL, why);
  /* The file gets its own player, so no state of former operations remains. */
  player = gn_player_new();
  if (!player) return gn_refuse(held, -ENOMEM, "there is not enough memory");
  gn_check_look();
  gn_check_shown = player;
  gn_player_delete(file->player);
  file->player = player;
  file->held = held;
  file->ended = 0;
  ++gn_check_vectors.taken;
  return bytes;
}

void gn_check_go_on(struct gn_file *file) {
  struct gn_vector *vector = &file->vector;
  if (file->from == file->to) file->from = file->to = 0;
  gn_check_shown = file->player;
  while (!file->ended && file->to + 4 + GN_ANSWER_MOST <= GN_ANSWERS && gn_vector_next(vector)) {
    int answered = gn_check_play(file, vector->op, vector->op_bytes);
    if (answered < 0) {
      file->ended = answered;
    } else if (!gn_vector_is_answer(vector, file->answers + file->to - answered, (gn_u32)answered)) {
      gn_log("vector file: %.*s: the answer to operation %u (%s) is another one\n", (int)vector->name_len,
             vector->name, vector->number, gn_op_name(vector->op[0]));
      ++gn_check_vectors.differed;
      file->ended = -EILSEQ;
    }
    cond_resched();
  }
}

int gn_check_end_vector(struct gn_file *file) {
  gn_free(file->held);
  file->held = NULL;
  return file->ended;
}
