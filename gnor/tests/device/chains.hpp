// SPDX-License-Identifier: Apache-2.0 OR MIT
// Clients whose requests have callbacks.
#pragma once
#include "lanes.hpp"

namespace {

/// A chain of requests: each one's callback begins the next.
struct Chain {
  Harness* r;
  Lane lane;
  gn_u32 thread = 0, round = 0;
};

template <class S>
gn_u32 begin_async(const file_of<S>& f, Chain& chain, bool have, gn_u32 mask) {
  Lane& lane = chain.lane;
  return submit_async(f, have ? lane.x : io(), 0, reinterpret_cast<gn_u64>(&chain), have, mask);
}

template <class S>
void ended(const file_of<S>& f, gn_u64 user, gn_u32 status, gn_u32) {
  Chain& chain = *reinterpret_cast<Chain*>(user);
  Harness& r = *chain.r;
  Lane& lane = chain.lane;
  lane.x.status = status;
  if (status & GN_TIMED_OUT) {
    note(r.timed_out);
    if (lane.write)
      for (gn_u32 b = 0; b < lane.blocks; ++b) r.versions[lane.vba - SHARED_BLOCKS + b] = ~0u;
  } else {
    look_at_result(r, lane, chain.thread);
  }
  give_buffer<S>(r, *f.c, lane);
  add_relaxed_gpu(&r.called, 1u);
  if (r.cfg.callback_waits) poll(f, 1u << lane_id());
  if (++chain.round == r.cfg.rounds) return;
  next_request(r, lane, chain.thread, chain.round);
  if (!take_buffer<S>(r, *f.c, lane, chain.thread)) return;
  prepare(r, lane);
  // Not begun where no slot is free: a callback does not wait.
  if (begin_async(f, chain, true, 1u << lane_id()) == GN_PENDING) add_relaxed_gpu(&r.submitted, 1u);
  else give_buffer<S>(r, *f.c, lane);
}

/// Every thread begins a chain and ends; the first warp takes them along until none is left.
template <class S>
void async_client_of(Harness& r) {
  gn_u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  file_of<S> f = {&r.c, &r.v, r.cfg.timeout ? r.cfg.timeout * 1024 : ~0ull >> 1};
  static const callback<S> table[] = {ended<S>};
  if (thread < 32) {
    connect_all(r.connect_request);
    __syncwarp();
    if (lane_id() == 0) st_release_gpu(&r.connected, 1u);
  }
  while (!ld_acquire_gpu(&r.connected)) pause(100);
  __syncwarp();
  const file_of<S> home = f;
  smem_channel& room = *reinterpret_cast<smem_channel*>(gn::smem());
  if constexpr (S::IN_BLOCK)
    if (r.cfg.in_smem) f = load_smem(home, room);
  __syncthreads();
  if (threadIdx.x == 0 && r.cfg.in_smem) r.used = f.c;
  __syncthreads();
  Chain& chain = *(static_cast<Chain*>(r.chains) + thread);
  chain.r = &r;
  chain.thread = thread;
  Lane first;   // the chain is others' from the moment that its first request is submitted
  next_request(r, first, thread, 0);
  bool waits = true;
  while (__any_sync(FULL, waits)) {
    begin<S>(r, first, thread);
    bool have = waits && first.state == Lane::RUNS;
    if (have) chain.lane = first, chain.lane.x = request_of(r, chain.lane);
    if (begin_async(f, chain, have, FULL) == GN_PENDING && have) {
      waits = false;
      add_relaxed_gpu(&r.submitted, 1u);
    }
    // Every second block only takes completions: what is parked is for others.
    if (blockIdx.x % 2) poll(f);
    else poll(f, callbacks<S>{table, 1});
  }
  __syncwarp();
  // What is under way goes on where the channel was, for others perhaps.
  if (r.cfg.in_smem) write_back(home, room);
  f = home;
  if (lane_id() == 0) add_acqrel_gpu(&r.warps_done, 1u);
  if (thread >= 32) return;
  if (threadIdx.x == 0 && r.cfg.in_smem) r.used = &r.c;
  while (__any_sync(FULL, ld_acquire_gpu(&r.warps_done) != r.threads / 32)) poll(f, callbacks<S>{table, 1});
  gn_u64 patience = (2000000ull * 1024) << r.cfg.clock_shift;
  if (gn_u32 left = gn::drain(f, patience, callbacks<S>{table, 1})) {
    if (lane_id() == 0) add_relaxed_gpu(&r.leaked, left);
  }
}

}  // namespace
