// SPDX-License-Identifier: Apache-2.0 OR MIT
// The queue pairs of a pair of rings. Some of them begin anew while the agent is resident: their owner has
// made their queues anew beside a running kernel.
//
//   DOWN_QP_ANEW --responder: receive head, QP_ANEW, news-->
//                     front end: doorbells, send head, QP_RTS --> UP_QP_ANEW
//
// Each warp resets its own state. The owner posts nothing before the report.
#pragma once
#include "fabric/hca/up.cuh"

namespace gn { namespace hca {

// The queue pairs of this ring, by their place in the table. While the agent is resident, some are added.
struct own_queues {
  gn_u16 index[MAX_QPS];
  // number of queue pairs; the upper half counts how often one was told to begin anew
  gn_u32 news;
};

// Front end `me` of `all`: it has each `all`-th of the ring's queue pairs.
struct front_end {
  const own_queues& own;
  up_stage* stage;
  gn_u32 me, all;
};

// Lists the ring's queue pairs; one warp calls it.
GN_DEV void find_own(const agent_args& a, own_queues& own) {
  gn_u32 count = 0;
  for (gn_u32 base = 0; base < a.qp_count; base += 32) {
    gn_u32 q = base + lane_id(), state = q < a.qp_count ? a.qps[q].state : (gn_u32)QP_FREE;
    bool ours = state != QP_FREE && state != QP_SPARE && a.qps[q].ring == a.ring;
    gn_u32 all = __ballot_sync(0xffffffffu, ours);
    if (ours) own.index[count + (gn_u32)__popc(all & lt_mask())] = (gn_u16)q;
    count += (gn_u32)__popc(all);
  }
  if (lane_id() == 0) own.news = count;
}

GN_DEV gn_u32 count_of(gn_u32 news) { return news & 0xffffu; }

// The responder's part of a DOWN_QP_ANEW; one lane. What was for the queue pair before has been delivered.
GN_DEV void begin_anew(const agent_args& a, own_queues& own, gn_u32 index, gn_u32 tag) {
  qp_ctx& qp = a.qps[index];
  gn_u32 state = mem::ld_relaxed_gpu(&qp.state), news = mem::ld_relaxed_cta(&own.news);
  if (state == QP_FREE || qp.ring != a.ring) return;
  qp.rq_head = qp.rq_posted = 0;
  mem::st_relaxed_gpu(&qp.tag, tag);
  if (state == QP_SPARE) own.index[count_of(news)] = (gn_u16)index, news += 1;
  mem::st_relaxed_gpu(&qp.state, (gn_u32)QP_ANEW);
  mem::st_release_cta(&own.news, news + 0x10000u);  // pairs with the acquire in frontend_loop
}

// A front end's part; its whole warp, behind its acquire of `news`.
GN_DEV void go_on_anew(const agent_args& a, ring_ctx& ring, const front_end& f, gn_u32 news) {
#pragma unroll 1
  for (gn_u32 at = f.me + lane_id() * f.all; at < count_of(news); at += 32 * f.all) {
    qp_ctx& qp = a.qps[f.own.index[at]];
    if (mem::ld_relaxed_gpu(&qp.state) != QP_ANEW) continue;
    qp.sq_head = 0;
    qp.seen_first = qp.seen_others[0] = qp.seen_others[1] = qp.seen_others[2] = qp.seen_others[3] = 0;
    qp.many_registers = qp.held_guard = 0;
    mem::st_relaxed_gpu(&qp.state, (gn_u32)QP_RTS);
    up_push(ring, {UP_QP_ANEW, qp.qpn, mem::ld_relaxed_gpu(&qp.tag)});
  }
  __syncwarp();
}

}}  // namespace gn::hca
