// SPDX-License-Identifier: Apache-2.0 OR MIT
// The agent of the emulated HCA: a small resident kernel. A ring group, which is a block or a part of one,
// serves a pair of rings.
//
//   warp 0     dispatcher: polls the down ring over PCIe. Polling by many warps would saturate the link.
//   warp 1     responder: everything that is not a copy, up to 32 messages at once, in the order of the ring;
//              and delayed messages when they are due
//   warps 2..  front ends: doorbells and work requests; the i-th of the ring's queue pairs belongs to front
//              end i mod n alone
//   the rest   movers: one copy each
//
// Each step takes some microseconds of dependent accesses. So a step serves many things, and steps run side
// by side.
//
// The agent knows only what create_qp, create_cq and reg_mr wrote into its contexts. It shares an address
// space with its clients and does not use that.
#pragma once
#include "fabric/hca/delayed.cuh"
#include "fabric/hca/doorbells.cuh"
#include "fabric/hca/inbound.cuh"
#include "fabric/hca/mover.cuh"

namespace gn { namespace hca {

// A poll is a PCIe round trip and a pass some microseconds of dependent accesses: both serve 32 descriptors
// at once.
enum : gn_u32 {
  FIRST_FRONT_END = 2,
  MANY_WARPS = 16,
  SOME_WARPS = 12,
  MAX_FRONT_ENDS = 4,
  PLACES = 64,
  FETCH = 32,
  FETCH_LOADS = 4,
  WORDS = 8
};
// as it is launched on a GPU: 18 movers, or twice 8, or three times 5; 80 registers
enum : gn_u32 { AGENT_THREADS = (FIRST_FRONT_END + MAX_FRONT_ENDS + 18) * 32 };
// In one grid with its clients a block may be as large as theirs.
enum : gn_u32 { MOST_MOVERS = 1024 / 32 - FIRST_FRONT_END - MAX_FRONT_ENDS };
// State of a place: PLACE_FREE, or its content with the number that a mover has drawn. A slow mover must not
// take the content that is meant for the next mover.
enum : gn_u32 { PLACE_FREE = 0, PLACE_FULL = 1, PLACE_EXIT = 2, PLACE_KINDS = 4 };
enum : gn_u32 { RESPONDER_EXIT = FETCH + 1 };                   // else: how many messages it has to handle
// A look for the end is a read of host memory. Over PCIe it costs as much as a poll. On the CPU it costs
// nothing, and a poll is a turn of all lanes.
#if defined(GN_SIMT_HOST)
enum : gn_u32 { IDLE_POLLS_PER_STOP_CHECK = 1 };
#else
enum : gn_u32 { IDLE_POLLS_PER_STOP_CHECK = 64 };
#endif
// Number of copies whose ends a busy mover reports together. Their bytes are on their way while it copies on.
enum : gn_u32 { MOST_REPORTS = 4 };

// The part of a block that serves one pair of rings.
struct ring_group {
  gn_u32 ring;
  gn_u32 first_thread, warps;

