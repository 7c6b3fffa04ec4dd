// SPDX-License-Identifier: GPL-2.0-only
/*
 * The check of a read or write, rule by rule in the order of the firmware. The rules are identity, map and
 * serving lease, map epoch, volume, deleting, range, rights and lease epoch, chunk, place and role. Rust:
 * deengine/src/permission/{rules,volume}.rs.
 */
#include "gn_table.h"

struct gn_volume *gn_table_find(const struct gn_table *table, gn_u16 vid) {
  gn_u16 slot = table->by_vid[vid];
  return slot == GN_NO_SLOT ? NULL : table->slots[slot];
}

/* At most ten steps for 513 readers. */
static bool gn_may_read(const struct gn_volume *volume, gn_u16 client) {
  gn_u32 low = 0, high = volume->reader_count;
  if (volume->entry.any_reader) return true;
  while (low < high) {
    gn_u32 middle = (low + high) / 2;
    if (volume->readers[middle] == client) return true;
    if (volume->readers[middle] < client)
      low = middle + 1;
    else
      high = middle;
  }
  return false;
}

static bool gn_lease_runs(const struct gn_volume *volume, gn_u64 now_ns) {
  return volume->entry.writer != 0 && gn_runs(volume->lease_until_ns, now_ns);
}

/* Whether replicas may differ in data that this client must not see. Where the map names voters, the entry
 * has a writer until the daemon takes it away, whatever this clock says. */
static bool gn_may_differ(const struct gn_volume *volume, bool voted, gn_u64 now_ns, gn_u16 client) {
  if (volume->entry.flags & GNP_ENTRY_UNSETTLED) return true;
  if (!voted && !gn_lease_runs(volume, now_ns)) return false;
  return volume->entry.writer != 0 && volume->entry.writer != client;
}

static struct gn_refused gn_check_writer(const struct gn_volume *volume, gn_u64 now_ns, gn_u16 client,
                                         gn_u32 lease_epoch) {
  gn_u8 code;
  if (volume->entry.writer == client) {
    if (lease_epoch == volume->entry.lease_epoch && gn_runs(volume->lease_until_ns, now_ns)) return gn_ok();
    code = GN_LEASE_EXPIRED;
  } else if (volume->former_writer == client) {
    code = gn_lease_runs(volume, now_ns) ? GN_LEASE_HELD_BY_OTHER : GN_LEASE_EXPIRED;
  } else {
    code = gn_may_read(volume, client) ? GN_READ_ONLY : GN_NOT_A_READER;
  }
  return gn_no(code, volume->entry.lease_epoch);
}

static struct gn_refused gn_check_place(const struct gn_judge *by, const struct gn_volume *volume,
                                        const struct gn_request *request) {
  const struct gn_fleet *fleet = by->fleet;
  int place = gn_fleet_place(fleet, &volume->entry, request->vba);
  gn_u32 epoch = (gn_u32)fleet->epoch;
  if (place == GN_ABSENT) return gn_no(GN_WRONG_TARGET, epoch);
  if (gn_fleet_waits(fleet, &volume->entry, request->vba, request->writes))
    return gn_no(GN_GROUP_WAITS, epoch);
  if (request->writes) return gn_ok();
  if (place == GN_FILLING) return gn_no(GN_NOT_HERE_YET, epoch);
  if (place == GN_SERVING && gn_may_differ(volume, fleet->voted, by->now_ns, request->client))
    return gn_no(GN_ASK_THE_FIRST, epoch);
  return gn_ok();
}

struct gn_refused gn_table_judge(const struct gn_judge *by, gn_u16 client, struct gn_request *request) {
  const struct gn_fleet *fleet = by->fleet;
  const struct gn_volume *volume;
  struct gn_refused refused;
  gn_u64 last = (gn_u64)request->vba + request->blocks - 1;
  if (client != 0 && client != request->client) return gn_no(GN_WRONG_IDENTITY, 0);
  if (!fleet->bytes) return gn_no(GN_NOT_SERVING, 0);
  if (fleet->needs_salvage) {
    refused = gn_check_epoch(request->map_epoch, (gn_u32)fleet->epoch);
    return refused.code ? refused : gn_no(GN_NEEDS_SALVAGE, (gn_u32)fleet->epoch);
  }
  if (!gn_serves(fleet, by->now_ns)) return gn_no(GN_NOT_SERVING, 0);
  refused = gn_check_epoch(request->map_epoch, (gn_u32)fleet->epoch);
  if (refused.code) return refused;
  if (!fleet->serves) return gn_no(GN_NOT_SERVING, 0);
  request->slot = by->table->by_vid[request->vid];
  if (request->slot == GN_NO_SLOT) return gn_no(GN_UNKNOWN_VOLUME, 0);
  volume = by->table->slots[request->slot];
  if (volume->entry.state == GNP_VOLUME_DELETING) return gn_no(GN_DELETING, 0);
#ifdef GN_PLANT_RANGE
  if (last > volume->entry.capacity_blocks) return gn_no(GN_OUT_OF_RANGE, 0);
#else
  if (last >= volume->entry.capacity_blocks) return gn_no(GN_OUT_OF_RANGE, 0);
#endif
  if (!request->writes) {
    if (!gn_may_read(volume, request->client)) return gn_no(GN_NOT_A_READER, 0);
  } else {
    refused = gn_check_writer(volume, by->now_ns, request->client, request->stamp.lease_epoch);
    if (refused.code) return refused;
  }
  if (request->vba >> volume->entry.chunk_shift != last >> volume->entry.chunk_shift)
    return gn_no(GN_INVALID_FIELD, 0);
  return gn_check_place(by, volume, request);
}
