/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the module share. */
#ifndef GN_CHECK_H
#define GN_CHECK_H

#include <linux/fs.h>
#include <linux/mutex.h>
#include <linux/uaccess.h>

#include "gn_vector.h"

#define GN_ANSWERS (256u << 10)

/* An open file. Each has its own script. */
struct gn_file {
  struct gn_player *player;
  gn_u8 *in;
  gn_u32 have;
  gn_u8 *answers;
  gn_u32 from;
  gn_u32 to;
  bool broken;
  /* A vector file whose answers the caller reads; NULL: none. `ended` is 0 or an errno. */
  gn_u8 *held;
  struct gn_vector vector;
  int ended;
};

struct gn_check_vectors {
  gn_u64 taken;
  gn_u64 differed;
  gn_u64 refused;
};

/* One caller at a time. One player is shown: the last that played. */
extern struct mutex gn_check_lock;
extern struct gn_player *gn_check_shown;
extern struct gn_check_vectors gn_check_vectors;

/* Plays an operation, and puts its answer behind its length to the others; there is room. The length of the
 * answer; or an errno, and a sentence in the log, where the bytes are no operation. */
int gn_check_play(struct gn_file *file, const gn_u8 *op, gn_u32 bytes);
/* Takes a vector file, which must come in one write. */
ssize_t gn_check_take_vector(struct gn_file *file, const char __user *from, size_t bytes);
/* Plays on, up to the end of the file, its first difference, or as many answers as there is room for. */
void gn_check_go_on(struct gn_file *file);
/* Called when all answers have been read. Returns the vector file's result. */
int gn_check_end_vector(struct gn_file *file);

/* Remembers what the shown player has counted; the lock is held. */
void gn_check_look(void);
int gn_check_stats_start(void);
void gn_check_stats_end(void);

#endif
