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

// Writes completion number `pi`: sixty bytes, then the word that hands it over. The hardware writes owner 0 on its first pass.
GN_DEV void write_cqe(cq_ctx& cq, gn_u32 pi, const completion& c) {
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

// The 16 bytes of a SEND.
GN_DEV void send_payload(const down_work& d, gn_u64& lo, gn_u64& hi) {
  gn_u32 top = (gn_u32)(d.w[5] >> 40);
  lo = d.w[6] | (gn_u64)(top & 1u) << 63;
  hi = d.w[7] | (gn_u64)(top >> 1 & 1u) << 63;
}

enum : gn_u64 { PUBLISH_NS = 1500 };   // estimate of what the release of a completion takes before it is seen
enum : gn_u64 { MAX_WAIT_NS = 10000 };  // twice what the Rust half sends early
enum : gn_u32 { RECV_OK = 0, RECV_NONE = 0x100 };  // else a syndrome

// Looks at receive `at` for a message of 16 bytes; sets where it goes.
GN_DEV gn_u32 check_receive(const agent_args& a, const qp_ctx& qp, gn_u32 at, gn_u64& to) {
  gn_u32 posted = be32(mem::ld_acquire_sys((const gn_u32*)qp.dbr_addr + mlx5::RCV_DBR));  // pairs with the owner's release
  gn_u32 ready = (posted - at) & 0xffffu;
  if (ready == 0 || ready > qp.rq_mask + 1) return RECV_NONE;
  gn_u32 seg[4];
  mem::ld16_stream((const void*)(qp.rq_addr + (gn_u64)(at & qp.rq_mask) * mlx5::DS_BYTES), seg);
  to = (gn_u64)be32(seg[2]) << 32 | be32(seg[3]);
  if ((be32(seg[0]) & mlx5::BYTE_COUNT_MASK) < 16) return mlx5::SYND_LOCAL_LENGTH;
  if (!key_opens(a, qp.pd, be32(seg[1]), to, 16, ACCESS_LOCAL_WRITE)) return mlx5::SYND_LOCAL_PROT;
  return RECV_OK;
}

// A SEND that could not be delivered: the Rust half tries it again, or ends the connection.
GN_DEV void report_undelivered(ring_ctx& ring, qp_ctx& qp, const down_work& d, gn_u32 at, gn_u32 fault) {
  if (fault != RECV_NONE) {
    mem::st_relaxed_gpu(&qp.state, (gn_u32)QP_ERROR);
    up_push(ring, UP_RECV_ERROR, qp.qpn, at & 0xffffu, fault, 0, 0);
    return;
  }
  gn_u64 position = up_reserve(ring, 1);
  up_entry* e = up_slot(ring, position);
  up_fill(e, UP_RNR, qp.qpn, at & 0xffffu, 0, 0, 16, 0);
  send_payload(d, e->arg[0], e->arg[1]);
  up_publish(e, position);
}

// Whether completion number `pi` of a checked queue would overwrite one that its owner has not taken. Nothing more is written to a
// queue that has overrun: its owner would miss a completion, and could not know.
GN_DEV bool overruns(cq_ctx& cq, gn_u32 pi) {
  gn_u32 state = mem::ld_relaxed_gpu(&cq.state);
  if (!(state & CQ_CHECKED)) return false;
  if (state & CQ_OVERRUN) return true;
  gn_u32 taken = be32(mem::ld_acquire_sys((const gn_u32*)cq.dbr_addr));  // pairs with the owner's release: it has read the entry
  if (((pi - taken) & 0xffffffu) <= cq.mask) return false;
  mem::st_relaxed_gpu(&cq.state, (gn_u32)(CQ_CHECKED | CQ_OVERRUN));
  return true;
}

// A completion without room puts its queue pair into error, which the Rust half hears of once; the whole warp.
GN_DEV void report_overrun(const agent_args& a, ring_ctx& ring, gn_u32 index, bool mine) {
  gn_u32 group = __match_any_sync(0xffffffffu, mine ? index : 0x80000000u);
  if (!mine || (group & lt_mask()) || mem::ld_relaxed_gpu(&a.qps[index].state) != QP_RTS) return;
  mem::st_relaxed_gpu(&a.qps[index].state, (gn_u32)QP_ERROR);
  up_push(ring, UP_CQ_ERROR, a.qps[index].qpn, 0, 0, 0, 0);
}

// The SENDs and the ready-made completions of the lanes with `mine`, all at once; the whole warp. Receives and completion entries are
// given out by lane number, which is the order of the ring: what is in order on a queue pair stays so (RC), though it is done at the
// same time. Only this warp touches the receive heads.
GN_DEV void deliver_together(const agent_args& a, ring_ctx& ring, const down_work& d, bool mine) {
  gn_u32 index = down_qpn(d) - a.first_qpn;
  // A message may have been on its way when its queue pair was destroyed.
  bool here = mine && index < a.qp_count && mem::ld_relaxed_gpu(&a.qps[index].state) != QP_FREE;
  bool send = here && down_op(d) == DOWN_SEND && mem::ld_relaxed_gpu(&a.qps[index].state) == QP_RTS;  // else the Rust half flushes
  gn_u32 group = __match_any_sync(0xffffffffu, send ? index : 0x80000000u);
  gn_u32 at = 0, fault = RECV_NONE;
  gn_u64 to = 0;
  if (send) {
    at = a.qps[index].rq_head + (gn_u32)__popc(group & lt_mask());
    fault = check_receive(a, a.qps[index], at, to);
  }
  gn_u32 failed = __ballot_sync(0xffffffffu, send && fault != RECV_OK) & group;
  bool first_failed = send && fault != RECV_OK && !(failed & lt_mask());
  bool behind_failure = send && (failed & lt_mask());
  bool deliver = send && fault == RECV_OK && !behind_failure;
  // Behind a SEND that found no receive the others wait too, also where a receive has been posted in the meantime; behind a broken
  // receive they are flushed.
  gn_u32 cause = __shfl_sync(0xffffffffu, fault, failed ? __ffs((int)failed) - 1 : (int)lane_id());
  if (first_failed || (behind_failure && cause == RECV_NONE)) report_undelivered(ring, a.qps[index], d, at, cause);
  bool complete = deliver || (here && down_op(d) == DOWN_CQE);
  gn_u32 cq = complete ? a.qps[index].cq : 0x80000000u;
  gn_u32 sharers = __match_any_sync(0xffffffffu, cq);
  gn_u32 leader = (gn_u32)__ffs((int)sharers) - 1, base = 0;
  if (complete && lane_id() == leader) base = mem::add_relaxed_gpu(&a.cqs[cq].pi, (gn_u32)__popc(sharers));
  gn_u32 pi = __shfl_sync(0xffffffffu, base, (int)leader) + (gn_u32)__popc(sharers & lt_mask());
  bool overrun = complete && overruns(a.cqs[cq], pi);
  if (__any_sync(0xffffffffu, overrun)) report_overrun(a, ring, index, overrun);
  deliver = deliver && !overrun;
  complete = complete && !overrun;
  // A broken receive is consumed like a good one: its own completion reports it, and the flush starts behind it.
  bool consume = deliver || (first_failed && fault != RECV_NONE);
  gn_u32 consumed = __ballot_sync(0xffffffffu, consume) & group;
  __syncwarp();  // every lane has read the head
  if (send && (group & lt_mask()) == 0) a.qps[index].rq_head += (gn_u32)__popc(consumed);
  if (deliver) {
    // The Rust half sends early by about the way it takes; what is left of that is waited for here.
    for (gn_u64 since = now_ns(); now_ns() + PUBLISH_NS < d.w[2] && now_ns() - since < MAX_WAIT_NS;) pause(0);
    gn_u64 lo, hi;
    send_payload(d, lo, hi);
    gn_u32 v[4] = {(gn_u32)lo, (gn_u32)(lo >> 32), (gn_u32)hi, (gn_u32)(hi >> 32)};
    mem::st16((void*)to, v);
    write_cqe(a.cqs[cq], pi, completion{mlx5::CQE_RESP_SEND, 0, down_qpn(d), at, 16});
    gn_u64 seen = now_ns();
    mem::add_relaxed_gpu(&ring.responses, (gn_u64)1);
    if (seen > d.w[4]) mem::add_relaxed_gpu(&ring.late, (gn_u64)1);
  } else if (complete) {
    gn_u32 what = (gn_u32)(d.w[1] >> 32);
    write_cqe(a.cqs[cq], pi, completion{what >> 8 & 0xffu, what & 0xffu, down_qpn(d), (gn_u32)d.w[1] & 0xffffu, down_bytes(d)});
  }
  __syncwarp();
}

// A queue pair goes into error: no further receive is consumed, those posted are reported for the flush.
GN_DEV void queue_error(const agent_args& a, ring_ctx& ring, const down_work& d) {
  qp_ctx& qp = a.qps[down_qpn(d) - a.first_qpn];
  mem::st_relaxed_gpu(&qp.state, (gn_u32)QP_ERROR);
  gn_u32 posted = be32(mem::ld_acquire_sys((const gn_u32*)qp.dbr_addr + mlx5::RCV_DBR)) & 0xffffu;
  gn_u32 head = qp.rq_head & 0xffffu;
  qp.rq_head = posted;
  up_push(ring, UP_RQ_FLUSH, qp.qpn, head, posted, 0, 0);
}

// The messages of the lanes with `mine` that are not copies; the whole warp. The rare ones that are neither SEND nor completion split
// the batch into one message at a time.
GN_DEV void handle_messages(const agent_args& a, ring_ctx& ring, const down_work& d, bool mine) {
  gn_u32 op = down_op(d), index = down_qpn(d) - a.first_qpn;
  bool rare = mine && op != DOWN_SEND && op != DOWN_CQE;
  if (!__any_sync(0xffffffffu, rare)) return deliver_together(a, ring, d, mine);
  for (gn_u32 todo = __ballot_sync(0xffffffffu, mine); todo; todo &= todo - 1) {
    bool turn = lane_id() == (gn_u32)__ffs((int)todo) - 1;
    deliver_together(a, ring, d, turn && !rare);
    if (turn && op == DOWN_QP_ERROR && index < a.qp_count && mem::ld_relaxed_gpu(&a.qps[index].state) != QP_FREE)
      queue_error(a, ring, d);
    if (turn && op == DOWN_PING) up_push(ring, UP_PONG, 0, down_tag(d), 0, 0, 0);
    __syncwarp();
  }
}

}}  // namespace gn::hca
