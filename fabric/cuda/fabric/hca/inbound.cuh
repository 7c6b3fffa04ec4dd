// SPDX-License-Identifier: Apache-2.0 OR MIT
// The HCA's responder: messages that arrive for the queue pairs in device memory, and completions.
#pragma once
#include "fabric/hca/anew.cuh"
#include "fabric/hca/held.cuh"
#include "fabric/hca/keys.cuh"
#include "fabric/mlx5.h"
#include "fabric/hca/up.cuh"

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
GN_DEV gn_u32 down_flags(const down_work& d) { return (gn_u32)(d.w[5] >> 32) & 0xffu; }
GN_DEV gn_u32 down_blocks(const down_work& d) { return down_flags(d) & DOWN_TWO ? 2u : 1u; }

struct completion {
  gn_u32 opcode, syndrome, qpn, counter, bytes;
};

// Writes a completion except its last two words, and returns the last one. Storing both after a release fence
// hands the completion over. The hardware writes owner 0 on its first pass, and on every second one then.
GN_DEV gn_u32 fill_cqe(mlx5::cqe64* e, gn_u32 owner, const completion& c) {
  e->flags_rqpn = be32(c.qpn);
  e->imm_inval = 0;
  e->byte_count = be32(c.bytes);
  e->timestamp[0] = 0;
  e->timestamp[1] = be32(c.syndrome);  // offset 55 is its low byte
  return be32((c.counter & 0xffffu) << 16 | c.opcode << 4 | owner);
}

// What reaches a queue pair: a SEND of 16 bytes, or a ready-made completion (`what`).
struct message {
  gn_u32 op = 0, qpn = 0, bytes = 0;
  gn_u64 what = 0;
  gn_u64 due = 0, allowance = 0;   // of a SEND: agent clock; as in down_desc w4
  gn_u64 lo = 0, hi = 0;           // its bytes
};

GN_DEV message message_of(const down_work& d) {
  message m;
  m.op = down_op(d);
  m.qpn = down_qpn(d);
  m.bytes = down_bytes(d);
  m.what = d.w[1];
  m.due = d.w[2];
  m.allowance = d.w[4];
  gn_u32 top = (gn_u32)(d.w[5] >> 40);
  m.lo = d.w[6] | (gn_u64)(top & 1u) << 63;
  m.hi = d.w[7] | (gn_u64)(top >> 1 & 1u) << 63;
  return m;
}

// The responder takes a message LOOK_NS before it is due. WAY_NS is the time from there until it can be seen,
// slightly too short; the responder waits for the rest just before. Messages of one batch wait for each other
// at most TOGETHER_NS.
enum : gn_u32 { LOOK_NS = 3200, WAY_NS = 1900, TOGETHER_NS = 700, NOT_SOON = 0xffffffffu };
// Least time from there until the completion is seen. The fence in between also waits for other warps'
// stores, so the time is measured (`counts`).
enum : gn_u32 { PUBLISH_NS = 800, PUBLISH_TO_HOST_NS = 1500, PUBLISH_MOST_NS = 4000, STORE_NS = 250 };
// Time until something is due: nanoseconds from `now` on, or NOT_SOON.
GN_DEV gn_u32 due_in(gn_u64 until, gn_u64 now) {
  return until > now + LOOK_NS ? (gn_u32)NOT_SOON : until > now ? (gn_u32)(until - now) : 0u;
}

// Whether the lane's message is in the next batch, by the due times of all lanes. The whole warp calls it.
GN_DEV bool goes_next(gn_u32 in) {
  gn_u32 first = __reduce_min_sync(0xffffffffu, in);
  if (first < WAY_NS) first = WAY_NS;
  return in != NOT_SOON && in <= first + TOGETHER_NS;
}

enum : gn_u64 { MAX_WAIT_NS = 10000 };  // more than what is left when one is looked at
enum : gn_u32 { RECV_OK = 0, RECV_NONE = 0x100 };  // else a syndrome

// Number of receives posted from `at` on, by a counter of them.
GN_DEV bool is_posted(const qp_ctx& qp, gn_u32 at, gn_u32 posted) {
  gn_u32 ready = (posted - at) & 0xffffu;
  return ready != 0 && ready <= qp.rq_mask + 1;
}

