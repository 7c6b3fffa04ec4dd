/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The permission table: volumes, rights, client and lease epochs, serials, tombstones. Rust:
 * deengine/src/permission, deengine/src/admin/tombstones.rs.
 */
#ifndef GN_TABLE_H
#define GN_TABLE_H

#include "gn_entry.h"
#include "gn_fleet.h"
#include "gn_stamp.h"

#define GN_MAX_VOLUMES 4096u
#define GN_NO_SLOT 0xFFFFu
/* Most tombstones with request ids; the oldest go first. One is kept for 24 hours. */
#define GN_MAX_RECENT 65536u
#define GN_TOMBSTONE_BYTES 192u

/* A well-formed read, write or unmap. `slot`: that of its volume, once it was judged. */
struct gn_request {
  gn_u16 vid;
  /* The client that the SLBA names. */
  gn_u16 client;
  gn_u16 slot;
  gn_u32 vba;
  gn_u32 blocks;
  gn_u32 map_epoch;
  struct gn_stamp stamp;
  /* It changes blocks, so it needs the write lease. */
  bool writes;
};

/* A volume, and what changes with its commands. */
struct gn_volume {
  gnp_entry entry;
  /* Readers and writer, ascending. */
  gn_u16 readers[GNP_MAX_READERS + 1];
  gn_u32 reader_count;
  bool used;
  gn_u16 former_writer;
  gn_u64 lease_until_ns;
  /* Serial of the entry's state. Serials of the table never repeat. */
  gn_u64 serial;
  gn_u32 in_flight;
  /* Commands in flight that were judged by a replaced entry. */
  gn_u32 in_flight_older;
  struct gn_history history;
};

/* A volume that died within the last day. */
struct gn_tombstone {
  gn_u64 died_ns;
  gn_u64 version;
  gn_u64 term;
  gn_u32 generation;
  gn_u16 vid;
  gn_u8 ids[GNP_REQUEST_IDS][16];
};

struct gn_table {
  struct gn_volume *slots[GN_MAX_VOLUMES];
  gn_u16 by_vid[65536];
  gn_u64 term;
  gn_u64 serial;
  gn_u32 volumes;
  /* Volumes for which this SSD has room, and volume ids whose last generation it keeps. */
  gn_u32 most_volumes;
  gn_u32 most_dead;
  gn_u32 dead_count;
  gn_u32 dead[65536];
  gn_u8 is_dead[65536 / 8];
  /* A ring in the order of deaths, and the order of volume id and generation. */
  struct gn_tombstone *recent;
  gn_u32 *order;
  gn_u32 recent_at;
  gn_u32 recent_len;
  gnp_entry scratch;
};

struct gn_table *gn_table_new(gn_u64 logical_pages);
void gn_table_delete(struct gn_table *table);

struct gn_volume *gn_table_find(const struct gn_table *table, gn_u16 vid);

/* What requests are judged by: the volumes' rights, the fleet map with the serving lease, and the time. */
struct gn_judge {
  const struct gn_table *table;
  const struct gn_fleet *fleet;
  gn_u64 now_ns;
};

/* Judges a request of `client` (0: unknown, so the client of the SLBA counts), in the order of the
 * firmware. Sets its slot. */
struct gn_refused gn_table_judge(const struct gn_judge *by, gn_u16 client, struct gn_request *request);

/* Whether a daemon's term may be taken. A command takes it where it succeeds. */
struct gn_refused gn_table_check_term(const struct gn_table *table, gn_u64 term);
/* Takes a daemon's term. */
struct gn_refused gn_table_term(struct gn_table *table, gn_u64 term);
/* VOLUME ADD and CHMOD of the entry in `scratch`. */
struct gn_refused gn_table_add(struct gn_table *table, gn_u64 now_ns);
struct gn_refused gn_table_chmod(struct gn_table *table, gn_u64 now_ns);
/* VOLUME DELETE. `gone`: that generation is already deleted, so nothing remains to do. */
struct gn_deletion {
  gn_u16 vid;
  gn_u32 generation;
  gn_u64 version;
  gn_u64 term;
};
struct gn_refused gn_table_remove(struct gn_table *table, const struct gn_deletion *order, bool *gone);
/* The sweep of a volume is done. Its id may be used again, with a higher generation. */
void gn_table_bury(struct gn_table *table, gn_u64 now_ns, gn_u16 vid);
/* Whether no command that was judged by an older entry is in flight. True for a volume that does not
 * exist. */
bool gn_table_fenced(const struct gn_table *table, gn_u16 vid);

/* Fills `out` with entries from volume id `first` on. Returns their number. */
gn_u32 gn_table_list(const struct gn_table *table, gn_u16 first, struct gn_buffer out);
/* The same with tombstones, less the first `skip` of volume id `first`. */
gn_u32 gn_table_list_dead(struct gn_table *table, gn_u64 now_ns, gn_u16 first, gn_u16 skip,
                          struct gn_buffer out);

#endif
