// SPDX-License-Identifier: GPL-2.0-only
/* Draws operations: of random bytes, and of right form with bent fields. */
#include "gn_hostile.h"

gn_u64 gn_draw(struct gn_hostile *h, gn_u64 below) {
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
  if (gn_draw(h, 8)) h->bytes[4] = (gn_u8)(gn_draw(h, 4) ? 1 + gn_draw(h, 8) : 0x10 + gn_draw(h, 14));
  if (gn_draw(h, 10) == 0) said = (gn_u32)gn_draw(h, gn_draw(h, 2) ? 1ull << 32 : 64);
  for (at = 0; at < 4; ++at) h->bytes[at] = (gn_u8)(said >> 8 * at);
  return 4 + length;
}

void gn_set(gn_u8 *at, gn_u64 value, gn_u32 bytes) {
  gn_u32 index;
  for (index = 0; index < bytes; ++index) at[index] = (gn_u8)(value >> 8 * index);
}

/* Draws a device of possible size, so that later operations have one. Every sixteenth has any size. */
static gn_u32 gn_draw_device(struct gn_hostile *h) {
  gn_u64 blocks = gn_draw(h, 16) ? 64 + gn_draw(h, 4096) : gn_draw(h, 1ull << gn_draw(h, 64));
  gn_set(h->bytes, 35, 4);
  h->bytes[4] = GN_OP_DEVICE;
  gn_set(h->bytes + 5, blocks, 8);
  gn_set(h->bytes + 13, blocks + 64, 8);
  gn_set(h->bytes + 21, gn_draw(h, 1ull << 32), 8);
  gn_set(h->bytes + 29, gn_draw(h, 8) == 0, 2);
  gn_set(h->bytes + 31, 1 + gn_draw(h, 64), 4);
  gn_set(h->bytes + 35, 1 + gn_draw(h, 64), 4);
  if (gn_draw(h, 2)) return 39;
  /* The device gets a twin. */
  h->bytes[39] = 1;
  gn_set(h->bytes, 36, 4);
  return 40;
}

/* The bytes in front of the command of a COMMAND or ADMIN operation. */
#define GN_HEAD_BYTES 15u

/* Time, client and token; the time leaps now and then, and ends at 2^64. */
static void gn_set_head(struct gn_hostile *h, gn_u8 op, gn_u64 client) {
  gn_u64 span = gn_draw(h, 64) ? gn_draw(h, 1u << 20) : gn_draw(h, 3000000000ull);
  h->now_ns = gn_after(h->now_ns, gn_draw(h, 4096) ? span : ~0ull - span);
  h->bytes[4] = op;
  gn_set(h->bytes + 5, h->now_ns, 8);
  gn_set(h->bytes + 13, client, 2);
  gn_set(h->bytes + 15, h->token, 4);
}

/* A daemon's command with `bytes` bytes of data behind it. */
static gn_u32 gn_order(struct gn_hostile *h, gn_u8 opcode, const void *data, gn_u32 bytes) {
  gnp_sqe sqe;
  memset(&sqe, 0, sizeof sqe);
  sqe.opcode = opcode;
  sqe.flags = 0x40;
  sqe.nsid = 1;
  sqe.cdw10 = bytes / 4;
  gn_set((gn_u8 *)&sqe + 32, bytes, 3);
  ((gn_u8 *)&sqe)[39] = 0x40;
  ++h->token;
  gn_set_head(h, GN_OP_ADMIN, GN_DAEMON);
  memcpy(h->bytes + 4 + GN_HEAD_BYTES, &sqe, sizeof sqe);
  gn_set(h->bytes + 4 + GN_HEAD_BYTES + 64, 0, 4);
  gn_set(h->bytes + 4 + GN_HEAD_BYTES + 68, bytes, 4);
  memcpy(h->bytes + 4 + GN_HEAD_BYTES + 72, data, bytes);
  gn_set(h->bytes, GN_HEAD_BYTES + 72 + bytes, 4);
  return 4 + GN_HEAD_BYTES + 72 + bytes;
}