  GN_DEV gn_u32 threads() const { return warps * 32; }
  // A small group, as on the CPU, has one front end.
  GN_DEV gn_u32 front_ends() const {
    return warps >= MANY_WARPS ? (gn_u32)MAX_FRONT_ENDS : warps >= SOME_WARPS ? MAX_FRONT_ENDS / 2 : 1u;
  }
  GN_DEV gn_u32 first_mover() const { return FIRST_FRONT_END + front_ends(); }
  GN_DEV gn_u32 movers() const { return warps - first_mover(); }
};

struct alignas(16) agent_smem {
  gn_u64 stage[FETCH][WORDS];
  gn_u64 message[FETCH][WORDS];
  // The copies of a ring on their way from the dispatcher to the movers. The dispatcher goes on while there
  // is a free place. A mover takes the place whose number it has drawn.
  gn_u64 copy[PLACES][WORDS];
  gn_u32 place_state[PLACES];
  down_work moved[MOST_MOVERS];  // what each mover has in hand: in registers it would not stay there
  gn_u32 drawn;
  gn_u32 messages;
  gn_u32 exit;
  delayed_table delayed;
  up_stage up[MAX_FRONT_ENDS][32];
  own_queues own;
  counts count;
  ring_group here;
  // What every step needs is in shared memory: an access to device memory takes much longer.
  agent_args args;
  ring_ctx ring;
};

// The phase bit of the descriptor at a position of the ring.
GN_DEV gn_u64 phase_of(const ring_ctx& ring, gn_u64 position) {
  return (position / ((gn_u64)ring.down_mask + 1)) & 1 ? 0 : (gn_u64)PHASE_BIT;
}

// Polls the next descriptors, up to 32. Each load brings eight, by four lanes apiece. It makes one load more
// than were useful the last time, so that polling leaves the link to others. Returns the number of
// descriptors, which are staged in shared memory.
GN_DEV gn_u32 fetch(const ring_ctx& ring, agent_smem& s, gn_u64 next, gn_u32 loads) {
  gn_u32 which = lane_id() / 4, pair = lane_id() % 4;
  gn_u64 x[FETCH_LOADS], y[FETCH_LOADS];
#pragma unroll
  for (gn_u32 k = 0; k < FETCH_LOADS; ++k) {
    const down_desc* d = (const down_desc*)ring.down_addr + ((next + k * 8 + which) & ring.down_mask);
    x[k] = y[k] = ~phase_of(ring, next + k * 8 + which);
    if (k < loads) mem::ld_poll2_sys(&d->w[pair * 2], x[k], y[k]);
  }
  gn_u32 count = 0;
#pragma unroll
  for (gn_u32 k = 0; k < FETCH_LOADS; ++k) {
    if (k == loads || count != k * 8) break;  // only what follows on without a gap; the same for all lanes
    gn_u64 phase = phase_of(ring, next + k * 8 + which);
    gn_u32 here = __ballot_sync(0xffffffffu, (x[k] & PHASE_BIT) == phase && (y[k] & PHASE_BIT) == phase);
    // a bit for each descriptor of which a pair of words is missing
    gn_u32 missing = ~(here & here >> 1 & here >> 2 & here >> 3) & 0x11111111u;
    gn_u32 prefix = missing ? ((gn_u32)__ffs((int)missing) - 1) / 4 : 8u;
    count += prefix;
  }
  if (count == 0) return 0;
  mem::fence_acquire_sys();
#pragma unroll
  for (gn_u32 k = 0; k < FETCH_LOADS; ++k) {
    gn_u32 at = k * 8 + which;
    if (k * 8 >= count) break;
    if (at < count) {
      s.stage[at][pair * 2] = x[k] & ~(gn_u64)PHASE_BIT;
      s.stage[at][pair * 2 + 1] = y[k] & ~(gn_u64)PHASE_BIT;
    }
  }
  __syncwarp();
  return count;
}

// Puts the staged copies of `todo` into the movers' ring, whose next place is `tail`. Returns the place after
// them.
GN_DEV gn_u32 hand_out(agent_smem& s, gn_u32 todo, gn_u32 tail) {
  gn_u32 number = tail + (gn_u32)__popc(todo & lt_mask()), place = number % PLACES;
  bool mine = todo >> lane_id() & 1u;
  while (__any_sync(0xffffffffu, mine)) {
    if (mine && mem::ld_acquire_cta(&s.place_state[place]) == PLACE_FREE) {
      for (gn_u32 k = 0; k < WORDS; ++k) s.copy[place][k] = s.stage[lane_id()][k];
      mem::st_release_cta(&s.place_state[place], number * PLACE_KINDS | PLACE_FULL);
      mine = false;
    }
    if (mine) pause(20);
  }
  return tail + (gn_u32)__popc(todo);
}

// Gives the staged messages of `todo` to the responder, once it has none.
GN_DEV void hand_over(agent_smem& s, gn_u32 todo) {
  if (!todo) return;
  // pairs with the release in respond_loop
  while (__shfl_sync(0xffffffffu, mem::ld_acquire_cta(&s.messages), 0) != 0) pause(20);
  __syncwarp();
  if (todo >> lane_id() & 1u) {
    gn_u32 at = (gn_u32)__popc(todo & lt_mask());
    for (gn_u32 k = 0; k < WORDS; ++k) s.message[at][k] = s.stage[lane_id()][k];
  }
  __syncwarp();
  if (lane_id() == 0) mem::st_release_cta(&s.messages, (gn_u32)__popc(todo));
}

// The responder: messages from the dispatcher, and delayed ones when they are due.
GN_DEV void respond_loop(const agent_args& a, ring_ctx& ring, agent_smem& s) {
  const responder me = {a, ring, s.count};
  delay_turn turn;
  gn_u32 left = 0;  // messages in hand that wait for the delayed SENDs before them
  for (;;) {
    gn_u32 count = __shfl_sync(0xffffffffu, mem::ld_acquire_cta(&s.messages), 0);
    bool waiting = delayed_pass(me, s.delayed, turn);
    if (count == RESPONDER_EXIT && !waiting) return;  // the movers had ended before it was said
    gn_u64 sends = sends_waiting(s.delayed);
    // Nothing is delivered before it is due. Messages stay here if there is no room for all that may have to
    // wait.
    if (count == 0 || count == RESPONDER_EXIT || count > DELAYED_SENDS - (gn_u32)__popcll(sends)) {
      if (!waiting) pause(20);
      continue;
    }
    if (left && sends) continue;
    __syncwarp();  // lane 0's acquire reaches the lanes
    down_work d = {};
    bool mine = left ? left >> lane_id() & 1u : lane_id() < count;
    if (mine)
      for (gn_u32 k = 0; k < WORDS; ++k) d.w[k] = s.message[lane_id()][k];
    __syncwarp();
    if (!left) delay_sends(s.delayed, turn, d, mine);
    // The end of a queue pair, and the ping of a wait for work in flight, must follow all earlier messages. A
    // ping that measures the clock waits for nothing.
    bool follows = mine && is_rare(d) && (down_op(d) != DOWN_PING || down_tag(d) == 0);
    bool is_behind = __any_sync(0xffffffffu, follows) && sends_waiting(s.delayed) != 0;
    left = is_behind ? __ballot_sync(0xffffffffu, mine) : 0u;
    if (left) continue;
    // The messages are in registers, so the dispatcher may bring the next ones meanwhile.
    if (lane_id() == 0) mem::st_release_cta(&s.messages, 0u);
    handle_messages(me, s.own, d, mine);
    __syncwarp();
  }
}

GN_DEV void dispatch_loop(ring_ctx& ring, agent_smem& s, gn_u32 launch) {
  gn_u32 lane = lane_id(), idle = 0, loads = 1, tail = 0;
  gn_u64 next = ring.down_head;
  for (;;) {
    gn_u32 count = fetch(ring, s, next, loads);
    loads = count / 8 + 1 < FETCH_LOADS ? count / 8 + 1 : (gn_u32)FETCH_LOADS;
    if (count == 0) {
      if (++idle % IDLE_POLLS_PER_STOP_CHECK == 0) {
        gn_u32 stop = mem::ld_acquire_sys((const gn_u32*)ring.stop_addr);
        if (__shfl_sync(0xffffffffu, stop, 0) == launch) break;
      }
      pause(0);
      continue;
    }
    gn_u32 op = lane < count ? (gn_u32)(s.stage[lane][0] >> 56) : 0u;
    bool is_copy = op == DOWN_TO_DEVICE || op == DOWN_TO_HOST || op == DOWN_FUSED;
    tail = hand_out(s, __ballot_sync(0xffffffffu, is_copy), tail);
    hand_over(s, __ballot_sync(0xffffffffu, lane < count && !is_copy));
    next += count;
    __syncwarp();
    if (lane == 0) mem::st_relaxed_sys((gn_u64*)ring.down_head_addr, next);
  }
  if (lane == 0) ring.down_head = next;
  if (lane < s.here.movers()) {
    gn_u32* state = &s.place_state[(tail + lane) % PLACES];
    while (mem::ld_acquire_cta(state) != PLACE_FREE) pause(20);
    mem::st_release_cta(state, (tail + lane) * PLACE_KINDS | PLACE_EXIT);
  }
  __syncwarp();
  // Each mover draws one of these, and only when it has done what it drew before.
  if (lane < s.here.movers())
    while (mem::ld_acquire_cta(&s.place_state[(tail + lane) % PLACES]) != PLACE_FREE) pause(20);
  while (__shfl_sync(0xffffffffu, mem::ld_acquire_cta(&s.messages), 0) != 0) pause(20);
  __syncwarp();
  if (lane == 0) {
    mem::st_release_cta(&s.messages, (gn_u32)RESPONDER_EXIT);
    mem::st_release_cta(&s.exit, 1u);
  }
}

GN_DEV void frontend_loop(const agent_args& a, ring_ctx& ring, agent_smem& s, gn_u32 me) {
  const front_end f = {s.own, s.up[me], me, s.here.front_ends()};
  for (gn_u32 pass = 0, seen = 0;; ++pass) {
    gn_u32 leave = __shfl_sync(0xffffffffu, mem::ld_acquire_cta(&s.exit), 0);
    gn_u32 news = __shfl_sync(0xffffffffu, mem::ld_acquire_cta(&s.own.news), 0);
    __syncwarp();  // lane 0's acquires reach the lanes
    if (news >> 16 != seen) go_on_anew(a, ring, f, news);
    seen = news >> 16;
    bool worked = frontend_pass(a, ring, f, count_of(news), leave || pass % PASSES_PER_SWEEP == 0);
    if (leave && !worked) return;
    if (!worked) pause(20);
  }
}

// What is in the place that this mover has drawn, once there is something. Reports go out before the warp
// waits.
GN_DEV gn_u32 await_place(ring_ctx& ring, const gn_u32* place, gn_u32 drawn, up_kept& reports) {
  for (;;) {
    gn_u32 state = __shfl_sync(0xffffffffu, mem::ld_acquire_cta(place), 0) - drawn * PLACE_KINDS;
    if (reports.count == MOST_REPORTS || (reports.count && state != PLACE_FULL))
      up_push_together(ring, reports);
    if (state == PLACE_FULL || state == PLACE_EXIT) return state;
    pause(20);
  }
}

GN_DEV void mover_loop(const agent_args& a, ring_ctx& ring, agent_smem& s, down_work& d) {
  up_kept reports;
  for (;;) {
    gn_u32 drawn = 0;
    if (lane_id() == 0) drawn = mem::add_relaxed_cta(&s.drawn, 1u);
    drawn = __shfl_sync(0xffffffffu, drawn, 0);
    gn_u32 place = drawn % PLACES, state = await_place(ring, &s.place_state[place], drawn, reports);
    __syncwarp();  // lane 0's acquire reaches the lanes
    if (lane_id() < WORDS) d.w[lane_id()] = s.copy[place][lane_id()];
    __syncwarp();
    // The place may be filled again.
    if (lane_id() == 0) mem::st_release_cta(&s.place_state[place], (gn_u32)PLACE_FREE);
    if (state == PLACE_EXIT) return;
    gn_u32 before = reports.count;
    execute_copy(a, s.delayed, d, reports);
    __syncwarp();
    // Parts of fused responses are reported elsewhere, and there may be many. A report does not wait for
    // them.
    if (before && reports.count == before) up_push_together(ring, reports);
  }
}

// Copies the contexts that all rings share into the block's shared memory. Every thread of the block calls
// it.
GN_DEV void contexts_restore(const agent_args& a, qp_ctx* qps) {
  if (!a.in_smem) return;
  mr_ctx* mrs = (mr_ctx*)(qps + a.qp_count);
  cq_ctx* cqs = (cq_ctx*)(mrs + a.mr_count);
  gn_u32 qp_words = a.qp_count * (gn_u32)(sizeof(qp_ctx) / 8),
         mr_words = a.mr_count * (gn_u32)(sizeof(mr_ctx) / 8);
  for (gn_u32 i = threadIdx.x; i < qp_words; i += blockDim.x) ((gn_u64*)qps)[i] = ((const gn_u64*)a.qps)[i];
  for (gn_u32 i = threadIdx.x; i < mr_words; i += blockDim.x)
    ((gn_u64*)mrs)[i] = ((const gn_u64*)a.mrs_home)[i];
  gn_u32 cq_words = a.cq_count * (gn_u32)(sizeof(cq_ctx) / 8);
  for (gn_u32 i = threadIdx.x; i < cq_words; i += blockDim.x)
    ((gn_u64*)cqs)[i] = ((const gn_u64*)a.cqs_home)[i];
}

// Copies a ring's own part to shared memory, and its changed words back. Every thread of the ring_group calls
// it. Only this ring_group touches its ring and its queue pairs.
GN_DEV void group_restore(const agent_args& a, agent_smem& s, qp_ctx* qps, const ring_group& here) {
  gn_u32 me = threadIdx.x - here.first_thread;
  if (me == 0) {
    s.here = here;
    s.args = a;
    s.args.ring = here.ring;
    mr_ctx* mrs = (mr_ctx*)(qps + a.qp_count);
    if (a.in_smem) s.args.qps = qps, s.args.mrs = mrs, s.args.cqs = (cq_ctx*)(mrs + a.mr_count);
    s.ring = a.rings[here.ring];
    s.exit = s.messages = s.drawn = 0;
    s.count = {};
  }
  for (gn_u32 i = me; i < PLACES; i += here.threads()) s.place_state[i] = PLACE_FREE;
  fused_restore(a.rings[here.ring], s.delayed, me, here.threads());
}
GN_DEV void group_keep(const agent_args& a, agent_smem& s, const qp_ctx* qps, const ring_group& here) {
  gn_u32 me = threadIdx.x - here.first_thread;
  fused_keep(s.ring, s.delayed, me, here.threads());
  if (me == 0) {
    ring_ctx& ring = a.rings[here.ring];
    ring.up_tail = s.ring.up_tail;
    ring.up_head_seen = s.ring.up_head_seen;
    ring.down_head = s.ring.down_head;
    count_up(ring, s.count);
  }
  gn_u32 count = a.in_smem ? a.qp_count : 0u;
  for (gn_u32 i = me; i < count; i += here.threads())
    if (qps[i].ring == here.ring) a.qps[i] = qps[i];
}

// The roles of a ring_group's warps.
GN_DEV void serve(agent_smem& s, gn_u32 warp) {
  if (warp == 0) dispatch_loop(s.ring, s, s.args.launch);
  else if (warp == 1) respond_loop(s.args, s.ring, s);
  else if (warp < s.here.first_mover()) frontend_loop(s.args, s.ring, s, warp - FIRST_FRONT_END);
  else mover_loop(s.args, s.ring, s, s.moved[warp - s.here.first_mover()]);
}

// The agent. Grid: `a.blocks`, each for `a.rings_a_block` pairs of rings; block: at least four warps for
// each; shared memory: sizeof(agent_smem) for each and, with `a.in_smem`, all contexts.
GN_DEV void agent_main(const agent_args& a) {
  gn_u32 warps = blockDim.x / 32 / a.rings_a_block, which = warp_in_block() / warps;
  ring_group here = {blockIdx.x * a.rings_a_block + which, which * warps * 32, warps};
  // The last block may have a half too many.
  bool is_used = which < a.rings_a_block && here.ring < a.ring_count;
  agent_smem& s = ((agent_smem*)smem())[which];
  qp_ctx* qps = (qp_ctx*)((agent_smem*)smem() + a.rings_a_block);
  gn_u32 warp = warp_in_block() - which * warps;
  contexts_restore(a, qps);
  if (is_used) group_restore(a, s, qps, here);
  __syncthreads();
  if (is_used && warp == 0) find_own(s.args, s.own);
  __syncthreads();
  if (is_used && threadIdx.x == here.first_thread)
    mem::st_release_sys((gn_u32*)s.ring.ready_addr, s.args.launch);
  if (is_used) serve(s, warp);
  __syncthreads();
  if (is_used) group_keep(a, s, qps, here);
}

}}  // namespace gn::hca