// Checks receive `at` for a message of 16 bytes. Sets the message's destination, and `posted` to the value
// read from the record.
GN_DEV gn_u32 check_receive(const agent_args& a, const qp_ctx& qp, gn_u32 at, gn_u32& posted, gn_u64& to) {
  // pairs with the owner's release
  if (!is_posted(qp, at, posted))
    posted = be32(mem::ld_acquire_sys((const gn_u32*)qp.dbr_addr + mlx5::RCV_DBR));
  if (!is_posted(qp, at, posted)) return RECV_NONE;
  gn_u32 seg[4];
  mem::ld16_stream((const void*)(qp.rq_addr + (gn_u64)(at & qp.rq_mask) * mlx5::DS_BYTES), seg);
  to = (gn_u64)be32(seg[2]) << 32 | be32(seg[3]);
  if ((be32(seg[0]) & mlx5::BYTE_COUNT_MASK) < 16) return mlx5::SYND_LOCAL_LENGTH;
  if (to % 16 || !key_opens(a, qp.pd, {be32(seg[1]), to, 16, ACCESS_LOCAL_WRITE}))
    return mlx5::SYND_LOCAL_PROT;
  return RECV_OK;
}

// A SEND that could not be delivered: the transport tries it again, or ends the connection.
GN_DEV void report_undelivered(ring_ctx& ring, qp_ctx& qp, const message& m, gn_u32 at, gn_u32 fault) {
  if (fault != RECV_NONE) {
    mem::st_relaxed_gpu(&qp.state, (gn_u32)QP_ERROR);
    up_push(ring, {UP_RECV_ERROR, qp.qpn, at & 0xffffu, fault});
    return;
  }
  up_push(ring, {UP_RNR, qp.qpn, at & 0xffffu, 0, 16}, m.lo, m.hi);
}

// Whether completion number `pi` of a checked queue would overwrite one that its owner has not taken. Nothing
// more is written to a queue that has overrun: its owner would miss a completion, and could not know.
GN_DEV bool overruns(const cq_ctx& cq, gn_u32 pi) {
  if (mem::ld_relaxed_gpu(&cq.state) == CQ_OVERRUN) return true;
  // the owner's release: it has read the entry
  gn_u32 taken = be32(mem::ld_acquire_sys((const gn_u32*)cq.dbr_addr));
  return ((pi - taken) & 0xffffffu) > cq.mask;
}

// Counters of the responder for one launch, in shared memory.
struct counts {
  gn_u32 responses, late, client_late, reports;
  // how much longer than the least a pass took to publish: the shorter ones of the last dozens
  gn_u32 publish_ns;
  gn_u32 lateness[LATENESS_BUCKETS];
};

// What the responder of a ring works with.
struct responder {
  const agent_args& a;
  ring_ctx& ring;
  counts& n;
};

// A completion without room puts its queue pair into error, which the transport hears of once. A SEND gives
// its receive back. The whole warp calls it.
GN_DEV void report_overrun(const responder& me, const message& m, bool mine) {
  gn_u32 group = __match_any_sync(0xffffffffu, mine ? m.qpn : 0x80000000u);
  gn_u32 sends = __ballot_sync(0xffffffffu, mine && m.op == DOWN_SEND) & group;
  if (!mine || (group & lt_mask())) return;
  qp_ctx& qp = me.a.qps[m.qpn - me.a.first_qpn];
  qp.rq_head -= (gn_u32)__popc(sends);
  if (mem::ld_relaxed_gpu(&qp.state) != QP_RTS) return;
  mem::st_relaxed_gpu(&qp.state, (gn_u32)QP_ERROR);
  up_push(me.ring, {UP_CQ_ERROR, m.qpn});
}

// Notes how long a pass took to publish; one lane calls it. A short time counts at once, and a long one by a
// sixteenth. If the estimate were too long, messages would be seen too early.
GN_DEV void note_publish(counts& n, gn_u64 took, gn_u32 least) {
  gn_u32 more = took <= least ? 0u : took < PUBLISH_MOST_NS ? (gn_u32)took - least : PUBLISH_MOST_NS - least;
  n.publish_ns = more < n.publish_ns ? more : n.publish_ns + (more - n.publish_ns) / 16;
}