/* A command in the right frame with fields that mostly pass the first checks. */
static gn_u32 gn_draw_io(struct gn_hostile *h) {
  static const gn_u8 opcodes[] = {GNP_IO_READ, GNP_IO_WRITE, 0x05, 0x08, 0x09, 0x00};
  gn_u32 blocks = 1 + (gn_u32)gn_draw(h, gn_draw(h, 8) ? 4 : 300);
  gnp_sqe sqe;
  memset(&sqe, 0, sizeof sqe);
  sqe.opcode = opcodes[gn_draw(h, sizeof opcodes)];
  sqe.flags = 0x40;
  sqe.nsid = 1;
  sqe.cdw2 = sqe.cdw3 = 1;
  sqe.cdw10 = (gn_u32)gn_draw(h, gn_draw(h, 8) ? 64 : 1ull << 32);
  sqe.cdw11 = (1u + (gn_draw(h, 8) == 0)) << 16 | GN_FRESH_WRITER;
  sqe.cdw12 = blocks - 1;
  sqe.cdw14 = h->token;
  if (sqe.opcode == 0x09) sqe.cdw10 = (gn_u32)gn_draw(h, 256), sqe.cdw11 = 4;
  gn_set((gn_u8 *)&sqe + 32, sqe.opcode == 0x09 ? (sqe.cdw10 + 1) * 16 : blocks * 4096, 3);
  ((gn_u8 *)&sqe)[39] = 0x40;
  if (gn_draw(h, 4) == 0) ((gn_u8 *)&sqe)[gn_draw(h, 64)] = (gn_u8)gn_draw(h, 256);
  ++h->token;
  gn_set_head(h, GN_OP_COMMAND, gn_draw(h, 16) ? GN_FRESH_WRITER : gn_draw(h, 65536));
  memcpy(h->bytes + 4 + GN_HEAD_BYTES, &sqe, sizeof sqe);
  gn_set(h->bytes, GN_HEAD_BYTES + 64, 4);
  return 4 + GN_HEAD_BYTES + 64;
}

/* The data of one of the last commands, or time that passes. */
static gn_u32 gn_draw_end(struct gn_hostile *h) {
  static const gn_u8 ops[] = {GN_OP_DATA, GN_OP_DONE, GN_OP_TICK, GN_OP_MOVE, GN_OP_STATE};
  gn_u8 op = ops[gn_draw(h, sizeof ops)];
  gn_u32 bytes = op == GN_OP_STATE ? 1 : op == GN_OP_TICK ? 9 : op == GN_OP_MOVE ? 13 : 14, at;
  gn_set_head(h, op, 0);
  if (op == GN_OP_DATA || op == GN_OP_DONE) {
    gn_set(h->bytes + 13, h->token - gn_draw(h, 8), 4);
    h->bytes[17] = gn_draw(h, 8) == 0;
    for (at = 0; op == GN_OP_DATA && at < 32; ++at) h->bytes[4 + bytes++] = (gn_u8)gn_draw(h, 256);
  }
  if (op == GN_OP_MOVE) {
    gn_set(h->bytes + 5, gn_draw(h, 64), 4);
    gn_set(h->bytes + 9, gn_draw(h, 1ull << 32), 8);
  }
  gn_set(h->bytes, bytes, 4);
  return 4 + bytes;
}

/* A new version of the entry, its end, or bytes bent under a right checksum. */
static gn_u32 gn_draw_order(struct gn_hostile *h) {
  static gnp_entry entry;
  gn_u64 kind = gn_draw(h, 8);
  gn_make_entry(&entry, 64);
  entry.version = h->token + 2;
  if (kind == 0) ((gn_u8 *)&entry)[gn_draw(h, 256)] = (gn_u8)gn_draw(h, 256);
  if (kind == 1) entry.lease_epoch = (gn_u32)gn_draw(h, 4);
  gn_entry_seal(&entry);
  return gn_order(h, kind < 2 ? GNP_VOLUME_ADD : GNP_VOLUME_CHMOD, &entry, sizeof entry);
}

gn_u32 gn_draw_any(struct gn_hostile *h) {
  static gn_u8 map[GN_FRESH_MAP_BYTES];
  static gnp_entry entry;
  switch (h->age++) {
    case 0: return gn_draw_device(h);
    case 1: gn_make_map(map); return gn_order(h, GNP_MAP_SET, map, sizeof map);
    case 2: gn_make_entry(&entry, 64); return gn_order(h, GNP_VOLUME_ADD, &entry, sizeof entry);
    default: break;
  }
  if (gn_draw(h, 64) == 0) return gn_draw_op(h);
  if (gn_draw(h, 32) == 0) return gn_draw_order(h);
  return gn_draw(h, 2) ? gn_draw_io(h) : gn_draw_end(h);
}
