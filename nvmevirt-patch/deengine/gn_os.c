// SPDX-License-Identifier: GPL-2.0-only
/* Memory that is counted, and CRC-32C. */
#include "gn_os.h"

gn_u64 gn_os_bytes;

/* In front of each piece: its length. 64 bytes keep the lines of a map aligned for user space. */
#define GN_HEAD 64u
#define GN_MOST (1ull << 40)

void *gn_alloc(gn_u64 bytes) {
  gn_u8 *at;
  if (bytes > GN_MOST) return NULL;
  at = GN_LARGE_ALLOC(bytes + GN_HEAD);
  if (!at) return NULL;
  memcpy(at, &bytes, sizeof bytes);
  gn_os_bytes += bytes;
  return at + GN_HEAD;
}

void gn_free(void *memory) {
  gn_u64 bytes;
  gn_u8 *at = memory;
  if (!at) return;
  at -= GN_HEAD;
  memcpy(&bytes, at, sizeof bytes);
  gn_os_bytes -= bytes;
  GN_LARGE_FREE(at);
}

/* For eight bytes at a time: what a byte does to the remainder when N bytes follow it in its group. Made of
 * the reflected polynomial at first use. */
static gn_u32 gn_crc_of[8][256];

static void gn_crc_make(void) {
  gn_u32 byte, bit, behind;
  for (byte = 0; byte < 256; ++byte) {
    gn_u32 crc = byte;
    for (bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    gn_crc_of[0][byte] = crc;
  }
  for (behind = 1; behind < 8; ++behind)
    for (byte = 0; byte < 256; ++byte) {
      gn_u32 crc = gn_crc_of[behind - 1][byte];
      gn_crc_of[behind][byte] = crc >> 8 ^ gn_crc_of[0][crc & 0xFF];
    }
}

gn_u32 gn_crc32c(gn_u32 crc, const void *data, gn_u64 bytes) {
  const gn_u8 *at = data;
  if (!gn_crc_of[7][1]) gn_crc_make();
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    gn_u64 group;
    gn_u32 turn, next = 0;
    memcpy(&group, at, sizeof group);
    group ^= crc;
    for (turn = 0; turn < 8; ++turn) next ^= gn_crc_of[7 - turn][group >> 8 * turn & 0xFF];
    crc = next;
  }
  while (bytes--) crc = crc >> 8 ^ gn_crc_of[0][(crc ^ *at++) & 0xFF];
  return ~crc;
}
