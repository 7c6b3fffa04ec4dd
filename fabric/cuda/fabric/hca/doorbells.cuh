// SPDX-License-Identifier: Apache-2.0 OR MIT
// The HCA's requester: one warp sees doorbells, fetches up to 32 work requests a pass, checks and
// executes them.
//
//   doorbell page --value, with the index or without--> doorbell record --producer index--> WQE ring
//   WQE ring --decode, check keys--> up ring
#pragma once
#include "fabric/hca/anew.cuh"
#include "fabric/hca/held.cuh"
#include "fabric/hca/wqe.cuh"

namespace gn { namespace hca {

// The doorbell registers of a page, in the order in which they are read. A client that rings the last one
// writes no doorbell record: the register's value is all there is.
enum : gn_u32 { REGISTERS = 5, NO_RECORD = 4 };
// Number of passes between two reads of all registers, while a queue's owner only rings the first. Reading
// five costs five accesses, which cross PCIe if the page is in host memory.
enum : gn_u32 { PASSES_PER_SWEEP = 16 };

GN_DEV const gn_u64* doorbell_register(const qp_ctx& qp, gn_u32 which) {
  gn_u32 at = which == NO_RECORD ? (gn_u32)mlx5::UAR_NO_RECORD
                                 : mlx5::UAR_DB0 + which * (mlx5::UAR_DB1 - mlx5::UAR_DB0);
  return (const gn_u64*)(qp.uar_addr + at);
}

GN_DEV gn_u64& seen_value(qp_ctx& qp, gn_u32 which) {
  return which ? qp.seen_others[which - 1] : qp.seen_first;
}

// Number of registers that a pass reads.
GN_DEV gn_u32 registers_read(const qp_ctx& qp, bool all) {
  return all || qp.many_registers ? (gn_u32)REGISTERS : 1u;
}

// Result of reading a queue pair's registers once.
struct rung {
  gn_u64 value = 0;       // of the first register
  bool is_new = false;    // any of the registers read
  bool is_plain = false;  // only the first, with an index in it, as nearly all are
};

// A doorbell that carries the producer index has no opcode. A work request's first bytes, with which libmlx5
// rings, have one. A NOP's have none, but a length in their last byte.
GN_DEV bool has_index(gn_u64 value) { return (be32((gn_u32)value) & 0xffu) == 0; }
GN_DEV bool is_request(gn_u64 value) {
  return !has_index(value) || (be32((gn_u32)(value >> 32)) & 0xffu) != 0;
}
GN_DEV gn_u32 newer_index(gn_u64 value, gn_u32 pi) {
  gn_u32 index = be32((gn_u32)value) >> 8 & 0xffffu;
  return mlx5::newer16(index, pi) ? index : pi;
}

GN_DEV rung look_at_doorbells(qp_ctx& qp, bool all) {
  rung k;
  k.value = mem::ld_acquire_sys(doorbell_register(qp, 0));  // pairs with the doorbell store
  k.is_plain = k.is_new = k.value != qp.seen_first;
  for (gn_u32 which = 1, end = registers_read(qp, all); which < end; ++which)
    if (mem::ld_relaxed_sys(doorbell_register(qp, which)) != seen_value(qp, which))
      k.is_new = true, k.is_plain = false;
  k.is_plain = k.is_plain && !is_request(k.value);
  return k;
}

// Takes the new values, and returns the producer index. This is the newest value of the doorbell record, and
// of the doorbells whose convention carries one. It never goes backwards: repeated and reordered values are
// normal. The whole warp calls it.
GN_DEV gn_u32 take_doorbells(qp_ctx& qp, bool all) {
  gn_u32 lane = lane_id(), pi = qp.sq_head;
  gn_u64 value = 0;
  bool is_new = false;
  if (lane < registers_read(qp, all)) {
    value = mem::ld_acquire_sys(doorbell_register(qp, lane));  // pairs with the doorbell store
    is_new = value != seen_value(qp, lane);
  }
  gn_u32 news = __ballot_sync(0xffffffffu, is_new);
  if (news & ~(1u << NO_RECORD))
    pi = be32(mem::ld_acquire_sys((const gn_u32*)qp.dbr_addr + mlx5::SND_DBR)) & 0xffffu;
  pi = __shfl_sync(0xffffffffu, pi, 0);
#pragma unroll 1
  for (gn_u32 todo = news; todo; todo &= todo - 1) {
    gn_u64 it = __shfl_sync(0xffffffffu, value, __ffs((int)todo) - 1);
    if (has_index(it)) pi = newer_index(it, pi);
  }
  __syncwarp();  // the registers' acquires reach all lanes; all have read what is overwritten now
  if (is_new) seen_value(qp, lane) = value;
  if (lane == 0 && news >> 1) qp.many_registers = 1;
  return pi;
}

// The same if the only news is an index in the first register, which has been read. The record is read after
// that work: no client waits for it then.
GN_DEV gn_u32 take_plain(qp_ctx& qp, gn_u64 value) {
  gn_u32 pi = newer_index(value, qp.sq_head);
  __syncwarp();  // the register's acquire reaches all lanes; all have read what is overwritten now
  if (lane_id() == 0) qp.seen_first = value;
  return pi;
}

// Takes what the record has and the doorbell had not. The record may be newer: of two rings between two reads
// only the later one is seen.
GN_DEV gn_u32 take_record(qp_ctx& qp) {
  gn_u32 pi = be32(mem::ld_acquire_sys((const gn_u32*)qp.dbr_addr + mlx5::SND_DBR)) & 0xffffu,
         head = qp.sq_head;
  __syncwarp();  // the acquire reaches all lanes, which have read the same
  pi = __shfl_sync(0xffffffffu, pi, 0);
  return mlx5::newer16(pi, head) ? pi : head;
}

// Executes the requests that are posted to one queue pair, up to producer index `pi`. The whole warp takes
// part. `stage` belongs to the warp, with an entry for each lane.
GN_DEV void serve_queue(const agent_args& a, ring_ctx& ring, up_stage* stage, qp_ctx& qp, gn_u32 pi) {
  gn_u32 lane = lane_id();
  gn_u32 head = qp.sq_head, left = (pi - head) & 0xffffu;
  if (left == 0 || left > 0x8000u) return;  // nothing, or an old value
  while (left) {
    bool mine = lane < left;
    // Read once: after a request that is flushed nothing is sent.
    bool error_state = __shfl_sync(0xffffffffu, mem::ld_relaxed_gpu(&qp.state), 0) != QP_RTS;
    work w = {};
    w.blocks = 1;
    if (mine) w = decode(a, qp, head + lane, stage[lane].w);
    // After a request of several blocks the other lanes decoded the wrong blocks. After a LOCAL_INVAL they
    // may have used a key that is invalid now. So take only the requests up to it.
    gn_u32 last = __ballot_sync(0xffffffffu, mine && (w.blocks > 1 || w.kind == UP_LOCAL_INVAL));
    gn_u32 count = last ? (gn_u32)__ffs((int)last) : (left < 32 ? left : 32u);
    gn_u32 last_blocks = __shfl_sync(0xffffffffu, w.blocks, (int)(count - 1));
    gn_u32 advance = count - 1 + last_blocks;
    mine = lane < count;
    if (left > qp.sq_mask + 1) {  // more than fits: the queue's owner is broken
      advance = left;
      count = 1;
      mine = lane == 0;
      fail(w, mlx5::SYND_LOCAL_QP_OP);
    } else if (advance > left) {  // the last one is longer than what was posted; those before it are good
      advance = left;
      if (lane == count - 1) fail(w, mlx5::SYND_LOCAL_QP_OP);
    }
    gn_u32 bad = __ballot_sync(0xffffffffu, mine && w.kind == UP_WQE_ERROR);
    // It is the last request taken, so nothing after it has been decoded.
    if (mine && w.kind == UP_LOCAL_INVAL && !bad && !error_state &&
        !key_invalidate(a, qp.pd, (gn_u32)stage[lane].w[UP_ARG]))
      fail(w, mlx5::SYND_MEMORY_OP);
    bad = __ballot_sync(0xffffffffu, mine && w.kind == UP_WQE_ERROR);
    gn_u32 first_bad = bad ? (gn_u32)__ffs((int)bad) - 1 : 32;
    if (error_state || lane > first_bad) w.kind = UP_WQE_FLUSH;
    // This comes before anything of the batch is gathered: requests after a DUMP see the data that it brings.
    if (a.held_addr && __any_sync(0xffffffffu, mine && w.kind == UP_DUMP)) release_held(a, qp);
    if (mine) stage_work(qp, w, stage[lane].w);
    __syncwarp();
    gn_u32 first = 0;
    if (lane == 0) {
      // A queue pair in error may begin anew meanwhile.
      if (bad && !error_state) mem::st_relaxed_gpu(&qp.state, (gn_u32)QP_ERROR);
      first = up_reserve(ring, count);
    }
    first = __shfl_sync(0xffffffffu, first, 0);
    __syncwarp();
    // This needs no release: the owner has released what a work request names, and the entry contains all
    // that the agent has to say.
    up_store(ring, first, count, stage);
    head = (head + advance) & 0xffffu;
    left -= advance;
    __syncwarp();
  }
  if (lane == 0) qp.sq_head = head;
  __syncwarp();
}

// Reads the doorbells of a front end's queue pairs, of `count`, once. With `all` it reads all registers. The
// whole warp calls it. Returns whether there was work.
GN_DEV bool frontend_pass(const agent_args& a, ring_ctx& ring, const front_end& f, gn_u32 count, bool all) {
  bool worked = false;
  for (gn_u32 base = f.me; base < count; base += 32 * f.all) {
    gn_u32 at = base + lane_id() * f.all;
    rung k;
    if (at < count) k = look_at_doorbells(a.qps[f.own.index[at]], all);
    gn_u32 plain = __ballot_sync(0xffffffffu, k.is_plain);
    for (gn_u32 todo = __ballot_sync(0xffffffffu, k.is_new); todo; todo &= todo - 1) {
      gn_u32 which = (gn_u32)__ffs((int)todo) - 1;
      qp_ctx& qp = a.qps[f.own.index[base + which * f.all]];
      gn_u64 value = __shfl_sync(0xffffffffu, k.value, (int)which);
      bool again = plain >> which & 1u;
      for (gn_u32 pi = again ? take_plain(qp, value) : take_doorbells(qp, all);;
           again = false, pi = take_record(qp)) {
        serve_queue(a, ring, f.stage, qp, pi);
        if (!again) break;
      }
      worked = true;
    }
  }
  return worked;
}
}}  // namespace gn::hca
