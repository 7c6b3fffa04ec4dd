// SPDX-License-Identifier: GPL-2.0-only
/* First commands to a fresh SSD: a map with this SSD alone, and volume 1. */
#include "gn_user.h"

void gn_make_map(gn_u8 *map) {
  gnp_map_header head;
  gn_u32 crc;
  memset(map, 0, GN_FRESH_MAP_BYTES);
  memset(&head, 0, sizeof head);
  memcpy(head.magic, "GNFM", 4);
  head.format = GNP_MAP_FORMAT;
  head.width = 1;
  head.term = head.epoch = 1;
  head.groups = GN_FRESH_GROUPS;
  head.ssds = 1;
  memcpy(map, &head, sizeof head);
  map[46] = GNP_SSD_IN;
  crc = gn_crc32c(0, map, GN_FRESH_MAP_BYTES);
  memcpy(map + 40, &crc, sizeof crc);
}

void gn_make_entry(gnp_entry *entry, gn_u64 blocks) {
  memset(entry, 0, sizeof *entry);
  memcpy(entry->magic, "GNVE", 4);
  entry->format = GNP_ENTRY_FORMAT;
  entry->vid = entry->lease_epoch = 1;
  entry->generation = 1;
  entry->version = entry->term = 1;
  entry->capacity_blocks = blocks;
  entry->lease_ms = GNP_WRITE_LEASE_MAX_MS;
  entry->owner = entry->writer = GN_FRESH_WRITER;
  entry->state = GNP_VOLUME_ACTIVE;
  entry->replicas = 1;
  entry->chunk_shift = 4;
  entry->name_len = 1;
  entry->name[0] = 'c';
  gn_entry_seal(entry);
}
