/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the program share. */
#ifndef GN_USER_H
#define GN_USER_H

#include "../play/gn_vector.h"

/* The player: this program, or the module behind its device. */
struct gn_way {
  struct gn_player *player;
  int device;
  /* Every device here gets a twin with PRP. */
  bool twins;
};

int gn_complain(const char *what, const char *why);
int gn_way_open(struct gn_way *way, const char *path);
/* Begins a new script without device and map. */
int gn_way_reset(struct gn_way *way);
void gn_way_close(struct gn_way *way);
/* Plays whole operations, each behind its length, and writes the answers to descriptor `out`. */
int gn_way_play(struct gn_way *way, const gn_u8 *ops, gn_u32 bytes, int out);
/* Plays one operation in this program. Returns the length of the answer, or -1. */
int gn_way_one(struct gn_way *way, const gn_u8 *op, gn_u32 bytes, gn_u8 *answer);
/* Reads one answer of the module. Returns its length, or -1. */
int gn_way_read_answer(struct gn_way *way, gn_u8 *answer);

#define GN_FRESH_GROUPS 1024u
/* Header, one SSD of four bytes, padding, a place of two bytes a group. */
#define GN_FRESH_MAP_BYTES (44u + 8u + GN_FRESH_GROUPS * 2u)
#define GN_FRESH_WRITER 7u

/* A map of one SSD, GN_FRESH_MAP_BYTES long. */
void gn_make_map(gn_u8 *map);
/* Makes the entry of volume 1 with this many blocks. Its writer is GN_FRESH_WRITER. */
void gn_make_entry(gnp_entry *entry, gn_u64 blocks);

int gn_vectors(struct gn_way *way, const char *folder);
int gn_cost(gn_u64 blocks);
/* Checks this code in states that the firmware cannot reach by commands of a script. */
int gn_alone(void);
/* Plays this many operations of random bytes. The module also gets random ioctls. */
int gn_hostile(struct gn_way *way, gn_u64 seed, gn_u64 count);

/* Words for an operation, for an answer, and for a completion's refusal or success. */
void gn_say_op(gn_u32 number, const gn_u8 *op, gn_u32 bytes);
void gn_say_answer(const char *who, const gn_u8 *answer, gn_u32 bytes);
void gn_say_refusal(FILE *out, gn_u16 status, gn_u32 dw0, gn_u32 dw1);

#endif
