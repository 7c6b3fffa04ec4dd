/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the player share. */
#ifndef GN_PLAY_INNER_H
#define GN_PLAY_INNER_H

#include "gn_play.h"

#define GN_TOKENS 65536u
#define GN_CONTENTS 256u

/* A command that the script has named. */
struct gn_token {
  gn_u32 token;
  gn_u32 handle;
  gn_u16 client;
  gn_u8 action;
  gn_u32 blocks;
  gn_u32 bytes;
};

struct gn_wait {
  gn_u32 token;
  gn_u32 handle;
};

struct gn_player {
  /* Plays the same operations to a device with PRP. Its answers must be equal. */
  struct gn_player *twin;
  gn_u8 *twin_answer;
  bool has_twin;
  bool is_twin;
  struct gn_dev *dev;
  struct gn_map *map;
  struct gn_token *tokens;
  struct gn_wait waits[GN_MAX_FENCES];
  gn_u32 wait_count;
  /* Data of the daemon's commands. */
  gn_u8 *buffer;
  /* Block sums of the contents that a script can write; content 0 is zeros. */
  gn_u32 sums[GN_CONTENTS];
  gn_u32 block_sums[GN_MAX_BLOCKS];
  /* The operation that is being read. */
  const gn_u8 *at;
  const gn_u8 *end;
  bool is_short;
  /* The answer that is being written. */
  gn_u8 *answer;
  gn_u32 answered;
  bool is_long;
  /* State of a scan of the map. */
  gn_u16 scan_vid;
  gn_u32 scan_count;
  gn_u32 *found;
  gn_u64 scan_hash;
};

static inline gn_u64 gn_get(struct gn_player *p, gn_u32 bytes) {
  gn_u64 value = 0;
  gn_u32 at;
  if ((gn_u64)(p->end - p->at) < bytes) {
    p->is_short = true;
    p->at = p->end;
    return 0;
  }
  for (at = 0; at < bytes; ++at) value |= (gn_u64)p->at[at] << 8 * at;
  p->at += bytes;
  return value;
}

static inline void gn_put(struct gn_player *p, gn_u64 value, gn_u32 bytes) {
  if (GN_ANSWER_MOST - p->answered < bytes) {
    p->is_long = true;
    return;
  }
  for (; bytes; --bytes, value >>= 8) p->answer[p->answered++] = (gn_u8)value;
}

void gn_play_device(struct gn_player *p, gn_u8 op, const char **why);
/* Operations on a map alone; false: no such operation. */
bool gn_play_map(struct gn_player *p, gn_u8 op, const char **why);

#endif
