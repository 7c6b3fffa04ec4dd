// SPDX-License-Identifier: Apache-2.0 OR MIT
// The permission entry of a volume, the fleet map of format 2, and the placement group of a block. A part of
// nvme.h, which includes it. The Rust sources are src/vendor.rs and src/placement.rs.
#ifndef GNPROTO_VOLUMES_H
#define GNPROTO_VOLUMES_H

#ifndef GNPROTO_NVME_H
#error "include gnproto/nvme.h instead"
#endif

// The permission entry of a volume

#define GNP_ENTRY_FORMAT 1u
#define GNP_NAME_BYTES 64
#define GNP_LABEL_BYTES 1024
#define GNP_MAX_READERS 512
#define GNP_REQUEST_IDS 8
#define GNP_MAX_REPLICAS 4
// Shortest and longest lease, in milliseconds, that an SSD accepts. It also accepts 0.
#define GNP_WRITE_LEASE_MIN_MS 100u
#define GNP_WRITE_LEASE_MAX_MS 3600000u
#define GNP_SERVING_LEASE_MIN_MS 10u
#define GNP_SERVING_LEASE_MAX_MS 60000u
enum { GNP_VOLUME_ACTIVE = 1, GNP_VOLUME_DELETING = 2 };
#define GNP_ENTRY_UNSETTLED 1u // replicas may differ; only without a writer

typedef struct gnp_entry {
  gnp_u8 magic[4]; // "GNVE"
  gnp_u16 format;  // GNP_ENTRY_FORMAT
  gnp_u16 vid;
  gnp_u32 generation;
  gnp_u32 lease_epoch;
  gnp_u64 version;
  gnp_u64 term;
  gnp_u64 capacity_blocks;
  gnp_u64 factor;
  gnp_u32 lease_ms;
  gnp_u16 owner;
  gnp_u16 writer; // 0: no writer
  gnp_u8 state;   // GNP_VOLUME_*
  gnp_u8 replicas;
  gnp_u8 chunk_shift; // log2 of the chunk in blocks
  gnp_u8 any_reader;
  gnp_u16 reader_count;
  gnp_u16 name_len;
  gnp_u16 labels_len;
  gnp_u8 flags; // GNP_ENTRY_UNSETTLED
  gnp_u8 reserved[5];
  gnp_u8 request_ids[GNP_REQUEST_IDS][16];
  gnp_u8 name[GNP_NAME_BYTES];
  gnp_u8 labels[GNP_LABEL_BYTES]; // key=value lines
  gnp_u16 readers[GNP_MAX_READERS];
  gnp_u64 max_bytes_per_s; // of this SSD for the volume; 0: no limit
  gnp_u32 max_iops;        // the same
  gnp_u32 salvaged_s;      // when copies that had all lost writes were merged; since 1970, 0: never
  gnp_u8 reserved2[1764];
  gnp_u32 crc; // CRC-32C of the bytes before
} gnp_entry;
GNP_ASSERT(sizeof(gnp_entry) == 4096);
GNP_AT(gnp_entry, capacity_blocks, 32);
GNP_AT(gnp_entry, state, 56);
GNP_AT(gnp_entry, request_ids, 72);
GNP_AT(gnp_entry, readers, 1288);
GNP_AT(gnp_entry, max_bytes_per_s, 2312);
GNP_AT(gnp_entry, crc, 4092);

// The fleet map: this header, `ssds` times gnp_map_ssd, then u16 places[groups][width]

#pragma pack(push, 4)
typedef struct gnp_map_header {
  gnp_u8 magic[4]; // "GNFM"
  gnp_u16 format;  // GNP_MAP_FORMAT
  gnp_u16 width;
  gnp_u64 term;
  gnp_u64 epoch; // commands carry its low 32 bits
  gnp_u32 groups; // a power of two
  gnp_u16 ssds;
  gnp_u16 reserved;
  gnp_u64 seed;
  gnp_u32 crc; // CRC-32C of the whole map with this field zero
} gnp_map_header;
#pragma pack(pop)
GNP_ASSERT(sizeof(gnp_map_header) == 44);
GNP_AT(gnp_map_header, term, 8);
GNP_AT(gnp_map_header, groups, 24);
GNP_AT(gnp_map_header, seed, 32);
GNP_AT(gnp_map_header, crc, 40);

typedef struct gnp_map_ssd {
  gnp_u16 id;
  gnp_u8 state; // GNP_SSD_*
  gnp_u8 domain;
  gnp_u32 weight; // 16.16 fixed point
} gnp_map_ssd;
GNP_ASSERT(sizeof(gnp_map_ssd) == 8);

#define GNP_MAP_FORMAT 2u
#define GNP_MAP3_FORMAT 3u // docs/formats-fleet.md
// Map format 2 has only IN and OUT.
enum { GNP_SSD_IN = 1, GNP_SSD_OUT = 2, GNP_SSD_SPARE = 3, GNP_SSD_ABSENT = 4, GNP_SSD_FULL = 5 };
#define GNP_PLACE_NONE 0xFFFFu
#define GNP_PLACE_FILLING 0x8000u // takes writes, does not serve reads
#define GNP_DEFAULT_GROUPS 65536u
#define GNP_DEFAULT_CHUNK_SHIFT 4u

GNP_FN gnp_u64 gnp_mix64(gnp_u64 x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

// The placement group of a block. 32 consecutive chunks lie in 32 consecutive groups.
// The arguments: `groups` is a power of two, `chunk_shift` below 32.
GNP_FN gnp_u32 gnp_group_of(gnp_u16 vid, gnp_u32 vba, gnp_u8 chunk_shift, gnp_u64 factor, gnp_u32 groups) {
  gnp_u32 chunk = vba >> chunk_shift;
  gnp_u64 key = (gnp_u64)vid << 32 | chunk >> 5;
  gnp_u32 stripe = (gnp_u32)gnp_mix64(factor ^ gnp_mix64(key));
  return (stripe << 5 | (chunk & 31)) & (groups - 1);
}

#endif // GNPROTO_VOLUMES_H
