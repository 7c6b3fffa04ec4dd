// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the threads of a client do: requests by the calls of a batch, of a thread alone, and with callbacks.
#pragma once
#include "gnstor/gnstor.cuh"
#include "strange.hpp"

#include <algorithm>

namespace {

using namespace harness;
using namespace gn::mem;

constexpr gn_u32 FULL = 0xffffffffu;

struct Lane {
  enum State { WANTS_BUFFER, RUNS, ENDED } state = ENDED;
  io x{};
  buffer data{};   // contiguous, or in pieces
  gn_u32 first = 0;   // page of it at which the request begins
  gn_u64 deadline = 0, began = 0;   // host steps
  gn_u32 vba = 0, blocks = 0, bytes = 0, version = 0;
  bool write = false;
};

void next_request(Harness& r, Lane& lane, gn_u32 thread, gn_u32 round) {
  Rng rng(r.cfg.seed * 1000003 + thread * 977 + round);
  lane = {};
  lane.state = Lane::WANTS_BUFFER;
  lane.write = r.cfg.saturates ? r.cfg.writes : rng.one_of(2);
  if (lane.write || rng.one_of(2)) {
    gn_u32 first = rng.below(OWN_BLOCKS);
    lane.vba = SHARED_BLOCKS + thread * OWN_BLOCKS + first;
    lane.blocks =
        1 + rng.below(OWN_BLOCKS - first < r.cfg.max_blocks ? OWN_BLOCKS - first : r.cfg.max_blocks);
  } else {
    lane.vba = rng.below(SHARED_BLOCKS - 8);
    lane.blocks = 1 + rng.below(r.cfg.max_blocks);
  }
  // Sometimes it is a part of a larger buffer.
  lane.bytes = lane.blocks * GN_BLOCK * (r.cfg.parts ? 1 + rng.below(4) : 1);
  lane.version = 1 + round + thread * 16;
}

void* block_of(Lane& lane, gn_u32 b) {
  return reinterpret_cast<void*>(lane.data.at((lane.first + b) * GN_BLOCK));
}

/// Takes a buffer for the request: a contiguous one by the plain calls, or any if the pool is in fragments.
template <class S>
bool take_buffer(Harness& r, channel& c, Lane& lane, gn_u32 thread) {
  if (r.cfg.fragments) {
    if (!pool_alloc_buffer<S>(c.data, lane.bytes, thread, lane.data)) return false;
    if (lane.data.shift != PIECE_ALL) add_relaxed_gpu(&r.in_pieces, 1u);
    // A part of it may begin at any page.
    lane.first = thread % (lane.data.pages - lane.blocks + 1);
    return true;
  }
  lane.data.base = pool_alloc<S>(c.data, lane.bytes, thread);
  lane.data.shift = PIECE_ALL;
  return lane.data.base != 0;
}

template <class S>
void give_buffer(Harness& r, channel& c, Lane& lane) {
  if (r.cfg.fragments) pool_free_buffer<S>(c.data, lane.data);
  else pool_free<S>(c.data, lane.data.base, lane.bytes);
}

/// The request must stay in its place until it has ended.
io request_of(Harness& r, const Lane& lane) {
  gn_u32 opcode = lane.write ? IO_WRITE : IO_READ;
  return r.cfg.fragments ? io_make(r.v, opcode, lane.vba, lane.blocks, lane.data, lane.first, POOL_KEY, 0)
                         : io_make(r.v, opcode, lane.vba, lane.blocks, lane.data.base, POOL_KEY, 0);
}

void prepare(Harness& r, Lane& lane) {
  for (gn_u32 b = 0; b < lane.blocks; ++b) {
    if (lane.write) fill_block(block_of(lane, b), lane.vba + b, lane.version);
    else memset(block_of(lane, b), 0xdd, GN_BLOCK);
  }
  lane.x = request_of(r, lane);
}

template <class S>
void begin(Harness& r, Lane& lane, gn_u32 thread) {
  bool wants = lane.state == Lane::WANTS_BUFFER;
  bool got = false;
  in_turns<S>(FULL, wants, [&] { got = take_buffer<S>(r, *r.used, lane, thread); });
  if (!got) return;
  prepare(r, lane);
  lane.began = now_ns();
  lane.deadline = r.cfg.timeout ? now_ns() + r.cfg.timeout : ~0ull;
  lane.state = Lane::RUNS;
}

void note(gn_u32& counter) { add_relaxed_gpu(&counter, 1u); }

void look_at_result(Harness& r, Lane& lane, gn_u32 thread) {
  bool may_fail = r.cfg.refuse_1_of ||
                  (r.cfg.break_at && !r.cfg.map_at && !r.cfg.breaks && !(r.cfg.reads_survive && !lane.write));
  bool good = lane.x.status == GN_OK;
  if (!good) {
    note(r.failed_ios);
    if (!may_fail) note(r.wrong_status);
  }
  for (gn_u32 b = 0; b < lane.blocks; ++b) {
    gn_u32 own = lane.vba + b - (SHARED_BLOCKS + thread * OWN_BLOCKS);
    gn_u32* known = own < OWN_BLOCKS ? &r.versions[thread * OWN_BLOCKS + own] : nullptr;
    if (lane.write) {
      *known = good ? lane.version : ~0u;
      if (good && r.cfg.map_at && !r.is_whole(r.peer, lane.vba + b, lane.version)) note(r.split);
    } else if (good && !r.cfg.instant) {
      const gn_u32* block = static_cast<const gn_u32*>(block_of(lane, b));
      if (!is_block(block, lane.vba + b)) note(r.wrong_data);
      if (!known && block[0] != 0) note(r.wrong_data);
      if (known && *known != ~0u && block[0] != *known) note(r.wrong_data);
    }
  }
}

template <class S>
void end(Harness& r, Lane& lane, bool ended, gn_u32 thread) {
  if (ended) look_at_result(r, lane, thread);
  if (ended && r.cfg.saturates)
    r.steps[add_relaxed_gpu(&r.timed, 1u)] = static_cast<gn_u32>(now_ns() - lane.began);
  __syncwarp();
  in_turns<S>(FULL, ended, [&] { give_buffer<S>(r, *r.used, lane); });
  if (ended) lane.state = Lane::ENDED;
}

/// These lanes gave up their requests. Their buffers go back while late data may still come into them.
template <class S>
void given_up(Harness& r, Lane& lane, bool late) {
  in_turns<S>(FULL, late, [&] { give_buffer<S>(r, *r.used, lane); });
  if (!late) return;
  note(r.timed_out);
  if (lane.x.status != (r.port ? (gn_u32)GN_TIMED_OUT : GN_TIMED_OUT | GN_NO_AGENT)) note(r.wrong_status);
  if (lane.write)
    for (gn_u32 b = 0; b < lane.blocks; ++b) r.versions[lane.vba - SHARED_BLOCKS + b] = ~0u;
  lane.state = Lane::ENDED;
}

template <class S>
void abandon(Harness& r, Lane& lane, bool late) {
  io_abandon<S>(*r.used, r.v, FULL, late, lane.x);
  given_up<S>(r, lane, late);
}

/// Polls until every completion has come, also of abandoned requests.
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
      io_stage<S>(*r.used, r.v, FULL, lane.state == Lane::RUNS, lane.x, thread);
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
  // It is not begun if no slot is free, because a callback does not wait.
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
    // Every second block only takes completions, and leaves parked requests to others.
    if (blockIdx.x % 2) poll(f);
    else poll(f, callbacks<S>{table, 1});
  }
  __syncwarp();
  // Requests in flight go on where the channel was, perhaps for others.
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

/// Runs one thread's requests, one after the other, by the calls for a single thread.
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
