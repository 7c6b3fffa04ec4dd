// SPDX-License-Identifier: Apache-2.0 OR MIT
// The GPU half of the emulated HCA: a small resident kernel, one block per ring pair.
//
//   warp 0     dispatcher: polls the down ring over PCIe (one polling warp; PCIe polling by many saturates the link)
//   warp 1     responder: everything that is not a copy, up to 32 messages at once, in the order of the ring
//   warps 2..  front ends: doorbells and work requests; queue pair i is front end i mod n's alone
//   the rest   movers: one copy each
//
// Every step is some microseconds of dependent accesses: what makes the agent fast is many things in one step, and steps side by side.
//
// It knows only what create_qp, create_cq and reg_mr wrote into its contexts: it shares an address space with its clients and
// does not use that.
#pragma once
#include "fabric/frontend.cuh"
#include "fabric/inbound.cuh"
#include "fabric/mover.cuh"

namespace gn { namespace hca {

// A poll is a PCIe round trip and a pass some microseconds of dependent accesses: both serve 32 descriptors at once.
enum : gn_u32 { FIRST_FRONT_END = 2, MANY_WARPS = 16, MAX_FRONT_ENDS = 8, MAX_MOVERS = 30, FETCH = 32, FETCH_LOADS = 4, WORDS = 8 };
enum : gn_u32 { SLOT_FREE = 0, SLOT_FULL = 1, SLOT_EXIT = 2 };  // of a mover
enum : gn_u32 { RESPONDER_EXIT = FETCH + 1 };                   // else: how many messages it has to handle
enum : gn_u32 { IDLE_POLLS_PER_STOP_CHECK = 64 };

struct agent_smem {
  gn_u64 stage[FETCH][WORDS];
  gn_u64 message[FETCH][WORDS];
  gn_u64 slot[MAX_MOVERS][WORDS];
  gn_u32 slot_state[MAX_MOVERS];
  gn_u32 messages;
  gn_u32 exit;
};

// A small block, as on the CPU, has one front end.
GN_DEV gn_u32 front_end_count() { return blockDim.x / 32 >= MANY_WARPS ? (gn_u32)MAX_FRONT_ENDS : 1u; }
GN_DEV gn_u32 first_mover() { return FIRST_FRONT_END + front_end_count(); }
GN_DEV gn_u32 mover_count() { return blockDim.x / 32 - first_mover(); }

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

// Gives the staged messages of `todo` to the responder, once it has none.
GN_DEV void hand_over(agent_smem& s, gn_u32 todo) {
  if (!todo) return;
  while (__shfl_sync(0xffffffffu, mem::ld_acquire_cta(&s.messages), 0) != 0) pause(20);  // pairs with the release in respond_loop
  __syncwarp();
  if (todo >> lane_id() & 1u) {
    gn_u32 at = (gn_u32)__popc(todo & lt_mask());
    for (gn_u32 k = 0; k < WORDS; ++k) s.message[at][k] = s.stage[lane_id()][k];
  }
  __syncwarp();
  if (lane_id() == 0) mem::st_release_cta(&s.messages, (gn_u32)__popc(todo));
}

GN_DEV void respond_loop(const agent_args& a, ring_ctx& ring, agent_smem& s) {
  for (;;) {
    gn_u32 count = __shfl_sync(0xffffffffu, mem::ld_acquire_cta(&s.messages), 0);
    if (count == RESPONDER_EXIT) return;
    if (count == 0) {
      pause(20);
      continue;
    }
    __syncwarp();  // lane 0's acquire reaches the lanes
    down_work d = {};
    bool mine = lane_id() < count;
    if (mine)
      for (gn_u32 k = 0; k < WORDS; ++k) d.w[k] = s.message[lane_id()][k];
    __syncwarp();
    // The messages are in registers: the dispatcher may bring the next ones while these are handled.
    if (lane_id() == 0) mem::st_release_cta(&s.messages, 0u);
    handle_messages(a, ring, d, mine);
    __syncwarp();
  }
}

GN_DEV void dispatch_loop(ring_ctx& ring, agent_smem& s, gn_u32 launch) {
  gn_u32 lane = lane_id(), idle = 0;
  gn_u64 next = ring.down_head;
  for (;;) {
    gn_u32 count = fetch(ring, s, next);
    if (count == 0) {
      if (++idle % IDLE_POLLS_PER_STOP_CHECK == 0) {
        gn_u32 stop = mem::ld_acquire_sys((const gn_u32*)ring.stop_addr);
        if (__shfl_sync(0xffffffffu, stop, 0) == launch) break;
      }
      pause(0);
      continue;
    }
    gn_u32 op = lane < count ? (gn_u32)(s.stage[lane][0] >> 56) : 0u;
    bool is_copy = op == DOWN_TO_DEVICE || op == DOWN_TO_HOST;
    hand_out(s, __ballot_sync(0xffffffffu, is_copy));
    hand_over(s, __ballot_sync(0xffffffffu, lane < count && !is_copy));
    next += count;
    __syncwarp();
    if (lane == 0) mem::st_relaxed_sys((gn_u64*)ring.down_head_addr, next);
  }
  if (lane == 0) ring.down_head = next;
  if (lane < mover_count()) {
    while (mem::ld_acquire_cta(&s.slot_state[lane]) != SLOT_FREE) pause(20);
    mem::st_release_cta(&s.slot_state[lane], (gn_u32)SLOT_EXIT);
  }
  while (__shfl_sync(0xffffffffu, mem::ld_acquire_cta(&s.messages), 0) != 0) pause(20);
  __syncwarp();
  if (lane == 0) {
    mem::st_release_cta(&s.messages, (gn_u32)RESPONDER_EXIT);
    mem::st_release_cta(&s.exit, 1u);
  }
}

GN_DEV void frontend_loop(const agent_args& a, ring_ctx& ring, agent_smem& s, gn_u32 me) {
  for (gn_u32 pass = 0;; ++pass) {
    gn_u32 leave = __shfl_sync(0xffffffffu, mem::ld_acquire_cta(&s.exit), 0);
    bool worked = frontend_pass(a, ring, me, front_end_count(), leave || pass % PASSES_PER_SWEEP == 0);
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

// The agent. Grid: one block per ring pair (`a.blocks`); block: at least four warps; shared memory: sizeof(agent_smem).
GN_DEV void agent_main(const agent_args& a) {
  agent_smem& s = *(agent_smem*)smem();
  ring_ctx& ring = a.rings[blockIdx.x];
  for (gn_u32 i = threadIdx.x; i < MAX_MOVERS; i += blockDim.x) s.slot_state[i] = SLOT_FREE;
  if (threadIdx.x == 0) s.exit = s.messages = 0;
  __syncthreads();
  if (threadIdx.x == 0) mem::st_release_sys((gn_u32*)ring.ready_addr, a.launch);
  gn_u32 warp = warp_in_block();
  if (warp == 0) dispatch_loop(ring, s, a.launch);
  else if (warp == 1) respond_loop(a, ring, s);
  else if (warp < first_mover()) frontend_loop(a, ring, s, warp - FIRST_FRONT_END);
  else if (warp - first_mover() < MAX_MOVERS) mover_loop(a, ring, s, warp - first_mover());
}

}}  // namespace gn::hca
