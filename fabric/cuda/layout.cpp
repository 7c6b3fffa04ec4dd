// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sizes and offsets as the C++ compiler sees them, for fabric/tests/layout.rs.
#include <cstddef>
#include "fabric/hca/agent.cuh"
#include "fabric/mlx5.h"

#define FIELD(T, F) #T "." #F, offsetof(gn::hca::T, F)
#define SIZE(T) #T, sizeof(gn::hca::T)

struct gn_layout_row {
  const char* name;
  size_t value;
};

extern "C" const gn_layout_row gn_fabric_layout[] = {
    {SIZE(qp_ctx)}, {FIELD(qp_ctx, last_kick)}, {FIELD(qp_ctx, qpn)}, {FIELD(qp_ctx, state)}, {FIELD(qp_ctx, sq_head)},
    {FIELD(qp_ctx, rq_head)}, {FIELD(qp_ctx, cq)}, {FIELD(qp_ctx, pd)}, {FIELD(qp_ctx, ring)},
    {FIELD(qp_ctx, rq_posted)}, {FIELD(qp_ctx, many_doors)}, {FIELD(qp_ctx, kicks)},
    {SIZE(cq_ctx)}, {FIELD(cq_ctx, mask)}, {FIELD(cq_ctx, in_host)}, {FIELD(cq_ctx, pi)},
    {FIELD(cq_ctx, state)}, {FIELD(cq_ctx, dbr_addr)},
    {SIZE(mr_ctx)}, {FIELD(mr_ctx, bytes)}, {FIELD(mr_ctx, key)}, {FIELD(mr_ctx, access)}, {FIELD(mr_ctx, pd)}, {FIELD(mr_ctx, invalid)},
    {SIZE(up_entry)},
    {SIZE(down_desc)},
    {SIZE(ring_ctx)}, {FIELD(ring_ctx, up_mask)}, {FIELD(ring_ctx, up_tail)}, {FIELD(ring_ctx, down_head)},
    {FIELD(ring_ctx, responses)}, {FIELD(ring_ctx, late)}, {FIELD(ring_ctx, client_late)}, {FIELD(ring_ctx, stop_addr)}, {FIELD(ring_ctx, ready_addr)},
    {FIELD(ring_ctx, fused_addr)}, {FIELD(ring_ctx, lateness)}, {SIZE(fused_slot)}, {FIELD(fused_slot, response)},
    {SIZE(agent_args)}, {FIELD(agent_args, rings)}, {FIELD(agent_args, qp_count)}, {FIELD(agent_args, first_qpn)},
    {FIELD(agent_args, launch)}, {FIELD(agent_args, blocks)},
    {FIELD(agent_args, in_smem)}, {FIELD(agent_args, rings_a_block)}, {FIELD(agent_args, ring_count)}, {FIELD(agent_args, held_addr)}, {FIELD(agent_args, held_messages)}, {FIELD(agent_args, cqs_home)}, {FIELD(agent_args, mrs_home)}, {"held_places", gn::hca::HELD_PLACES}, {"max_qps", gn::hca::MAX_QPS},
    {SIZE(held_ctx)}, {FIELD(held_ctx, qpn)}, {FIELD(held_ctx, bytes)}, {FIELD(held_ctx, state)},
    {SIZE(agent_smem)}, {"agent_threads", gn::hca::AGENT_THREADS},
    {"cqe64", sizeof(gn::mlx5::cqe64)}, {"cqe64.byte_count", offsetof(gn::mlx5::cqe64, byte_count)},
    {"cqe64.sop_qpn", offsetof(gn::mlx5::cqe64, sop_qpn)}, {"cqe64.counter_own", offsetof(gn::mlx5::cqe64, counter_own)},
    {nullptr, 0},
};
