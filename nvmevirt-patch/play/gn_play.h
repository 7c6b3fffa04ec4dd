/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Plays the operations of a script to a device or to a map alone, and writes what it answers. The program
 * (user/) and the module (module/) have it in common. deengine/examples/vectors/ plays the same to the Rust
 * firmware. README.md describes operations, answers and vector files byte for byte.
 */
#ifndef GN_PLAY_H
#define GN_PLAY_H

#include "gn_dev.h"

/* Most bytes of the answer to one operation, and of an operation. An answer has pages of a read, waiting
 * commands that are done, and as many closed clients as commands. */
#define GN_ANSWER_MOST 24576u
#define GN_OP_MOST (2u << 20)
/* Most pages and commands of a script's device or map: a bound of its memory. */
#define GN_PAGES_MOST (1ull << 22)
#define GN_COMMANDS_MOST 4096u

enum {
  GN_OP_DEVICE = 0x01,
  GN_OP_COMMAND = 0x02,
  GN_OP_DATA = 0x03,
  GN_OP_DONE = 0x04,
  GN_OP_ADMIN = 0x05,
  GN_OP_TICK = 0x06,
  GN_OP_MOVE = 0x07,
  GN_OP_STATE = 0x08,
  GN_OP_MAP = 0x10,
  GN_OP_INSERT = 0x11,
  GN_OP_REMOVE = 0x12,
  GN_OP_REPLACE = 0x13,
  GN_OP_FIND = 0x14,
  GN_OP_SWEEP = 0x15,
  GN_OP_IMAGE = 0x16,
  GN_OP_SET_WORD = 0x17,
  GN_OP_CHECK = 0x18,
  GN_OP_CLEAR = 0x19,
  GN_OP_SCAN = 0x1A,
  GN_OP_FILL = 0x1B,
  GN_OP_LOOK = 0x1C,
  GN_OP_WORDS = 0x1D
};

enum {
  GN_EV_COMPLETE = 1,
  GN_EV_PAGES = 2,
  GN_EV_WANTS = 3,
  GN_EV_OUT = 4,
  GN_EV_CLOSED = 5,
  GN_EV_STATE = 6,
  GN_EV_VALUE = 7,
  GN_EV_WORDS = 8,
  /* The twin gave another answer to the same command with PRP. Always an error. */
  GN_EV_TWIN = 0xED,
  /* The device contradicts itself. Always an error. */
  GN_EV_BROKEN = 0xEE
};

struct gn_player;

struct gn_player *gn_player_new(void);
void gn_player_delete(struct gn_player *player);

/* Plays one operation (without its length) and writes the answer, at most GN_ANSWER_MOST bytes. Returns the
 * length of the answer, or -1 with `why` set: the bytes are no operation. */
int gn_play(struct gn_player *player, const gn_u8 *op, gn_u32 bytes, gn_u8 *answer, const char **why);

/* The device of the script, or NULL. */
struct gn_dev *gn_player_device(struct gn_player *player);

/* Words for the first difference between two answers. */
const char *gn_event_name(gn_u8 event);
const char *gn_op_name(gn_u8 op);

#endif
