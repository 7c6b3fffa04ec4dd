// SPDX-License-Identifier: Apache-2.0 OR MIT
// The GPU half of the emulated HCA: a small resident kernel, one block per ring pair.
//
//   warp 0     dispatcher: polls the down ring over PCIe (one polling warp; PCIe polling by many saturates the link)
//   warp 1     front end: doorbells, work requests
//   warps 2..  movers: one copy each
//
// It knows only what create_qp, create_cq and reg_mr wrote into its contexts: it shares an address space with its clients and
// does not use that.
#pragma once
#include "fabric/frontend.cuh"
#include "fabric/inbound.cuh"
#include "fabric/mover.cuh"

namespace gn { namespace hca {

// A poll is a PCIe round trip and a pass some microseconds of dependent accesses: both serve 32 descriptors at once.
enum : gn_u32 { FIRST_MOVER = 2, MAX_MOVERS = 30, FETCH = 32, FETCH_LOADS = 4, WORDS = 8 };
enum : gn_u32 { SLOT_FREE = 0, SLOT_FULL = 1, SLOT_EXIT = 2 };
enum : gn_u32 { IDLE_POLLS_PER_STOP_CHECK = 64 };

struct agent_smem {
  gn_u64 stage[FETCH][WORDS];
  gn_u64 slot[MAX_MOVERS][WORDS];
  gn_u32 slot_state[MAX_MOVERS];
  gn_u32 exit;
};

GN_DEV gn_u32 mover_count() { return blockDim.x / 32 - FIRST_MOVER; }

GN_DEV gn_u32 nth_set(gn_u32 mask, gn_u32 n) {
  while (n--) mask &= mask - 1;
  return (gn_u32)__ffs((int)mask) - 1;
}

// Polls the next 32 descriptors: four loads a lane, each of which brings eight descriptors with four lanes apiece. Returns how many of
// them are there, staged in shared memory.
GN_DEV gn_u32 fetch(const ring_ctx& ring, agent_smem& s, gn_u64 next) {
  gn_u32 which = lane_id() / 4, pair = lane_id() % 4;
  gn_u64 x[FETCH_LOADS], y[FETCH_LOADS];
#pragma unroll
  for (gn_u32 k = 0; k < FETCH_LOADS; ++k) {
    const down_desc* d = (const down_desc*)ring.down_addr + ((next + k * 8 + which) & ring.down_mask);
    mem::ld_poll2_sys(&d->w[pair * 2], x[k], y[k]);
  }
  gn_u32 count = 0;
#pragma unroll
  for (gn_u32 k = 0; k < FETCH_LOADS; ++k) {
    gn_u64 phase = ((next + k * 8 + which) / ((gn_u64)ring.down_mask + 1)) & 1 ? 0 : (gn_u64)PHASE_BIT;
    gn_u32 here = __ballot_sync(0xffffffffu, (x[k] & PHASE_BIT) == phase && (y[k] & PHASE_BIT) == phase);
    gn_u32 prefix = 0;
    while (prefix < 8 && (here >> (4 * prefix) & 0xfu) == 0xfu) ++prefix;
    if (count == k * 8) count += prefix;  // only what follows on without a gap
  }
  if (count == 0) return 0;
  mem::fence_acquire_sys();
#pragma unroll
  for (gn_u32 k = 0; k < FETCH_LOADS; ++k) {
    gn_u32 at = k * 8 + which;
    if (at < count) {
      s.stage[at][pair * 2] = x[k] & ~(gn_u64)PHASE_BIT;
      s.stage[at][pair * 2 + 1] = y[k] & ~(gn_u64)PHASE_BIT;
    }
  }
  __syncwarp();
  return count;
}

// Gives the staged copies of `todo` to free movers, as many at a time as there are.
GN_DEV void hand_out(agent_smem& s, gn_u32 todo) {
  gn_u32 lane = lane_id();
  while (todo) {
    bool is_free = lane < mover_count() && mem::ld_acquire_cta(&s.slot_state[lane]) == SLOT_FREE;
    gn_u32 idle = __ballot_sync(0xffffffffu, is_free);
    gn_u32 rank = (gn_u32)__popc(idle & lt_mask()), wanted = (gn_u32)__popc(todo);
    if (is_free && rank < wanted) {
      gn_u32 from = nth_set(todo, rank);
      for (gn_u32 k = 0; k < WORDS; ++k) s.slot[lane][k] = s.stage[from][k];
      mem::st_release_cta(&s.slot_state[lane], (gn_u32)SLOT_FULL);
    }
    for (gn_u32 taken = (gn_u32)__popc(idle); taken && todo; --taken) todo &= todo - 1;
    if (!idle) pause(20);
    __syncwarp();
  }
}

GN_DEV void dispatch_loop(const agent_args& a, ring_ctx& ring, agent_smem& s) {
  gn_u32 lane = lane_id(), idle = 0;
  gn_u64 next = ring.down_head;
  for (;;) {
    gn_u32 count = fetch(ring, s, next);
    if (count == 0) {
      if (++idle % IDLE_POLLS_PER_STOP_CHECK == 0) {
        gn_u32 stop = mem::ld_acquire_sys((const gn_u32*)ring.stop_addr);
        if (__shfl_sync(0xffffffffu, stop, 0) == a.launch) break;
      }
      pause(0);
      continue;
    }
    down_work d = {};
    if (lane < count)
      for (gn_u32 k = 0; k < WORDS; ++k) d.w[k] = s.stage[lane][k];
    gn_u32 op = down_op(d);
    bool is_copy = op == DOWN_TO_DEVICE || op == DOWN_TO_HOST;
    hand_out(s, __ballot_sync(0xffffffffu, is_copy));
    handle_in_order(a, ring, d, lane < count && !is_copy);
    next += count;
    __syncwarp();
    if (lane == 0) mem::st_relaxed_sys((gn_u64*)ring.down_head_addr, next);
  }
  if (lane == 0) ring.down_head = next;
  if (lane < mover_count()) {
    while (mem::ld_acquire_cta(&s.slot_state[lane]) != SLOT_FREE) pause(20);
    mem::st_release_cta(&s.slot_state[lane], (gn_u32)SLOT_EXIT);
  }
  __syncwarp();
  if (lane == 0) mem::st_release_cta(&s.exit, 1u);
}

GN_DEV void frontend_loop(const agent_args& a, ring_ctx& ring, agent_smem& s) {
  for (;;) {
    gn_u32 leave = __shfl_sync(0xffffffffu, mem::ld_acquire_cta(&s.exit), 0);
    bool worked = frontend_pass(a, ring);
    if (leave && !worked) return;
    if (!worked) pause(20);
  }
}

GN_DEV void mover_loop(const agent_args& a, ring_ctx& ring, agent_smem& s, gn_u32 me) {
  for (;;) {
    gn_u32 state = __shfl_sync(0xffffffffu, mem::ld_acquire_cta(&s.slot_state[me]), 0);
    if (state == SLOT_EXIT) return;
    if (state == SLOT_FREE) {
      pause(20);
      continue;
    }
    __syncwarp();  // lane 0's acquire reaches the lanes
    down_work d;
    for (gn_u32 k = 0; k < WORDS; ++k) d.w[k] = s.slot[me][k];
    execute_copy(a, ring, d);
    __syncwarp();
    if (lane_id() == 0) mem::st_release_cta(&s.slot_state[me], (gn_u32)SLOT_FREE);
    __syncwarp();
  }
}

// The agent. Grid: one block per ring pair (`a.blocks`); block: at least three warps; shared memory: sizeof(agent_smem).
GN_DEV void agent_main(const agent_args& a) {
  agent_smem& s = *(agent_smem*)smem();
  ring_ctx& ring = a.rings[blockIdx.x];
  for (gn_u32 i = threadIdx.x; i < MAX_MOVERS; i += blockDim.x) s.slot_state[i] = SLOT_FREE;
  if (threadIdx.x == 0) s.exit = 0;
  __syncthreads();
  if (threadIdx.x == 0) mem::st_release_sys((gn_u32*)ring.ready_addr, a.launch);
  gn_u32 warp = warp_in_block();
  if (warp == 0) dispatch_loop(a, ring, s);
  else if (warp == 1) frontend_loop(a, ring, s);
  else if (warp - FIRST_MOVER < MAX_MOVERS) mover_loop(a, ring, s, warp - FIRST_MOVER);
}

}}  // namespace gn::hca
