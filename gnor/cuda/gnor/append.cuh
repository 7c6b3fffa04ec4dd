// SPDX-License-Identifier: Apache-2.0 OR MIT
// Appending commands to the send queues without locks. A group of lanes reserves blocks with one
// compare-and-swap, fills them, publishes them in order, and rings once for all of them. A doorbell is rung
// twice with the same value; a warp alone rings the second time when it has nothing else to do.
#pragma once
#include "fabric/mlx5.h"
#include "gnor/gate.cuh"

namespace gn {

GN_DEV queue_pair& qp_of(const channel& c, gn_u32 ssd) { return ((queue_pair*)c.qps_addr)[ssd]; }

// Number of an SSD's queue in the channel: first sets of all SSDs, then their second sets.
GN_DEV gn_u32 queue_number(const channel& c, gn_u32 ssd, gn_u32 set) { return ssd + (set ? c.ssds : 0u); }
GN_DEV gn_u32 ssd_of(const channel& c, gn_u32 queue) { return queue - (queue >= c.ssds ? c.ssds : 0u); }

// Where the parts of a queue are: computed, so that no load waits for another.
GN_DEV gn_u64 queue_of(const channel& c, gn_u32 queue) {
  return c.queues_addr + (gn_u64)(queue * (SQ_AT + c.depth * QUEUE_BYTES_EACH));
}
GN_DEV gn_u32* record_of(const channel& c, gn_u32 queue) { return (gn_u32*)(queue_of(c, queue) + DBR_AT); }
GN_DEV gn_u64* doorbell_of(const channel& c, gn_u32 queue) {
  return (gn_u64*)(c.uars_addr + (gn_u64)queue * UAR_BYTES + mlx5::UAR_DB0);
}
GN_DEV dumps& dumps_of(const channel& c, gn_u32 ssd) { return ((dumps*)c.dumps_addr)[ssd]; }
GN_DEV gn_u8* capsule_of(const channel& c, gn_u32 cid) { return (gn_u8*)c.capsules_addr + (gn_u64)cid * 64; }

// When the work request is written, for the client's measure of late responses: the clock's low 32 bits,
// never 0. A NIC ignores this word of a plain SEND. 0 where the channel's user does not ask for it.
GN_DEV gn_u32 client_stamp(const channel& c) { return c.stamps ? (gn_u32)now_ns() | 1u : 0u; }

// Writes the work request that sends capsule `cid`: a control and one data segment, one block.
GN_DEV void write_send(const channel& c, gn_u32 queue, gn_u32 index, gn_u32 cid) {
  gn_u8* block = (gn_u8*)queue_of(c, queue) + SQ_AT + (gn_u64)((index & (c.depth - 1)) * mlx5::WQEBB);
  gn_u32 signal = (index + 1) % SIGNAL_EVERY == 0 ? (gn_u32)mlx5::CE_CQ_UPDATE : 0u;
  gn_u64 address = (gn_u64)capsule_of(c, cid);
  gn_u32 ctrl[4] = {be32((index & 0xffffu) << 8 | mlx5::OP_SEND), be32((c.first_qpn + queue) << 8 | 2u),
                    be32(signal), be32(client_stamp(c))};
  gn_u32 data[4] = {be32(64u), be32(c.queue_lkey), be32((gn_u32)(address >> 32)), be32((gn_u32)address)};
  mem::st16(block, ctrl);
  mem::st16(block + 16, data);
}

// The number up to which blocks may be handed out, after this number of responses was taken. Then the HCA has
// retired the block that was in the place before, and the response in the receive's place has been read.
//
// The NVMe queue's own flow control (SQHD of a response) needs no check. At most `depth` commands are
// unanswered. So of `t` commands sent, one with number t - depth or later was answered. Its response reported
// a head after that command. The queue has more than `depth` entries (NVME_ENTRIES_EACH), so its tail does
// not reach the head.
GN_DEV gn_u32 limit_of(const channel& c, gn_u32 retired, gn_u32 completed) {
  return ((int)(retired - completed) < 0 ? retired : completed) + c.depth;
}

// Publishes blocks first..first+n in reservation order and rings the doorbell. The lanes that wrote the
// blocks have passed a __syncwarp with the caller. The warp that reserved the blocks before `first` publishes
// them without waiting for anything else. Each command's receive is posted with it; its number is that of the
// command, less the number of DUMPs. So a response always finds a receive. The receive's segment has been in
// the ring since the channel was connected. The limit guarantees that the response in its place was read.
template <class S, bool DUMP = false>
GN_DEV void publish(channel& c, gn_u32 ssd, gn_u32 set, gn_u32 first, gn_u32 n) {
  queue_pair& qp = qp_of(c, ssd);
  gn_u32 queue = queue_number(c, ssd, set);
  while (!S::ALONE && S::ld_acquire(&qp.publish) != first) pause(20);
  gn_u32 next = (first + n) & 0xffffu;
  gn_u64 value = mlx5::doorbell_value(next, c.first_qpn + queue);
  gn_u32 posted = 0;  // DUMPs, which take no receive
  if (c.dumps_addr) {
    posted = S::ld(&dumps_of(c, ssd).posted) + DUMP;
    if (DUMP) S::st(&dumps_of(c, ssd).posted, posted);
  }
  mem::st_relaxed_sys(record_of(c, queue) + mlx5::RCV_DBR, be32((next - posted) & 0xffffu));
  // The doorbell carries the index, so an HCA that uses it can begin while the record is still on its way.
  // The second ring, after the record, is for an HCA that reads the record. A warp alone makes it when it has
  // nothing else to do (ring_again), or with its next doorbell.
  mem::mmio_store_after_release_sys(doorbell_of(c, queue), value);
  mem::st_fenced_sys(record_of(c, queue) + mlx5::SND_DBR, be32(next));
  if constexpr (!S::ALONE) {
    mem::mmio_store_after_release_sys(doorbell_of(c, queue), value);
    qp.rung = next;
  }
  // pairs with the acquire of the next publisher, perhaps in a later launch
  S::st_release(&qp.publish, next);
}

// Rings again, behind their records, for what a warp alone has rung before them. The lanes of `mask`
// together.
template <class S>
GN_DEV void ring_again(channel& c, gn_u32 mask) {
  static_assert(S::ALONE, "others have rung twice");
  for (gn_u32 ssd = (gn_u32)__popc(mask & lt_mask()); ssd < c.ssds; ssd += (gn_u32)__popc(mask)) {
    queue_pair& qp = qp_of(c, ssd);
    if (qp.rung == qp.publish) continue;
    gn_u32 queue = queue_number(c, ssd, set_of(S::ld(&qp.gate)));
    mem::mmio_store_after_release_sys(doorbell_of(c, queue),
                                      mlx5::doorbell_value(qp.publish, c.first_qpn + queue));
    qp.rung = qp.publish;
  }
  __syncwarp(mask);
}

// A command whose capsule is built: where it goes, and the slot of its request.
struct staged_command {
  gn_u32 cid, ssd, head;
};

// Appends the commands of the lanes of `mask` that have one; the lanes call it together. True: the lane's
// command is sent, or is on the queue pair's waiting list and will be sent. False: the queue pair is broken.
template <class S>
GN_DEV bool append(channel& c, gn_u32 mask, bool have, const staged_command& k) {
  gn_u32 with = __ballot_sync(mask, have);
  if (!with) return false;
  gn_u32 peers = __match_any_sync(mask, have ? k.ssd : 0xffffffffu) & with;
  bool leads = have && lane_id() == lowest(peers);
  reservation r;
  if (leads) r = reserve<S>(qp_of(c, k.ssd), (gn_u32)__popc(peers));
  int leader = (int)(peers ? lowest(peers) : lane_id());
  r.numbers = __shfl_sync(mask, r.numbers, leader);
  r.sends = __shfl_sync(mask, r.sends, leader);
  __syncwarp(mask);  // the leader's acquire of the freed blocks reaches the lanes that overwrite them
  gn_u32 rank = (gn_u32)__popc(peers & lt_mask());
  bool mine = have && r.sends != NONE_CLOSED;
  gn_u32 queue = queue_number(c, k.ssd, r.set());
  if (mine) S::st(&c.slots[k.cid].state, CMD_IN_FLIGHT | queue << 8 | k.head << 16);
  if (mine && rank < r.sends) write_send(c, queue, r.first() + rank, k.cid);
  if (mine && rank >= r.sends) put_waiting<S>(c, k.ssd, r.entry() + rank - r.sends, k.cid);
  __syncwarp(mask);  // the lanes' blocks and capsules are ordered before the leader's doorbell
  if (leads && mine && r.sends) publish<S>(c, k.ssd, r.set(), r.first(), r.sends);
  if (S::ALONE) __syncwarp(mask);
  return mine;
}

// The lanes that call a function together, and those of them that have the same SSD.
struct ssd_lanes {
  gn_u32 mask, group;
};

// Sends the waiting commands that `admit` gave to the first lane of each group. The SSD is `q`.
template <class S>
GN_DEV void send_admitted(channel& c, const ssd_lanes& lanes, gn_u32 q, reservation r) {
  gn_u32 mask = lanes.mask, group = lanes.group, rank = (gn_u32)__popc(group & lt_mask());
  if (!__any_sync(mask, r.sends != 0)) return;
  int leader = (int)lowest(group);
  r.numbers = __shfl_sync(mask, r.numbers, leader);
  r.sends = __shfl_sync(mask, r.sends, leader);
#pragma unroll 1
  for (gn_u32 k = rank; k < r.sends; k += (gn_u32)__popc(group))
    write_send(c, queue_number(c, q, r.set()), r.first() + k, take_waiting<S>(c, q, r.entry() + k));
  __syncwarp(mask);  // the blocks, and the waiting lanes' capsules, are ordered before the leader's doorbell
  if (rank == 0 && r.sends) publish<S>(c, q, r.set(), r.first(), r.sends);
  if (S::ALONE) __syncwarp(mask);
}

}  // namespace gn
