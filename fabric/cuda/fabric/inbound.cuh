// SPDX-License-Identifier: Apache-2.0 OR MIT
// The HCA's responder half: messages that arrive for the queue pairs in device memory, and completions.
#pragma once
#include "fabric/keys.cuh"
#include "fabric/mlx5.h"
#include "fabric/up.cuh"

namespace gn { namespace hca {

// A descriptor with the phase bits taken off.
struct down_work {
  gn_u64 w[8];
};

GN_DEV gn_u32 down_op(const down_work& d) { return (gn_u32)(d.w[0] >> 56) & 0x7fu; }
GN_DEV gn_u32 down_qpn(const down_work& d) { return (gn_u32)(d.w[0] >> 32) & 0xffffffu; }
GN_DEV gn_u32 down_bytes(const down_work& d) { return (gn_u32)d.w[0]; }
GN_DEV gn_u32 down_key(const down_work& d) { return (gn_u32)(d.w[3] >> 31); }
GN_DEV gn_u32 down_tag(const down_work& d) { return (gn_u32)d.w[3] & 0x7fffffffu; }

struct completion {
  gn_u32 opcode, syndrome, qpn, counter, bytes;
};

// Writes a completion: sixty bytes, then the word that hands it over. The hardware writes owner 0 on its first pass.
GN_DEV void write_cqe(cq_ctx& cq, const completion& c) {
  gn_u32 pi = mem::add_relaxed_gpu(&cq.pi, 1u);
  mlx5::cqe64* e = (mlx5::cqe64*)cq.addr + (pi & cq.mask);
  gn_u32 owner = pi >> cq.log_entries & 1u;
  e->flags_rqpn = be32(c.qpn);
  e->imm_inval = 0;
  e->byte_count = be32(c.bytes);
  e->timestamp[0] = 0;
  e->timestamp[1] = be32(c.syndrome);  // offset 55 is its low byte
  e->sop_qpn = be32(c.qpn);
  gn_u32 last = (c.counter & 0xffffu) << 16 | c.opcode << 4 | owner;
  mem::st_release_sys(&e->counter_own, be32(last));  // pairs with the acquire of whoever polls the queue
}

// An inbound SEND of 16 bytes (an NVMe completion): consumes a receive, writes its bytes and its completion.
GN_DEV void deliver_send(const agent_args& a, ring_ctx& ring, const down_work& d) {
  qp_ctx& qp = a.qps[down_qpn(d) - a.first_qpn];
  if (mem::ld_relaxed_gpu(&qp.state) != QP_RTS) return;  // the Rust half flushes
  gn_u32 top = (gn_u32)(d.w[5] >> 40);
  gn_u64 lo = d.w[6] | (gn_u64)(top & 1u) << 63, hi = d.w[7] | (gn_u64)(top >> 1 & 1u) << 63;
  gn_u32 posted = be32(mem::ld_acquire_sys((const gn_u32*)qp.dbr_addr + mlx5::RCV_DBR));  // pairs with the owner's release
  gn_u32 at = mem::add_relaxed_gpu(&qp.rq_head, 1u);
  gn_u32 ready = (posted - at) & 0xffffu;
  if (ready == 0 || ready > qp.rq_mask + 1) {
    mem::add_relaxed_gpu(&qp.rq_head, 0u - 1u);
    gn_u64 position = up_reserve(ring, 1);
    up_entry* e = up_slot(ring, position);
    up_fill(e, UP_RNR, qp.qpn, at & 0xffffu, 0, 0, 16, 0);
    e->arg[0] = lo;
    e->arg[1] = hi;
    up_publish(e, position);
    return;
  }
  gn_u32 seg[4];
  mem::ld16_stream((const void*)(qp.rq_addr + (gn_u64)(at & qp.rq_mask) * mlx5::DS_BYTES), seg);
  gn_u64 to = (gn_u64)be32(seg[2]) << 32 | be32(seg[3]);
  gn_u32 syndrome = 0;
  if ((be32(seg[0]) & mlx5::BYTE_COUNT_MASK) < 16) syndrome = mlx5::SYND_LOCAL_LENGTH;
  else if (!key_opens(a, qp.pd, be32(seg[1]), to, 16, ACCESS_LOCAL_WRITE)) syndrome = mlx5::SYND_LOCAL_PROT;
  if (syndrome) {
    mem::st_relaxed_gpu(&qp.state, (gn_u32)QP_ERROR);
    up_push(ring, UP_RECV_ERROR, qp.qpn, at & 0xffffu, syndrome, 0, 0);
    return;
  }
  // The Rust half sends early by about the way it takes; what is left of that is waited for here.
  while (now_ns() < d.w[2]) pause(0);
  gn_u32 v[4] = {(gn_u32)lo, (gn_u32)(lo >> 32), (gn_u32)hi, (gn_u32)(hi >> 32)};
  mem::st16((void*)to, v);
  write_cqe(a.cqs[qp.cq], completion{mlx5::CQE_RESP_SEND, 0, qp.qpn, at, 16});
  mem::add_relaxed_gpu(&ring.responses, (gn_u64)1);
  if (now_ns() > d.w[4]) mem::add_relaxed_gpu(&ring.late, (gn_u64)1);
}

// A queue pair goes into error: no further receive is consumed, those posted are reported for the flush.
GN_DEV void queue_error(const agent_args& a, ring_ctx& ring, const down_work& d) {
  qp_ctx& qp = a.qps[down_qpn(d) - a.first_qpn];
  mem::st_relaxed_gpu(&qp.state, (gn_u32)QP_ERROR);
  gn_u32 posted = be32(mem::ld_acquire_sys((const gn_u32*)qp.dbr_addr + mlx5::RCV_DBR)) & 0xffffu;
  gn_u32 head = mem::ld_relaxed_gpu(&qp.rq_head) & 0xffffu;
  mem::st_relaxed_gpu(&qp.rq_head, posted);
  up_push(ring, UP_RQ_FLUSH, qp.qpn, head, posted, 0, 0);
}

// A message that is not a copy, by one lane.
GN_DEV void handle_control(const agent_args& a, ring_ctx& ring, const down_work& d) {
  gn_u32 index = down_qpn(d) - a.first_qpn;
  // A message may have been on its way when its queue pair was destroyed.
  bool here = index < a.qp_count && mem::ld_relaxed_gpu(&a.qps[index].state) != QP_FREE;
  switch (down_op(d)) {
    case DOWN_SEND:
      if (here) deliver_send(a, ring, d);
      break;
    case DOWN_CQE:
      if (here) {
        gn_u32 what = (gn_u32)(d.w[1] >> 32);
        write_cqe(a.cqs[a.qps[index].cq],
                  completion{what >> 8 & 0xffu, what & 0xffu, down_qpn(d), (gn_u32)d.w[1] & 0xffffu, down_bytes(d)});
      }
      break;
    case DOWN_QP_ERROR:
      if (here) queue_error(a, ring, d);
      break;
    case DOWN_PING:
      up_push(ring, UP_PONG, 0, down_tag(d), 0, 0, 0);
      break;
    default:
      break;
  }
}

// The messages of the lanes with `mine`; the whole warp. Those of one queue pair are handled in the order of the ring (RC order; an
// error's completion must not overtake a response), those of different ones at the same time.
GN_DEV void handle_in_order(const agent_args& a, ring_ctx& ring, const down_work& d, bool mine) {
  gn_u32 same = __match_any_sync(0xffffffffu, mine ? down_qpn(d) : 0x80000000u);
  gn_u32 rank = (gn_u32)__popc(same & lt_mask());
  for (gn_u32 turn = 0; __any_sync(0xffffffffu, mine && rank >= turn); ++turn) {
    if (mine && rank == turn) handle_control(a, ring, d);
    __syncwarp();
  }
}

}}  // namespace gn::hca
