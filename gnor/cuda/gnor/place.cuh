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

// The SSD for a read. Attempt 0 takes one of the serving replicas by `spread`. Attempt n takes the n-th
// serving replica, from the first on (protocol rule 7). PLACE_NONE if no replica serves. Half of the row may
// be from a newer map: an SSD refuses what it does not serve.
GN_DEV gn_u32 read_place(const volume& v, gn_u32 table, gn_u32 vba, gn_u32 attempt, gn_u32 spread) {
  const gn_u16* row = row_of(v, table, vba);
  gn_u32 serving = 0;  // a bit a replica
#pragma unroll
  for (gn_u32 k = 0; k < MAX_REPLICAS; ++k)
    // PLACE_NONE has the bit set too
    if (k < v.replicas && (place_at(row + k) & PLACE_FILLING) == 0) serving |= 1u << k;
  if (serving == 0) return PLACE_NONE;
  gn_u32 n = (gn_u32)__popc(serving), skip = attempt == 0 ? spread : attempt - 1;
  skip = n == 3 ? skip % 3 : skip & (n - 1);  // modulo n, which is at most 4, without a division
  while (skip--) serving &= serving - 1;
  gn_u32 place = place_at(row + __ffs((int)serving) - 1);
  return place & PLACE_FILLING ? (gn_u32)PLACE_NONE : place;
}

}  // namespace gn