// Counts a response that its owner can see now.
GN_DEV void count_response(counts& n, const message& m, gn_u64 seen) {
  gn_u32 bucket = 0;
  if (seen > m.due + 1) bucket = 63u - (gn_u32)__clzll((long long)(seen - m.due));
  if (bucket >= LATENESS_BUCKETS) bucket = LATENESS_BUCKETS - 1;
  mem::add_relaxed_cta(&n.lateness[bucket], 1u);
  mem::add_relaxed_cta(&n.responses, 1u);
  if (!m.due) return;
  if (seen > m.due + (m.allowance >> 32)) mem::add_relaxed_cta(&n.late, 1u);
  if ((long long)(seen - m.due) > (int)(gn_u32)m.allowance) mem::add_relaxed_cta(&n.client_late, 1u);
}

// Adds a launch's counts to the ring's.
GN_DEV void count_up(ring_ctx& ring, const counts& n) {
  for (gn_u32 i = 0; i < LATENESS_BUCKETS; ++i) ring.lateness[i] += n.lateness[i];
  ring.responses += n.responses;
  ring.late += n.late;
  ring.client_late += n.client_late;
  ring.reports += n.reports;
}

// A report that is sent with the delivered messages: `item` of each lane with `listed`. Its place in the ring
// is taken before the owner can see a message. So it precedes whatever the owner sends next.
struct report {
  up_stage* stage = nullptr;  // null: there is no report
  bool listed = false;
  gn_u32 item = 0;
};

GN_DEV void send_report(const ring_ctx& ring, const report& r, gn_u32 position) {
  gn_u32 lanes = __ballot_sync(0xffffffffu, r.listed);
  if (lane_id() == 0) up_fill(r.stage->w, {UP_FUSED_DONE, 0, 0, 0, 0, (gn_u32)__popc(lanes)});
  if (r.listed) ((gn_u16*)(r.stage->w + UP_PAYLOAD))[__popc(lanes & lt_mask())] = (gn_u16)r.item;
  __syncwarp();
  up_store(ring, position, 1, r.stage);
}

// The receive that a lane's SEND has taken.
struct receive {
  gn_u32 at = 0;
  gn_u64 to = 0;         // its destination
  bool deliver = false;  // false: there is no SEND, or no receive for it, which is reported
};

// Assigns receives to the lanes with `send`, by lane number. Only this warp touches the receive heads. The
// whole warp calls it.
GN_DEV receive take_receives(const responder& me, const message& m, gn_u32 index, bool send) {
  const agent_args& a = me.a;
  receive r;
  gn_u32 group = __match_any_sync(0xffffffffu, send ? index : 0x80000000u);
  gn_u32 fault = RECV_NONE, posted = 0;
  if (send) {
    r.at = a.qps[index].rq_head + (gn_u32)__popc(group & lt_mask());
    posted = a.qps[index].rq_posted;
    fault = check_receive(a, a.qps[index], r.at, posted, r.to);
  }
  gn_u32 failed = __ballot_sync(0xffffffffu, send && fault != RECV_OK) & group;
  bool first_failed = send && fault != RECV_OK && !(failed & lt_mask());
  bool behind_failure = send && (failed & lt_mask());
  r.deliver = send && fault == RECV_OK && !behind_failure;
  // After a SEND that found no receive the others of its queue pair wait too, even if a receive was posted
  // meanwhile. After a broken receive they are flushed.
  gn_u32 cause = __shfl_sync(0xffffffffu, fault, failed ? __ffs((int)failed) - 1 : (int)lane_id());
  if (first_failed || (behind_failure && cause == RECV_NONE))
    report_undelivered(me.ring, a.qps[index], m, r.at, cause);
  // A broken receive is consumed like a good one. Its own completion reports it, and the flush starts after
  // it.
  bool consume = r.deliver || (first_failed && fault != RECV_NONE);
  gn_u32 consumed = __ballot_sync(0xffffffffu, consume) & group;
  // The last of the group has looked furthest.
  posted = __shfl_sync(0xffffffffu, posted, 31 - __clz((int)group));
  __syncwarp();  // every lane has read the head
  if (send && (group & lt_mask()) == 0) {
    a.qps[index].rq_head += (gn_u32)__popc(consumed);
    a.qps[index].rq_posted = posted;
  }
  return r;
}

