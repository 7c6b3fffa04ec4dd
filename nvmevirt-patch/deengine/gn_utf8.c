// SPDX-License-Identifier: GPL-2.0-only
#include "gn_utf8.h"

/* Length of the UTF-8 sequence at `at`, within `bytes`; 0 if it is none. Overlong forms, surrogates and
 * numbers above 10FFFFh are none. */
static gn_u32 gn_utf8_one(const gn_u8 *at, gn_u32 bytes) {
  gn_u8 low = 0x80, high = 0xBF;
  gn_u32 len, more;
  if (at[0] < 0x80) return 1;
  if (at[0] < 0xC2 || at[0] > 0xF4) return 0;
  len = at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
  if (bytes < len) return 0;
  if (at[0] == 0xE0) low = 0xA0;
  if (at[0] == 0xED) high = 0x9F;
  if (at[0] == 0xF0) low = 0x90;
  if (at[0] == 0xF4) high = 0x8F;
  if (at[1] < low || at[1] > high) return 0;
  for (more = 2; more < len; ++more)
    if ((at[more] & 0xC0) != 0x80) return 0;
  return len;
}

bool gn_is_utf8(const gn_u8 *at, gn_u32 bytes) {
  while (bytes) {
    gn_u32 len = gn_utf8_one(at, bytes);
    if (!len) return false;
    at += len;
    bytes -= len;
  }
  return true;
}
