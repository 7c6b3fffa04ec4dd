// SPDX-License-Identifier: GPL-2.0-only
/* Permission entries. */
#include "gn_entry.h"
#include "gn_utf8.h"

#define GN_CRC_BYTES 4092u

static bool gn_is_zero(const gn_u8 *at, gn_u32 bytes) {
  while (bytes--)
    if (*at++) return false;
  return true;
}

static bool gn_fields_are_right(const gnp_entry *e) {
  gn_u32 at;
  if (e->state != GNP_VOLUME_ACTIVE && e->state != GNP_VOLUME_DELETING) return false;
  if (e->replicas < 1 || e->replicas > GNP_MAX_REPLICAS) return false;
  if (e->chunk_shift > 12 || e->any_reader > 1) return false;
  if (e->flags & ~GNP_ENTRY_UNSETTLED || (e->flags && e->writer)) return false;
  if (e->capacity_blocks < 1 || e->capacity_blocks > 1ull << 32) return false;
  if (!gn_is_zero(e->reserved, sizeof e->reserved) || !gn_is_zero(e->reserved2, sizeof e->reserved2))
    return false;
  if (e->name_len < 1 || e->name_len > GNP_NAME_BYTES || e->labels_len > GNP_LABEL_BYTES) return false;
  if (!gn_is_utf8(e->name, e->name_len) || !gn_is_utf8(e->labels, e->labels_len)) return false;
  if (!gnp_id_is_valid(e->vid) || !gnp_id_is_valid(e->owner)) return false;
  if (e->writer != 0 && !gnp_id_is_valid(e->writer)) return false;
  if (e->reader_count > GNP_MAX_READERS) return false;
  for (at = 0; at < e->reader_count; ++at)
    if (!gnp_id_is_valid(e->readers[at])) return false;
  return true;
}

void gn_entry_seal(gnp_entry *entry) {
  entry->crc = gn_crc32c(0, entry, GN_CRC_BYTES);
}

bool gn_entry_take(const gn_u8 *bytes, gnp_entry *out) {
  gn_u32 from, to = 0;
  memcpy(out, bytes, sizeof *out);
  if (memcmp(out->magic, "GNVE", 4) != 0 || out->format != GNP_ENTRY_FORMAT) return false;
#ifdef GN_PLANT_SUM
  if (out->crc != gn_crc32c(0, out, GN_CRC_BYTES - 1)) return false;
#else
  if (out->crc != gn_crc32c(0, out, GN_CRC_BYTES)) return false;
#endif
  if (!gn_fields_are_right(out)) return false;
  memset(out->name + out->name_len, 0, GNP_NAME_BYTES - (gn_u32)out->name_len);
  memset(out->labels + out->labels_len, 0, GNP_LABEL_BYTES - (gn_u32)out->labels_len);
  for (from = out->reader_count; from < GNP_MAX_READERS; ++from) out->readers[from] = 0;
  for (from = 0; from < GNP_REQUEST_IDS; ++from) {
    if (gn_is_zero(out->request_ids[from], 16)) continue;
    if (from != to) {
      memcpy(out->request_ids[to], out->request_ids[from], 16);
      memset(out->request_ids[from], 0, 16);
    }
    ++to;
  }
  gn_entry_seal(out);
  return true;
}
