// SPDX-License-Identifier: GPL-2.0-only
/* The player: takes an operation apart, and plays it to a device or to a map; beside a device to its twin. */
#include "gn_play_inner.h"

struct gn_player *gn_player_new(void) {
  struct gn_player *p = gn_alloc(sizeof *p);
  gn_u32 content, index;
  if (!p) return NULL;
  p->tokens = gn_alloc(GN_TOKENS * sizeof *p->tokens);
  p->buffer = gn_alloc(GN_MAP_BYTES);
  p->twin_answer = gn_alloc(GN_ANSWER_MOST);
  if (!p->tokens || !p->buffer || !p->twin_answer) {
    gn_player_delete(p);
    return NULL;
  }
  /* Word i of content c is the term of word i for c; content 0 is zeros. */
  for (content = 0; content < GN_CONTENTS; ++content)
    for (index = 0; index < GNP_BLOCK_BYTES / 4; ++index)
      p->sums[content] += gnp_block_sum_term(index, content ? gnp_block_sum_term(index, content) : 0);
  return p;
}

void gn_player_delete(struct gn_player *p) {
  if (!p) return;
  gn_player_delete(p->twin);
  gn_dev_delete(p->dev);
  gn_map_delete(p->map);
  gn_free(p->found);
  gn_free(p->tokens);
  gn_free(p->buffer);
  gn_free(p->twin_answer);
  gn_free(p);
}

struct gn_dev *gn_player_device(struct gn_player *p) { return p->dev; }

static int gn_play_one(struct gn_player *p, const gn_u8 *op, gn_u32 bytes, gn_u8 *answer, const char **why) {
  *why = NULL;
  p->answer = answer;
  p->answered = 0;
  p->at = op + 1;
  p->end = op + bytes;
  p->is_short = bytes == 0;
  p->is_long = false;
  if (bytes && !gn_play_map(p, op[0], why)) gn_play_device(p, op[0], why);
  if (p->is_short && !*why) *why = "the operation is cut short";
  if (p->is_long && !*why) *why = "the answer is too long";
  return *why ? -1 : (int)p->answered;
}

/* Bytes of a DEVICE without the one that asks for a twin. */
#define GN_DEVICE_BYTES 35u
/* Bytes of a completion in an answer, and where its code is. */
#define GN_COMPLETE_BYTES 15u
#define GN_CODE_AT 7u
/* Bytes of a TICK: its time is where a command has it. */
#define GN_TICK_BYTES 9u

/* Checks that a device has a twin if its operation asks for one, and otherwise none. */
static bool gn_twin_is_right(struct gn_player *p, const gn_u8 *op, gn_u32 bytes) {
  const char *why;
  p->has_twin = bytes > GN_DEVICE_BYTES && op[GN_DEVICE_BYTES] != 0;
  if (!p->has_twin) {
    gn_player_delete(p->twin);
    p->twin = NULL;
    return true;
  }
  if (!p->twin) p->twin = gn_player_new();
  if (!p->twin) return false;
  p->twin->is_twin = true;
  return gn_play_one(p->twin, op, bytes, p->twin->buffer, &why) == 0;
}

/* Whether the twin answers the same. A command with a wrong keyed pointer has none of PRP that is its like:
 * for the twin only its time passes. */
static bool gn_twin_agrees(struct gn_player *p, const gn_u8 *op, gn_u32 bytes) {
  bool is_command = op[0] == GN_OP_COMMAND || op[0] == GN_OP_ADMIN;
  const gn_u8 *ours = p->answer;
  gn_u8 tick[GN_TICK_BYTES];
  gn_u32 skip = 0;
  const char *why;
  int answered;
  if (is_command && p->answered >= GN_COMPLETE_BYTES && ours[0] == GN_EV_COMPLETE &&
      ours[GN_CODE_AT] == GN_INVALID_SGL) {
    skip = GN_COMPLETE_BYTES;
    memcpy(tick, op, sizeof tick);
    tick[0] = GN_OP_TICK;
    op = tick;
    bytes = sizeof tick;
  }
  answered = gn_play_one(p->twin, op, bytes, p->twin_answer, &why);
  if (answered < 0 || (gn_u32)answered != p->answered - skip) return false;
  return !memcmp(p->twin_answer, ours + skip, (gn_u32)answered);
}

int gn_play(struct gn_player *p, const gn_u8 *op, gn_u32 bytes, gn_u8 *answer, const char **why) {
  int answered = gn_play_one(p, op, bytes, answer, why);
  if (bytes == 0 || op[0] >= GN_OP_MAP || answered < 0) return answered;
  if (op[0] == GN_OP_DEVICE) {
    if (gn_twin_is_right(p, op, bytes)) return answered;
    *why = "the twin of the device cannot be made";
    return -1;
  }
  if (p->has_twin && !gn_twin_agrees(p, op, bytes)) gn_put(p, GN_EV_TWIN, 1);
  return (int)p->answered;
}

const char *gn_op_name(gn_u8 op) {
  static const char *const names[] = {"?",    "DEVICE", "COMMAND", "DATA",   "DONE",     "ADMIN", "TICK",
                                      "MOVE", "STATE",  "?",       "?",      "?",        "?",     "?",
                                      "?",    "?",      "MAP",     "INSERT", "REMOVE",   "REPLACE", "FIND",
                                      "SWEEP", "IMAGE", "SET WORD", "CHECK", "CLEAR",    "SCAN",  "FILL",
                                      "LOOK",  "WORDS"};
  return op < sizeof names / sizeof *names ? names[op] : "?";
}

const char *gn_event_name(gn_u8 event) {
  static const char *const names[] = {"?", "complete", "pages", "wants data", "data out", "closed",
                                      "state", "value", "words"};
  if (event == GN_EV_BROKEN) return "BROKEN: the device contradicts itself";
  if (event == GN_EV_TWIN) return "BROKEN: the twin with PRP answers otherwise";
  return event < sizeof names / sizeof *names ? names[event] : "?";
}
