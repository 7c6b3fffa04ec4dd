// SPDX-License-Identifier: Apache-2.0 OR MIT
// Appending commands to the send queues without locks: reserve with one CAS a group of lanes, fill, publish in order, ring
// once for all of them (twice with the same value; a warp alone the second time when it has nothing else to do).
#pragma once
#include "fabric/mlx5.h"
#include "gnor/sharing.cuh"

namespace gn {

GN_DEV queue_pair& qp_of(const channel& c, gn_u32 ssd) { return ((queue_pair*)c.qps_addr)[ssd]; }

// Where the parts of an SSD's queues are: computed, so that no load waits for another.
GN_DEV gn_u64 queue_of(const channel& c, gn_u32 ssd) { return c.queues_addr + (gn_u64)(ssd * (SQ_AT + c.depth * QUEUE_BYTES_EACH)); }
GN_DEV gn_u32* record_of(const channel& c, gn_u32 ssd) { return (gn_u32*)(queue_of(c, ssd) + DBR_AT); }
GN_DEV gn_u64* doorbell_of(const channel& c, gn_u32 ssd) {
  return (gn_u64*)(c.uars_addr + (gn_u64)ssd * UAR_BYTES + mlx5::UAR_DB0);
}
GN_DEV dumps& dumps_of(const channel& c, gn_u32 ssd) { return ((dumps*)c.dumps_addr)[ssd]; }
GN_DEV gn_u8* capsule_of(const channel& c, gn_u32 cid) { return (gn_u8*)c.capsules_addr + (gn_u64)cid * 64; }

// Up to `n` send blocks of one queue pair; returns how many and the first. Bounded by what the HCA has retired and by the receives
// that are there for the responses (`limit`), so neither queue can overrun.
template <class S>
GN_DEV gn_u32 reserve(queue_pair& qp, gn_u32 n, gn_u32& first) {
  gn_u32 at = S::ld(&qp.reserve);
  for (;;) {
    gn_u32 room = S::ld_acquire(&qp.limit) - at;  // pairs with the release in take_completions
    if ((int)room <= 0) return 0;                 // others may have reserved what this thread has not seen allowed yet
    gn_u32 take = n < room ? n : room;
    gn_u32 old = S::cas(&qp.reserve, at, at + take);
    if (old == at) {
      first = at;
      return take;
    }
    at = old;
  }
}

// The work request that sends capsule `cid`: a control and one data segment, one block.
GN_DEV void write_send(const channel& c, gn_u32 ssd, gn_u32 index, gn_u32 cid) {
  gn_u8* block = (gn_u8*)queue_of(c, ssd) + SQ_AT + (gn_u64)((index & (c.depth - 1)) * mlx5::WQEBB);
  gn_u32 signal = (index + 1) % SIGNAL_EVERY == 0 ? (gn_u32)mlx5::CE_CQ_UPDATE : 0u;
  gn_u64 address = (gn_u64)capsule_of(c, cid);
  gn_u32 ctrl[4] = {be32((index & 0xffffu) << 8 | mlx5::OP_SEND), be32((c.first_qpn + ssd) << 8 | 2u), be32(signal), 0};
  gn_u32 data[4] = {be32(64u), be32(c.queue_lkey), be32((gn_u32)(address >> 32)), be32((gn_u32)address)};
  mem::st16(block, ctrl);
  mem::st16(block + 16, data);
}

// What of a queue pair may be reserved when so many responses were taken: as far as send blocks are retired, and as the responses' places have been
// read. Under cq_word's lock, or by a warp alone.
template <class S>
GN_DEV void set_limit(const channel& c, queue_pair& qp, gn_u32 completed) {
  gn_u32 least = (int)(qp.retired - completed) < 0 ? qp.retired : completed;
  S::st_release(&qp.limit, least + c.depth);  // pairs with the acquire in reserve
}

// Publishes blocks first..first+n in reservation order and rings the doorbell. The blocks were written by lanes that have
// passed a __syncwarp with the caller. Whoever reserved earlier is already on its way here: nobody waits between the two. A command's receive is
// posted with it, by the same number less that of the DUMPs, so a response always finds one: its segment has lain in the ring since the channel was
// connected, and what was in its place has been read, or the command could not have been reserved.
template <class S, bool DUMP = false>
GN_DEV void publish(channel& c, gn_u32 ssd, gn_u32 first, gn_u32 n) {
  queue_pair& qp = qp_of(c, ssd);
  while (!S::ALONE && S::ld_acquire(&qp.publish) != first) pause(20);
  gn_u32 next = first + n;
  gn_u64 kick = mlx5::doorbell_value(next, c.first_qpn + ssd);
  gn_u32 posted = 0;  // DUMPs, which take no receive
  if (c.dumps_addr) {
    posted = S::ld(&dumps_of(c, ssd).posted) + DUMP;
    if (DUMP) S::st(&dumps_of(c, ssd).posted, posted);
  }
  mem::st_relaxed_sys(record_of(c, ssd) + mlx5::RCV_DBR, be32((next - posted) & 0xffffu));
  // The doorbell carries the index: an HCA that goes by it begins while the record is on its way. Rung again behind the record, for one that
  // goes by that: a warp alone does so when it has nothing else to do (ring_again), or with its next doorbell.
  mem::mmio_store_after_release_sys(doorbell_of(c, ssd), kick);
  mem::st_fenced_sys(record_of(c, ssd) + mlx5::SND_DBR, be32(next & 0xffffu));
  if constexpr (!S::ALONE) {
    mem::mmio_store_after_release_sys(doorbell_of(c, ssd), kick);
    qp.rung = next;
  }
  S::st_release(&qp.publish, next);  // pairs with the acquire of the next publisher, perhaps in a later launch
}

// Rings again, behind their records, for what a warp alone has rung before them. The lanes of `mask` together.
template <class S>
GN_DEV void ring_again(channel& c, gn_u32 mask) {
  static_assert(S::ALONE, "others have rung twice");
  for (gn_u32 ssd = (gn_u32)__popc(mask & lt_mask()); ssd < c.ssds; ssd += (gn_u32)__popc(mask)) {
    queue_pair& qp = qp_of(c, ssd);
    if (qp.rung == qp.publish) continue;
    mem::mmio_store_after_release_sys(doorbell_of(c, ssd), mlx5::doorbell_value(qp.publish, c.first_qpn + ssd));
    qp.rung = qp.publish;
  }
  __syncwarp(mask);
}

// Appends the command of each lane of `mask` that has one; the lanes call it together. Returns whether the lane's command is on its way:
// false where the queue had no room, and the lane must poll and try again.
template <class S>
GN_DEV bool append(channel& c, gn_u32 mask, bool have, gn_u32 cid, gn_u32 ssd, gn_u32 head) {
  gn_u32 with = __ballot_sync(mask, have);
  if (!with) return false;
  gn_u32 peers = __match_any_sync(mask, have ? ssd : 0xffffffffu) & with;
  bool leads = have && lane_id() == lowest(peers);
  gn_u32 first = 0, granted = 0;
  if (leads) granted = reserve<S>(qp_of(c, ssd), (gn_u32)__popc(peers), first);
  gn_u32 leader = peers ? lowest(peers) : lane_id();
  granted = __shfl_sync(mask, granted, (int)leader);
  first = __shfl_sync(mask, first, (int)leader);
  __syncwarp(mask);  // the leader's acquire of the freed blocks reaches the lanes that overwrite them
  gn_u32 rank = (gn_u32)__popc(peers & lt_mask());
  bool mine = have && rank < granted;
  if (mine) {
    S::st(&c.slots[cid].state, CMD_IN_FLIGHT | ssd << 8 | head << 16);
    write_send(c, ssd, first + rank, cid);
  }
  __syncwarp(mask);  // the lanes' blocks and capsules are ordered before the leader's doorbell
  if (leads && granted) publish<S>(c, ssd, first, granted);
  if (S::ALONE) __syncwarp(mask);
  return mine;
}

}  // namespace gn
