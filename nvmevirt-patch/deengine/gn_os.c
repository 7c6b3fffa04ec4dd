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

/* Table for four bits at a time of the reflected polynomial 82F63B78h. */
static const gn_u32 gn_nibbles[16] = {
    0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1, 0x417B1DBC, 0x5125DAD3, 0x61C69362, 0x7198540D,
    0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9, 0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75,
};

gn_u32 gn_crc32c(gn_u32 crc, const void *data, gn_u64 bytes) {
  const gn_u8 *at = data;
  crc = ~crc;
  while (bytes--) {
    crc ^= *at++;
    crc = crc >> 4 ^ gn_nibbles[crc & 15];
    crc = crc >> 4 ^ gn_nibbles[crc & 15];
  }
  return ~crc;
}
