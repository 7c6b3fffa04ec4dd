// SPDX-License-Identifier: Apache-2.0 OR MIT
// Placement on the device: the same function as proto/src/placement.rs, over the fleet map's table in device
// memory. proto/tests/golden/placement.txt holds cases that both must compute alike.
//
// Replica k of a block is at place k of its group's row. An empty place is a missing replica: no later place
// stands in for it.
#pragma once
#include "gnor/abi.h"

namespace gn {

GN_DEV gn_u64 mix64(gn_u64 x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

// Consecutive chunks lie in consecutive groups, 32 at a time: a stripe, which loads all SSDs evenly.
constexpr gn_u32 STRIPE_SHIFT = 5;

// Epoch and number of the table in use, as the host stored them last or shortly before. These are two reads,
// so they may belong to two maps.
GN_DEV gn_u32 epoch_of(const volume& v) { return mem::ld_relaxed_cta((const gn_u32*)&v.map); }
GN_DEV gn_u32 table_of(const volume& v) { return mem::ld_relaxed_cta((const gn_u16*)&v.map + 2); }

// Placement group of a block.
GN_DEV gn_u32 group_of(const volume& v, gn_u32 vba) {
  gn_u32 chunk = vba >> v.chunk_shift;
  gn_u64 key = (gn_u64)v.vid << 32 | chunk >> STRIPE_SHIFT;
  gn_u32 stripe = (gn_u32)mix64(v.factor ^ mix64(key));
  return (stripe << STRIPE_SHIFT | (chunk & ((1u << STRIPE_SHIFT) - 1))) & (v.groups - 1);
}

// The row of the block's placement group in this table.
GN_DEV const gn_u16* row_of(const volume& v, gn_u32 table, gn_u32 vba) {
  return (const gn_u16*)v.places_addr + (gn_u64)(group_of(v, vba) + table * v.groups) * v.width;
}

// A place for a read. It needs no order, because the SSD judges the command. (ThreadSanitizer is told that
// others write it.)
GN_DEV gn_u32 place_at(const gn_u16* place) {
#ifdef GN_SIMT_HOST
  return mem::ld_relaxed_cta(place);
#else
  return *place;
#endif
}

// The SSD for a write of replica `k`, serving or filling; PLACE_NONE if the replica is missing. Meanwhile the
// host may fill the table again, for the map after the next. A writer that reads the epoch after this notices
// that. It pairs with the host's stores of the word that left the table, and of the table.
GN_DEV gn_u32 write_place(const volume& v, gn_u32 table, gn_u32 vba, gn_u32 k) {
  gn_u32 place = mem::ld_acquire_sys(row_of(v, table, vba) + k);
  return place == PLACE_NONE ? (gn_u32)PLACE_NONE : place & ~(gn_u32)PLACE_FILLING;
}

// The SSD that fills to take over one of the block's replicas: it gets each write, too (docs/drain.md). Its
// load is ordered as that of `write_place`. PLACE_NONE names a place that no volume has.
GN_DEV gn_u32 incoming_place(const volume& v, gn_u32 table, gn_u32 vba) {
  const gn_u16* first = (const gn_u16*)v.places_addr + 2ull * v.groups * v.width;
  gn_u32 comes_in = mem::ld_acquire_sys(first + (group_of(v, vba) + table * v.groups));
  return comes_in >> 8 < v.replicas ? comes_in & 0xffu : (gn_u32)PLACE_NONE;
}

// Whether any replica of the block has an SSD. A write without one fails.
GN_DEV bool has_replica(const volume& v, gn_u32 table, gn_u32 vba) {
  for (gn_u32 k = 0; k < v.replicas; ++k)
    if (write_place(v, table, vba, k) != PLACE_NONE) return true;
  return false;
}

// The first places of a block's row, 16 bits each. Bit 16 k + 15 of `serving` is set if replica k serves
// reads. Behind the places of a volume's replicas come others, which do not count.
struct read_places {
  gn_u64 places, serving;
};
static_assert(MAX_REPLICAS == 4, "four places of 16 bits");

// Reads the row once, by loads that do not wait for each other. Half of it may be from a newer map: an SSD
// refuses what it does not serve.
GN_DEV read_places read_places_of(const volume& v, gn_u32 table, gn_u32 vba) {
  const gn_u16* row = row_of(v, table, vba);
  gn_u32 end = v.width;
  gn_u32 low = place_at(row) | place_at(row + (1 < end)) << 16;
  gn_u32 high = place_at(row + (2 < end ? 2 : 0)) | place_at(row + (3 < end ? 3 : 0)) << 16;
  read_places r;
  r.places = low | (gn_u64)high << 32;
  // PLACE_NONE has PLACE_FILLING set, too
  r.serving = ~r.places & 0x8000800080008000ull & ~0ull >> (64 - 16 * v.replicas);
  return r;
}

// The SSD for a read. Attempt 0 takes one of the serving replicas by `spread`. Attempt n takes the n-th
// serving replica, from the first on (protocol rule 7). PLACE_NONE if no replica serves.
GN_DEV gn_u32 read_place(const read_places& r, gn_u32 attempt, gn_u32 spread) {
  if (r.serving == 0) return PLACE_NONE;
  gn_u32 n = (gn_u32)__popcll((long long)r.serving), skip = attempt == 0 ? spread : attempt - 1;
  skip = n == 3 ? skip % 3 : skip & (n - 1);  // modulo n, which is at most 4, without a division
  gn_u64 serving = r.serving;
#pragma unroll
  for (gn_u32 i = 0; i + 1 < MAX_REPLICAS; ++i) serving = i < skip ? serving & (serving - 1) : serving;
  // the lowest bit is bit 15 of its place
  return (gn_u32)(r.places >> (__ffsll((long long)serving) - 16)) & 0xffffu;
}
GN_DEV gn_u32 read_place(const volume& v, gn_u32 table, gn_u32 vba, gn_u32 attempt, gn_u32 spread) {
  return read_place(read_places_of(v, table, vba), attempt, spread);
}

}  // namespace gn
