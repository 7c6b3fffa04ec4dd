// SPDX-License-Identifier: GPL-2.0-only
/* States of the player: operations that are cut short, and the longest answer. */
#include "gn_alone.h"

#define GN_OP_BYTES (GN_FRESH_MAP_BYTES + sizeof(gnp_entry) + 128u)

/* An operation in the making. */
static gn_u8 gn_op[GN_OP_BYTES];
static gn_u32 gn_op_len;
static gn_u8 gn_said[GN_ANSWER_MOST];

static void gn_add(gn_u64 value, gn_u32 bytes) {
  for (; bytes; --bytes, value >>= 8) gn_op[gn_op_len++] = (gn_u8)value;
}

static void gn_begin_op(gn_u8 op) {
  gn_op_len = 0;
  gn_add(op, 1);
}

static int gn_play_op(struct gn_player *player, gn_u32 bytes) {
  const char *why;
  return gn_play(player, gn_op, bytes, gn_said, &why);
}

static int gn_device(struct gn_player *player, gn_u32 commands) {
  gn_begin_op(GN_OP_DEVICE);
  gn_add(GN_BLOCKS, 8);
  gn_add(2 * GN_BLOCKS, 8);
  gn_add(1, 8);
  gn_add(0, 2);
  gn_add(commands, 4);
  gn_add(64, 4);
  return gn_play_op(player, gn_op_len);
}

/* What a COMMAND or ADMIN begins with, beside the time. */
struct gn_head {
  gn_u8 op;
  gn_u16 client;
  gn_u32 token;
};

/* A COMMAND, or an ADMIN with data, with one keyed descriptor. */
static int gn_command_op(struct gn_player *player, struct gn_head head, gnp_sqe sqe, const void *data,
                         gn_u32 bytes) {
  sqe.flags = GNP_FLAGS_SGL;
  sqe.nsid = 1;
  memset(&sqe.dptr, 0, sizeof sqe.dptr);
  memcpy((gn_u8 *)&sqe.dptr + 8, &bytes, 3);
  sqe.dptr.kind = GNP_SGL_KEYED;
  gn_begin_op(head.op);
  gn_add(GN_T0, 8);
  gn_add(head.client, 2);
  gn_add(head.token, 4);
  memcpy(gn_op + gn_op_len, &sqe, sizeof sqe);
  gn_op_len += sizeof sqe;
  if (data) {
    gn_add(0, 4);
    gn_add(bytes, 4);
    memcpy(gn_op + gn_op_len, data, bytes);
    gn_op_len += bytes;
  }
  return gn_play_op(player, gn_op_len);
}

static int gn_order_op(struct gn_player *player, gn_u8 opcode, gn_u32 token, const void *data, gn_u32 bytes) {
  struct gn_head head = {GN_OP_ADMIN, GN_DAEMON, token};
  gnp_sqe sqe;
  memset(&sqe, 0, sizeof sqe);
  sqe.opcode = opcode;
  sqe.cdw10 = bytes / 4;
  return gn_command_op(player, head, sqe, data, bytes);
}

/* The state that shows a change: the image of the map, and whether there is a device. */
static bool gn_look_at(struct gn_player *player, gn_u8 *into, int *bytes) {
  gn_begin_op(GN_OP_IMAGE);
  *bytes = gn_play_op(player, gn_op_len);
  if (*bytes < 0) return false;
  memcpy(into, gn_said, (gn_u32)*bytes);
  gn_begin_op(GN_OP_STATE);
  return gn_play_op(player, gn_op_len) == 9;
}

/* Every operation, cut at every byte. */
static bool gn_cuts_change_nothing(struct gn_player *player) {
  static const struct {
    gn_u8 op;
    gn_u8 bytes;
  } all[] = {{GN_OP_DEVICE, 34}, {GN_OP_COMMAND, 78}, {GN_OP_DATA, 13},     {GN_OP_DONE, 13},
             {GN_OP_ADMIN, 78},  {GN_OP_TICK, 8},     {GN_OP_MOVE, 12},     {GN_OP_MAP, 24},
             {GN_OP_INSERT, 10}, {GN_OP_REMOVE, 6},   {GN_OP_REPLACE, 14},  {GN_OP_FIND, 6},
             {GN_OP_SWEEP, 18},  {GN_OP_SET_WORD, 16}, {GN_OP_SCAN, 16},    {GN_OP_FILL, 20},
             {GN_OP_LOOK, 20},   {GN_OP_WORDS, 12}};
  static gn_u8 before[64], after[64];
  int was, is;
  gn_u32 at, cut;
  GN_IS(gn_look_at(player, before, &was));
  for (at = 0; at < sizeof all / sizeof *all; ++at) {
    for (cut = 0; cut < all[at].bytes; ++cut) {
      gn_begin_op(all[at].op);
      /* Fields of value 1, where they are whole. */
      while (gn_op_len <= cut) gn_add(gn_op_len % 4 == 1, 1);
      GN_IS(gn_play_op(player, gn_op_len) < 0);
      GN_IS(gn_look_at(player, after, &is) && is == was && !memcmp(before, after, (gn_u32)was));
    }
  }
  return true;
}

bool gn_state_cut_short(struct gn_dev *dev) {
  struct gn_player *player = gn_player_new();
  bool is_right = false;
  (void)dev;
  if (!player) return false;
  gn_begin_op(GN_OP_MAP);
  gn_add(50, 8);
  gn_add(100, 8);
  gn_add(9, 8);
  if (gn_play_op(player, gn_op_len) > 0 && gn_device(player, 8) == 0) {
    gn_begin_op(GN_OP_FILL);
    gn_add(0, 8);
    gn_add(1, 8);
    gn_add(40, 4);
    is_right = gn_play_op(player, gn_op_len) > 0 && gn_cuts_change_nothing(player);
  }
  gn_player_delete(player);
  return is_right;
}

/* Each client has a command that delays a CHMOD. One answer closes all of them. */
static bool gn_close_all(struct gn_player *player) {
  static gn_u8 map[GN_FRESH_MAP_BYTES];
  gnp_entry *entry = &gn_alone_entry;
  gn_u32 client;
  GN_IS(gn_device(player, GN_COMMANDS_MOST) == 0);
  gn_make_map(map);
  GN_IS(gn_order_op(player, GNP_MAP_SET, 1, map, sizeof map) > 0);
  entry->any_reader = 1;
  gn_entry_seal(entry);
  GN_IS(gn_order_op(player, GNP_VOLUME_ADD, 2, entry, sizeof *entry) > 0);
  for (client = 1; client <= GN_COMMANDS_MOST; ++client) {
    struct gn_head head = {GN_OP_COMMAND, (gn_u16)client, 2 + client};
    gnp_sqe sqe = gn_alone_io(GNP_IO_READ, (gn_u16)client, 0, 1);
    GN_IS(gn_command_op(player, head, sqe, NULL, 4096) == 11);
  }
  ++entry->version;
  gn_entry_seal(entry);
  GN_IS(gn_order_op(player, GNP_VOLUME_CHMOD, 9000, entry, sizeof *entry) == 0);
  gn_begin_op(GN_OP_TICK);
  gn_add(GN_T0 + GN_FENCE_NS, 8);
  GN_IS(gn_play_op(player, gn_op_len) == 3 * (int)GN_COMMANDS_MOST + 15);
  GN_IS(gn_in_flight(gn_player_device(player)) == 0);
  return true;
}

bool gn_state_long_answer(struct gn_dev *dev) {
  struct gn_player *player = gn_player_new();
  bool is_right = player && gn_close_all(player);
  (void)dev;
  gn_player_delete(player);
  return is_right;
}
