// SPDX-License-Identifier: Apache-2.0 OR MIT
// Appending commands to the send queues without locks: reserve with one CAS a group of lanes, fill, publish in order, one doorbell.
#pragma once
#include "fabric/mlx5.h"
#include "gnor/abi.h"

namespace gn {

GN_DEV queue_pair& qp_of(const channel& c, gn_u32 ssd) { return ((queue_pair*)c.qps_addr)[ssd]; }

GN_DEV gn_u8* capsule_of(const channel& c, gn_u32 cid) { return (gn_u8*)c.capsules_addr + (gn_u64)cid * 64; }

// Up to `n` send blocks of one queue pair; returns how many and the first. Bounded by what the HCA has retired and by the receives
// that are there for the responses, so neither queue can overrun.
GN_DEV gn_u32 reserve(queue_pair& qp, gn_u32 n, gn_u32& first) {
  gn_u32 at = mem::ld_relaxed_gpu(&qp.reserve);
  for (;;) {
    gn_u32 sq_room = SQ_BLOCKS - (at - mem::ld_acquire_gpu(&qp.retired));    // pairs with the release in take_completions
    gn_u32 rq_room = RQ_ENTRIES - (at - mem::ld_acquire_gpu(&qp.completed)); // likewise
    gn_u32 room = sq_room < rq_room ? sq_room : rq_room;
    gn_u32 take = n < room ? n : room;
    if (take == 0) return 0;
    gn_u32 old = mem::cas_relaxed_gpu(&qp.reserve, at, at + take);
    if (old == at) {
      first = at;
      return take;
    }
    at = old;
  }
}

// The work request that sends capsule `cid`: a control and one data segment, one block.
GN_DEV void write_send(const channel& c, const queue_pair& qp, gn_u32 index, gn_u32 cid) {
  gn_u8* block = (gn_u8*)qp.sq_addr + (gn_u64)(index & (SQ_BLOCKS - 1)) * mlx5::WQEBB;
  gn_u32 signal = (index + 1) % SIGNAL_EVERY == 0 ? (gn_u32)mlx5::CE_CQ_UPDATE : 0u;
  gn_u64 address = (gn_u64)capsule_of(c, cid);
  gn_u32 ctrl[4] = {be32((index & 0xffffu) << 8 | mlx5::OP_SEND), be32(qp.qpn << 8 | 2u), be32(signal), 0};
  gn_u32 data[4] = {be32(64u), be32(qp.lkey), be32((gn_u32)(address >> 32)), be32((gn_u32)address)};
  mem::st16(block, ctrl);
  mem::st16(block + 16, data);
}

// Publishes blocks first..first+n in reservation order and rings the doorbell. The blocks were written by lanes that have
// passed a __syncwarp with the caller. Whoever reserved earlier is already on its way here: nobody waits between the two.
GN_DEV void publish(queue_pair& qp, gn_u32 first, gn_u32 n) {
  while (mem::ld_acquire_gpu(&qp.publish) != first) pause(20);
  gn_u32 next = first + n;
  mem::st_release_sys((gn_u32*)qp.dbr_addr + mlx5::SND_DBR, be32(next & 0xffffu));
  mem::mmio_store_after_release_sys((gn_u64*)(qp.uar_addr + mlx5::UAR_DB0), mlx5::doorbell_value(next, qp.qpn));
  mem::st_release_gpu(&qp.publish, next);  // pairs with the acquire of the next publisher
}

// Appends the staged command of each lane of `mask` that has one (`cid` not NO_SLOT); the lanes call it together. Returns whether the
// lane's command is on its way: false where the queue had no room, and the lane must poll and try again.
GN_DEV bool append(channel& c, gn_u32 mask, gn_u32 cid, gn_u32 ssd) {
  bool have = cid != 0xffffffffu;
  gn_u32 with = __ballot_sync(mask, have);
  if (!have) ssd = 0xffffffffu;
  gn_u32 peers = __match_any_sync(mask, ssd) & with;
  gn_u32 leader = peers ? (gn_u32)__ffs((int)peers) - 1 : lane_id();
  gn_u32 first = 0, granted = 0;
  if (have && lane_id() == leader) granted = reserve(qp_of(c, ssd), (gn_u32)__popc(peers), first);
  granted = __shfl_sync(mask, granted, (int)leader);
  first = __shfl_sync(mask, first, (int)leader);
  __syncwarp(mask);  // the leader's acquire of the freed blocks reaches the lanes that overwrite them
  gn_u32 rank = (gn_u32)__popc(peers & lt_mask());
  bool mine = have && rank < granted;
  if (mine) {
    mem::st_release_gpu(&c.commands[cid].state, CMD_IN_FLIGHT | ssd << 8);  // pairs with the acquire in break_queue
    write_send(c, qp_of(c, ssd), first + rank, cid);
  }
  __syncwarp(mask);  // the lanes' blocks and capsules are ordered before the leader's doorbell
  if (have && lane_id() == leader && granted) publish(qp_of(c, ssd), first, granted);
  return mine;
}

}  // namespace gn