// The number of the lane's entry in its completion queue `cq`, by lane number. The whole warp calls it.
GN_DEV gn_u32 take_entries(const agent_args& a, gn_u32 cq, bool complete) {
  gn_u32 sharers = __match_any_sync(0xffffffffu, complete ? cq : 0x80000000u);
  gn_u32 leader = (gn_u32)__ffs((int)sharers) - 1, base = 0;
  if (complete && lane_id() == leader)
    base = mem::add_relaxed_gpu(&a.cqs_home[cq].pi, (gn_u32)__popc(sharers));
  return __shfl_sync(0xffffffffu, base, (int)leader) + (gn_u32)__popc(sharers & lt_mask());
}

// Writes the completion of a delivered SEND, or a ready-made one, except its last two words. Returns
// the last one.
GN_DEV gn_u32 write_entry(mlx5::cqe64* e, gn_u32 owner, const message& m, const receive& r, bool complete) {
  if (r.deliver) return fill_cqe(e, owner, completion{mlx5::CQE_RESP_SEND, 0, m.qpn, r.at, 16});
  if (!complete) return 0;
  gn_u32 what = (gn_u32)(m.what >> 32);
  return fill_cqe(e, owner,
                  completion{what >> 8 & 0xffu, what & 0xffu, m.qpn, (gn_u32)m.what & 0xffffu, m.bytes});
}

// A pass of the responder on its way to be seen.
struct passing {
  bool to_host;   // a queue of its owner is in host memory
  gn_u32 least;   // time to publish
  gn_u64 ready;   // when its completions were about to be written
};

// The transport sends early by about the time of the way. The responder waits for the rest of that time
// here, before it takes completion entries. An entry that is taken and not written would block the entries
// after it.
GN_DEV passing wait_for_its_time(const counts& n, const message& m, bool deliver, bool to_host) {
  passing p;
  p.to_host = to_host;
  p.least = to_host ? PUBLISH_TO_HOST_NS : PUBLISH_NS;
  gn_u64 publish_ns = p.least + (to_host ? 0u : n.publish_ns);
  if (deliver)
    for (gn_u64 since = now_ns(); now_ns() + publish_ns < m.due && now_ns() - since < MAX_WAIT_NS;) pause(0);
  __syncwarp();
  p.ready = now_ns();
  return p;
}

// The fence between what was written and the words that hand it over. If publishing took less time than
// estimated, it waits for the rest: nothing is seen before it is due.
GN_DEV void fence_and_wait(counts& n, const message& m, bool deliver, const passing& p) {
  __syncwarp();
  // Towards the host a fence waits for all traffic across PCIe, so it is used only if the reader is there.
  if (p.to_host) mem::fence_release_sys();
  else mem::fence_release_gpu();
  gn_u32 delivering = __ballot_sync(0xffffffffu, deliver);
  if (deliver) {
    if (!(delivering & lt_mask()) && !p.to_host) note_publish(n, now_ns() - p.ready + STORE_NS, p.least);
    while (now_ns() + STORE_NS < m.due && now_ns() - p.ready < MAX_WAIT_NS) pause(0);
  }
  __syncwarp();
}

