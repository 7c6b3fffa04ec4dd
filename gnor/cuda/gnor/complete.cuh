// SPDX-License-Identifier: Apache-2.0 OR MIT
// Completions: whoever holds the completion queue's try-lock takes up to 32 entries with its warp. Nobody waits for the lock.
#pragma once
#include "fabric/mlx5.h"
#include "gnor/append.cuh"
#include "gnor/pool.cuh"
#include "gnor/slots.cuh"

namespace gn {

// A command of a request ended with `status` (0 = success). The last one ends the request; if its owner has given up waiting,
// the slot and the buffer are returned here: a late RDMA write has then landed in nobody else's memory.
GN_DEV void end_command(channel& c, gn_u32 req, gn_u32 status, gn_u32 dw0, gn_u32 dw1) {
  request& r = c.requests[req];
  if (status && mem::cas_relaxed_gpu(&r.status, 0u, status) == 0u) {
    mem::st_relaxed_gpu(&r.dw0, dw0);
    mem::st_relaxed_gpu(&r.dw1, dw1);
  }
  gn_u32 before = mem::add_acqrel_gpu(&r.pending, 0u - 1u);  // pairs with the acquire in io_finished
  if (before == (REQ_ABANDONED | 1u)) {
    if (r.pool_addr) pool_free(c.data, r.pool_addr, r.pool_bytes);
    slot_give(c.req_bits, req);
  }
}

// Frees a command id and ends its command.
GN_DEV void finish(channel& c, gn_u32 cid, gn_u32 status, gn_u32 dw0, gn_u32 dw1) {
  gn_u32 req = c.commands[cid].req;
  mem::st_relaxed_gpu(&c.commands[cid].state, (gn_u32)CMD_FREE);
  slot_give(c.cid_bits, cid);
  end_command(c, req, status, dw0, dw1);
}

// A queue pair has failed: everything in flight on it ends with the cause. The HCA reports the failure only after its last
// transfer for this queue pair has ended. Every flushed work request comes here again: a command may have been appended in between.
// One lane a queue pair calls it, under the completion queue's lock, when this pass's responses are done: nobody else ends commands of
// `q` meanwhile.
GN_DEV void break_queue(channel& c, gn_u32 q, gn_u32 opcode, gn_u32 syndrome) {
  queue_pair& qp = qp_of(c, q);
  if (!mem::ld_relaxed_gpu(&qp.error)) mem::st_release_gpu(&qp.error, QP_BROKEN | opcode << 8 | syndrome);
  for (gn_u32 cid = 0; cid < CMD_SLOTS; ++cid) {
    if (mem::ld_acquire_gpu(&c.commands[cid].state) == (CMD_IN_FLIGHT | q << 8))
      finish(c, cid, GN_QP_BROKEN | opcode << 8 | syndrome, 0, 0);
  }
}

// A response as a lane has read it.
struct response {
  gn_u32 dw0, dw1, sqhd, cid_status;
};

// Takes ready completions with the lanes of `mask` (they call it together); returns how many.
GN_DEV gn_u32 take_completions(channel& c, gn_u32 mask) {
  gn_u32 leader = (gn_u32)__ffs((int)mask) - 1, got = 0;
  // Looking first: many warps that exchange one word slow the one that holds it.
  if (lane_id() == leader && mem::ld_relaxed_gpu(&c.cq_lock) == 0u)
    got = mem::exch_acquire_gpu(&c.cq_lock, 1u) == 0u;  // pairs with the release below
  if (!__shfl_sync(mask, got, (int)leader)) {
    pause(20);  // the holder takes ours too
    return 0;
  }
  __syncwarp(mask);
  gn_u32 ci = mem::ld_relaxed_gpu(&c.cq_ci);
  gn_u32 rank = (gn_u32)__popc(mask & lt_mask());
  gn_u32 at = ci + rank;
  const mlx5::cqe64* e = (const mlx5::cqe64*)c.cq_addr + (at & ((1u << c.cq_log) - 1));
  gn_u32 last = be32(mem::ld_acquire_sys(&e->counter_own));  // pairs with the HCA's store of this word, its last
  bool ready = (last & 1u) == (at >> c.cq_log & 1u) && (last >> 4 & 0xfu) != mlx5::CQE_INVALID;
  gn_u32 ready_lanes = __ballot_sync(mask, ready), count = 0;
  for (gn_u32 m = mask; m && (ready_lanes & (m & (0u - m))); m &= m - 1) ++count;  // the ready prefix
  bool mine = rank < count;
  gn_u32 opcode = last >> 4 & 0xfu, counter = last >> 16, q = 0xffffffffu;
  if (mine) q = (be32(e->sop_qpn) & 0xffffffu) - c.first_qpn;
  bool known = mine && q < c.ssds;
  bool is_response = known && opcode == mlx5::CQE_RESP_SEND;
  response r = {};
  if (is_response) {
    gn_u32 v[4];
    mem::ld16_stream((const void*)(qp_of(c, q).recv_addr + (gn_u64)(counter & (RQ_ENTRIES - 1)) * 16), v);
    r = response{v[0], v[1], v[2], v[3]};
  }
  bool is_ack = known && opcode == mlx5::CQE_REQ;
  gn_u32 acks = __match_any_sync(mask, is_ack ? q : 0xffffffffu);
  if (is_ack && (acks >> lane_id()) == 1u) {  // the newest of this pass: that SEND and all before it are acknowledged
    queue_pair& qp = qp_of(c, q);
    gn_u32 retired = mem::ld_relaxed_gpu(&qp.retired);
    mem::st_release_gpu(&qp.retired, retired + ((counter + 1 - retired) & 0xffffu));
  }
  // Each receive goes back before its command's slot is free, so that the next command's response finds one. The receive's buffer
  // is read: the ring slot still names it, so posting it again is only moving the counter.
  gn_u32 group = __match_any_sync(mask, is_response ? q : 0xffffffffu);
  __syncwarp(mask);
  if (is_response && lane_id() == (gn_u32)__ffs((int)group) - 1) {
    queue_pair& qp = qp_of(c, q);
    gn_u32 n = (gn_u32)__popc(group);
    gn_u32 posted = mem::add_relaxed_gpu(&qp.posted, n) + n;
    mem::st_release_sys((gn_u32*)qp.dbr_addr + mlx5::RCV_DBR, be32(posted & 0xffffu));
    mem::add_acqrel_gpu(&qp.completed, n);
  }
  __syncwarp(mask);
  if (is_response) {
    gn_u32 cid = r.cid_status & 0xffffu;
    if (cid < CMD_SLOTS && mem::ld_acquire_gpu(&c.commands[cid].state) == (CMD_IN_FLIGHT | q << 8))
      finish(c, cid, r.cid_status >> 17, r.dw0, r.dw1);
    else
      mem::add_relaxed_gpu(&c.protocol_errors, 1u);
  } else if (mine && !known) {
    mem::add_relaxed_gpu(&c.protocol_errors, 1u);
  }
  bool is_error = known && opcode >= mlx5::CQE_SIG_ERR;
  gn_u32 errors = __match_any_sync(mask, is_error ? q : 0xffffffffu);
  __syncwarp(mask);
  if (is_error && lane_id() == (gn_u32)__ffs((int)errors) - 1) break_queue(c, q, opcode, be32(e->timestamp[1]) & 0xffu);
  __syncwarp(mask);
  if (lane_id() == leader) {
    mem::st_relaxed_gpu(&c.cq_ci, ci + count);
    mem::st_release_gpu(&c.cq_lock, 0u);
  }
  if (count == 0) pause(20);
  return count;
}

}  // namespace gn
