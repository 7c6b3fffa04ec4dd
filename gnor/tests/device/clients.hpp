// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the threads of a client do: requests by the calls of a batch, of a thread alone, and with callbacks.
#pragma once
#include "chains.hpp"
#include "lanes.hpp"

namespace {

/// Until every completion has come: also of abandoned requests.
template <class S>
void drain(Harness& r) {
  for (gn_u64 patience = now_ns() + (2000000ull << r.cfg.clock_shift);;) {
    take_completions<S>(*r.used, FULL);
    gn_u32 left = 0;
    for (gn_u32& w : r.used->slot_bits) left |= ld_relaxed_gpu(&w);
    if (!__any_sync(FULL, left != 0)) return;
    if (__any_sync(FULL, now_ns() > patience)) {
      if (lane_id() == 0) note(r.leaked);
      return;
    }
    pause(100);
  }
}

/// Polls until a poll finds nothing.
template <class S>
void idle(Harness& r) {
  while (take_completions<S>(*r.used, FULL)) {}
}

/// Sends what the lanes have staged, and notes when.
template <class S>
void commit_noted(Harness& r, io& x) {
  bool staged = r.cfg.in_order && x.cid != IO_NONE;
  Arrival* at = staged ? &r.arrivals[x.cid] : nullptr;
  bool first = staged && ld_relaxed_gpu(&at->before) == ld_relaxed_gpu(&at->sent);
  if (first)
    st_relaxed_gpu(&at->ssd, (gn_u32)x.ssd), st_relaxed_gpu(&at->before, add_relaxed_gpu(&r.events, 1u) + 1);
  io_commit<S>(*r.used, FULL, x);
  if (first) st_relaxed_gpu(&at->behind, add_relaxed_gpu(&r.events, 1u) + 1);
}

/// Runs one round of a warp's requests by the calls of a batch.
template <class S>
void batch_round(Harness& r, Lane& lane, gn_u32 thread, bool leaves) {
  file_of<S> f = {r.used, &r.v, r.cfg.timeout ? r.cfg.timeout : ~0ull};
  batch& b = *reinterpret_cast<batch*>(gn::smem() + (r.cfg.in_smem ? sizeof(smem_channel) : 0));
  for (gn_u32 turn = 0; __any_sync(FULL, lane.state != Lane::ENDED); ++turn) {
    bool waited = lane.state == Lane::WANTS_BUFFER;
    begin<S>(r, lane, thread);
    if (waited && lane.state == Lane::RUNS) enter(b, f);
    submit(b, f, lane.x);
    commit(b, f, lane.x);
    poll(f);
    bool ended = dispatch(b, f, lane.x), late = ended && (lane.x.status & GN_TIMED_OUT);
    end<S>(r, lane, ended && !late, thread);
    given_up<S>(r, lane, late);
    if (leaves && turn == 1) {
      bool left = batch_pending(b);
      leave(b, f, lane.x);
      if (batch_busy(b)) note(r.wrong_status);
      given_up<S>(r, lane, left);
      lane.state = Lane::ENDED;
    }
    pause(100);
  }
}

template <class S>
void client_of(Harness& r) {
  gn_u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  bool first_warp = thread < 32;
  if (first_warp) {
    connect_all(r.connect_request);
    __syncwarp();
    if (lane_id() == 0) st_release_gpu(&r.connected, 1u);
  }
  while (!ld_acquire_gpu(&r.connected)) pause(100);
  __syncwarp();
  smem_channel& room = *reinterpret_cast<smem_channel*>(gn::smem());
  if (r.cfg.in_smem) {
    channel& there = load_smem(r.c, room);
    if (threadIdx.x == 0) r.used = &there;
    __syncthreads();
  }
  if (r.cfg.batch)
    batch_init(*reinterpret_cast<batch*>(gn::smem() + (r.cfg.in_smem ? sizeof(smem_channel) : 0)));
  Lane lane;
  gn_u32 own_round = 0;
  for (gn_u32 round = 0; round < r.cfg.rounds; ++round) {
    next_request(r, lane, thread, round);
    if (lane_id() == 0) add_relaxed_gpu(&r.ios, 32u);
    if (r.cfg.batch) batch_round<S>(r, lane, thread, r.cfg.leaves && round + 1 == r.cfg.rounds);
    while (__any_sync(FULL, lane.state != Lane::ENDED)) {
      begin<S>(r, lane, thread);
      io_stage<S>(*r.used, r.v, lane.state == Lane::RUNS, lane.x, {FULL, thread});
      commit_noted<S>(r, lane.x);
      take_completions<S>(*r.used, FULL);
      bool ended = io_finished<S>(*r.used, r.v, FULL, lane.state == Lane::RUNS, lane.x);
      end<S>(r, lane, ended, thread);
      abandon<S>(r, lane, lane.state == Lane::RUNS && now_ns() > lane.deadline);
      if (r.cfg.saturates && ended && ++own_round < r.cfg.closed_rounds)
        next_request(r, lane, thread, own_round);
      pause(100);
    }
  }
  __syncwarp();
  if (lane_id() == 0) add_acqrel_gpu(&r.warps_done, 1u);
  while (first_warp && __any_sync(FULL, ld_acquire_gpu(&r.warps_done) != r.threads / 32)) {
    take_completions<S>(*r.used, FULL);
    pause(100);
  }
  if (first_warp) drain<S>(r), idle<S>(r);
  if (r.cfg.in_smem) write_back(r.c, room);
}

/// One thread's requests, one after the other, by the calls for a thread alone.
template <class S>
void thread_alone(Harness& r, gn_u32 thread) {
  file_of<S> f = {&r.c, &r.v, r.cfg.timeout ? r.cfg.timeout * 1024 : ~0ull >> 1};
  gn_u32 self = 1u << lane_id();
  for (gn_u32 round = 0; round < r.cfg.rounds; ++round) {
    Lane lane;
    next_request(r, lane, thread, round);
    if (r.cfg.fragments) {
      while (!alloc_wait(f, lane.bytes, lane.data, self)) {}
      prepare(r, lane);
      lane.x.status = lane.write ? write_one(f, lane.vba, lane.blocks, lane.data)
                                 : read_one(f, lane.vba, lane.blocks, lane.data);
      look_at_result(r, lane, thread);
      free(f, lane.data, self);
      continue;
    }
    while (!(lane.data.base = alloc(f, lane.bytes, self))) poll(f, self);
    lane.data.shift = PIECE_ALL;
    prepare(r, lane);
    lane.x.status = lane.write ? write_one(f, lane.vba, lane.blocks, lane.data.base, POOL_KEY)
                               : read_one(f, lane.vba, lane.blocks, lane.data.base, POOL_KEY);
    look_at_result(r, lane, thread);
    free(f, lane.data.base, lane.bytes, self);
  }
}

template <class S>
void threads_alone_of(Harness& r) {
  gn_u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread < 32) {
    connect_all(r.connect_request);
    __syncwarp();
    if (lane_id() == 0) st_release_gpu(&r.connected, 1u);
  }
  while (!ld_acquire_gpu(&r.connected)) pause(100);
  __syncwarp();
  if (thread % (S::ALONE ? 32 : 5) == 0) thread_alone<S>(r, thread);
  __syncwarp();
  if (lane_id() == 0) add_acqrel_gpu(&r.warps_done, 1u);
  if (thread >= 32) return;
  while (__any_sync(FULL, ld_acquire_gpu(&r.warps_done) != r.threads / 32)) pause(100);
  drain<S>(r);
}

void client(void* p) {
  Harness& r = *static_cast<Harness*>(p);
  if (r.cfg.threads_alone)
    return r.cfg.sharing == Config::WARP ? threads_alone_of<by_warp>(r) : threads_alone_of<by_device>(r);
  if (r.cfg.async)
    return r.cfg.sharing == Config::WARP ? async_client_of<by_warp>(r) : async_client_of<by_device>(r);
  switch (r.cfg.sharing) {
    case Config::DEVICE: return client_of<by_device>(r);
    case Config::BLOCK: return client_of<by_block>(r);
    case Config::WARP: return client_of<by_warp>(r);
  }
}

}  // namespace