// Delivers the SENDs and ready-made completions of the lanes with `mine`, all at once. The whole warp calls
// it. Receives and completion entries are assigned by lane number, which is the order of the ring. So
// messages of a queue pair stay in order (RC). One fence hands over the completions; the report needs none.
GN_DEV void deliver_together(const responder& me, const message& m, bool mine, const report& r) {
  const agent_args& a = me.a;
  ring_ctx& ring = me.ring;
  gn_u32 index = m.qpn - a.first_qpn;
  // A message may have been on its way when its queue pair was destroyed.
  gn_u32 state = mine && index < a.qp_count ? mem::ld_relaxed_gpu(&a.qps[index].state) : (gn_u32)QP_FREE;
  bool here = state != QP_FREE;
  bool send = m.op == DOWN_SEND && state == QP_RTS;  // else the transport flushes
  bool ready_made = here && m.op == DOWN_CQE;
  gn_u32 cq = send || ready_made ? a.qps[index].cq : 0x80000000u;
  mlx5::cqe64* entries = nullptr;
  gn_u32 cq_mask = 0;
  bool is_checked = false;
  if (send || ready_made) {
    entries = (mlx5::cqe64*)a.cqs[cq].addr;
    cq_mask = a.cqs[cq].mask;
    is_checked = a.cqs[cq].dbr_addr != 0;
  }
  bool to_host = __any_sync(0xffffffffu, (send || ready_made) && a.cqs[cq].in_host);
  receive got = take_receives(me, m, index, send);
  passing p = wait_for_its_time(me.n, m, got.deliver, to_host);
  bool complete = got.deliver || ready_made;
  gn_u32 pi = take_entries(a, cq, complete);
  bool overrun = complete && is_checked && overruns(a.cqs_home[cq], pi);
  // This comes after every lane's check. Lanes with lower numbers have room.
  bool any_overrun = __any_sync(0xffffffffu, overrun);
  if (overrun) mem::st_relaxed_gpu(&a.cqs_home[cq].state, (gn_u32)CQ_OVERRUN);
  got.deliver = got.deliver && !overrun;
  complete = complete && !overrun;
  if (got.deliver) {
    gn_u32 v[4] = {(gn_u32)m.lo, (gn_u32)(m.lo >> 32), (gn_u32)m.hi, (gn_u32)(m.hi >> 32)};
    if (!a.held_messages || !hold_message(a, m.qpn, got.to, v)) mem::st16((void*)got.to, v);
  }
  mlx5::cqe64* e = entries + (pi & cq_mask);
  gn_u32 last = write_entry(e, (pi & (cq_mask + 1)) != 0, m, got, complete);
  fence_and_wait(me.n, m, got.deliver, p);
  gn_u32 position = 0;
  if (r.stage && lane_id() == 0) {
    position = up_reserve(ring, 1);
    me.n.reports += 1;
  }
  position = __shfl_sync(0xffffffffu, position, 0);
  __syncwarp();
  // The queue pair's number is computed anew, which takes fewer registers.
  gn_u64 both = be32(index + a.first_qpn) | (gn_u64)last << 32;
  if (complete) mem::st_fenced_sys((gn_u64*)&e->sop_qpn, both);  // pairs with the acquire of the poller
  if (r.stage) send_report(ring, r, position);
  gn_u64 seen = now_ns();
  if (got.deliver) count_response(me.n, m, seen);
  if (any_overrun) report_overrun(me, m, overrun);
  __syncwarp();
}

// A queue pair goes into error: no further receive is consumed, those posted are reported for the flush.
GN_DEV void queue_error(const responder& me, const down_work& d) {
  qp_ctx& qp = me.a.qps[down_qpn(d) - me.a.first_qpn];
  mem::st_relaxed_gpu(&qp.state, (gn_u32)QP_ERROR);
  close_held(me.a, qp);
  gn_u32 posted = be32(mem::ld_acquire_sys((const gn_u32*)qp.dbr_addr + mlx5::RCV_DBR)) & 0xffffu;
  gn_u32 head = qp.rq_head & 0xffffu;
  qp.rq_head = qp.rq_posted = posted;
  up_push(me.ring, {UP_RQ_FLUSH, qp.qpn, head, posted});
}

GN_DEV bool is_rare(const down_work& d) { return down_op(d) != DOWN_SEND && down_op(d) != DOWN_CQE; }

// Handles the messages of the lanes with `mine` that are not copies. The whole warp calls it. Rare kinds of
// messages (all but SEND and completion) split the batch into single messages.
GN_DEV void handle_messages(const responder& me, own_queues& own, const down_work& d, bool mine) {
  const agent_args& a = me.a;
  gn_u32 op = down_op(d), index = down_qpn(d) - a.first_qpn;
  message m = message_of(d);
  bool rare = mine && is_rare(d);
  bool apart = __any_sync(0xffffffffu, rare);
  for (gn_u32 todo = __ballot_sync(0xffffffffu, mine), now; todo; todo &= ~now) {
    now = apart ? todo & (0u - todo) : todo;
    bool turn = now >> lane_id() & 1u;
    deliver_together(me, m, turn && !rare, report{});
    gn_u32 state = turn && index < a.qp_count ? mem::ld_relaxed_gpu(&a.qps[index].state) : (gn_u32)QP_FREE;
    if (op == DOWN_QP_ERROR && state != QP_FREE && state != QP_SPARE) queue_error(me, d);
    if (op == DOWN_QP_ANEW && state != QP_FREE) begin_anew(a, own, index, down_tag(d));
    if (__any_sync(0xffffffffu, turn && op == DOWN_PING)) keys_refresh(a);
    if (turn && op == DOWN_PING) up_push(me.ring, {UP_PONG, 0, down_tag(d)});
    __syncwarp();
  }
}

}}  // namespace gn::hca
