// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Warps that share one channel read and write through the real agent, against a peer that plays the rest.
//   traffic plain|tsan|asan|weak SEEDS [SCENARIO [FIRST]]     "ok NAME" or "FAILED NAME" a test
#include "gnstor/gnstor.cuh"
#include "anew.hpp"

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

/// A buffer for the request, contiguous by the plain calls or, where the pool is in fragments, whatever there
/// is.
template <class S>
bool take_buffer(Harness& r, channel& c, Lane& lane, gn_u32 thread) {
  if (r.cfg.fragments) {
    if (!pool_alloc_buffer<S>(c.data, lane.bytes, thread, lane.data)) return false;
    if (lane.data.shift != PIECE_ALL) add_relaxed_gpu(&r.in_pieces, 1u);
    // A part of it may begin anywhere.
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

/// Where it lies it stays until it has ended.
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

/// The requests of these lanes were given up: their buffers go back while data may still come into them.
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

/// Until a poll finds nothing.
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

/// One round's requests of a warp by the calls of a batch.
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

struct Both {
  Harness& r;
  Peer& peer;
};

void ask_agent_to_end(void* p) {
  Both& b = *static_cast<Both*>(p);
  __atomic_store_n(reinterpret_cast<gn_u32*>(b.r.ring.stop_addr), LAUNCH, __ATOMIC_RELEASE);
}

// Over all runs of a scenario.
gn_u64 pieced_buffers = 0;
gn_u64 reads_of[2];   // of other SSDs than the first, of the first
gn_u64 dumped = 0;
gn_u64 map_refusals = 0;
gn_u64 made_anew = 0;

/// At saturation no request waits much longer than another. p99.9 of the steps that a request takes is at
/// most 4 times p50. The longest request takes at most 20 times p50.
bool tail_is_short(Harness& r, const char* name) {
  if (!r.cfg.saturates) return true;
  std::sort(r.steps.begin(), r.steps.end());
  gn_u32 p50 = r.steps[r.steps.size() / 2], p999 = r.steps[(r.steps.size() - 1) * 999 / 1000],
         most = r.steps.back();
  bool is_short = p999 <= 4 * p50 && most <= 20 * p50;
  if (!is_short || getenv("STEPS"))
    printf(
        "  %s seed %llu: %s of %u SSDs, %u replicas: of %zu requests p50 %u steps, p99.9 %u, longest %u\n",
        name, static_cast<unsigned long long>(r.cfg.seed), r.cfg.writes ? "writes" : "reads", r.cfg.ssds,
        r.cfg.replicas, r.steps.size(), p50, p999, most);
  return is_short;
}

/// One run; says what was wrong with it.
bool run(const Config& cfg, const char* name) {
  Harness r(cfg);
  if (cfg.saturates) r.steps.resize(r.threads * cfg.closed_rounds);
  r.port = cfg.seed % 4 != 2;
  Peer peer(r);
  Both both{r, peer};
  std::vector<Chain> chains(r.threads);
  r.chains = chains.data();
  simt::clock_ns = Peer::read_clock;
  simt::Body agent = [](void* p) { hca::agent_main(*static_cast<hca::agent_args*>(p)); };
  simt::Grid grids[] = {
      {cfg.blocks, cfg.warps * 32,
       (cfg.in_smem ? (gn_u32)sizeof(smem_channel) : 0) + (cfg.batch ? batch_bytes(cfg.warps * 32) : 0),
       client, &r, ask_agent_to_end, &both},
      {1, cfg.ring_groups * cfg.agent_warps * 32, cfg.ring_groups * (gn_u32)sizeof(hca::agent_smem), agent,
       &r.agent, nullptr, nullptr},
  };
  simt::Region visible[4];
  const Memory* seen_by_others[] = {&r.rings, &r.queues, &r.uars, &r.cq};
  for (int i = 0; i < 4; ++i) visible[i] = {seen_by_others[i]->p, seen_by_others[i]->bytes};
  simt::Options o;
  o.seed = cfg.seed;
  o.preempt = cfg.preempt;
  o.weak = cfg.weak;
  const char* patience_ms = getenv("PATIENCE_MS");
  o.deadline_ns = (patience_ms ? strtoull(patience_ms, nullptr, 10) : 100000) * 1000000u;
  o.abort_run = [](void*, const char*) {};
  simt::Stats s =
      simt::run(grids, 2, o, visible, 4, [](void* p) { return static_cast<Peer*>(p)->turn(); }, &peer);

  char what[200] = "";
  unsigned left = s.failed ? 0 : r.leftovers(what, sizeof what);
  bool responses_lost = !cfg.break_at && !s.failed && r.ring.responses != peer.answered;
  pieced_buffers += r.in_pieces;
  for (int i = 0; i < 2; ++i) reads_of[i] += peer.reads[i];
  dumped += peer.dumped;
  bool uncalled = r.called != r.submitted || r.c.uncalled;
  unsigned wrong = uncalled + r.wrong_data + r.wrong_status + r.leaked + peer.rnr + peer.no_receive +
                   peer.unexpected + peer.bad_copies + peer.torn_writes + peer.overtaken +
                   peer.beyond_the_head + peer.overwritten + peer.bad_stamps + peer.restamped + r.split +
                   (s.failed ? 0 : peer.missing_copies());
  map_refusals += peer.map_refusals;
  made_anew += peer.made_anew;
  if (getenv("STEPS") && cfg.map_at)
    printf("  seed %llu: %u refusals, map at %u of %llu\n", static_cast<unsigned long long>(cfg.seed),
           peer.map_refusals, cfg.map_at, static_cast<unsigned long long>(peer.step));
  if (!s.failed && !left && !wrong && !responses_lost) return tail_is_short(r, name);
  printf("  %s seed %llu: wrong data %u, status %u; leaked %u, left %u (%s)\n", name,
         static_cast<unsigned long long>(cfg.seed), r.wrong_data, r.wrong_status, r.leaked, left, what);
  printf("    rnr %u, no receive %u, unexpected %u, copies %u, torn %u\n", peer.rnr, peer.no_receive,
         peer.unexpected, peer.bad_copies, peer.torn_writes);
  if (peer.beyond_the_head) printf("    beyond the head that SQHD told %u\n", peer.beyond_the_head);
  if (peer.bad_stamps) printf("    stamps of clients missing or wrong %u\n", peer.bad_stamps);
  if (peer.overwritten) printf("    blocks overwritten that were not acknowledged %u\n", peer.overwritten);
  if (peer.restamped) printf("    versions with two sequences %u\n", peer.restamped);
  if (cfg.map_at || cfg.breaks) printf("    acknowledged and missing %u, split %u\n", peer.missing_copies(),
           r.split);
  for (gn_u32 ssd = 0; cfg.breaks && ssd < cfg.ssds; ++ssd)
    printf("    SSD %u: state %u, set %u, made anew %u, to break %u\n", ssd, peer.anew[ssd].state,
           peer.anew[ssd].set, peer.made_anew, peer.breaks);
  if (peer.overtaken) printf("    overtaken %u\n", peer.overtaken);
  printf("    answered %u, taken %llu, late %u\n  %s\n", peer.answered, r.ring.responses, peer.lost,
         s.failed ? s.message : "");
  return false;
}

// Scenarios: each turns a seed into a configuration.

Config common(uint64_t seed) {
  Rng rng(seed);
  Config cfg;
  cfg.seed = seed;
  cfg.ssds = 1 + rng.below(4);
  cfg.replicas = 1 + rng.below(cfg.ssds < 3 ? cfg.ssds : 3);
  cfg.chunk_shift = rng.below(3);
  cfg.blocks = 1 + rng.below(2);
  cfg.warps = 1 + rng.below(2);
  cfg.preempt = seed % 3 == 0 ? 2 : 8;
  cfg.agent_warps = seed % 5 == 0 ? 16 : seed % 5 == 1 ? 12 : 4 + rng.below(3);
  cfg.ring_groups = 1 + seed % 4 / 3;
  cfg.fused = seed / 2 % 2;
  cfg.depth = 32u << seed / 3 % 3;
  cfg.batch = seed % 2;
  cfg.fragments = seed / 7 % 2;
  return cfg;
}

/// Reads and writes of warps that share the channel: data, order, no leak.
Config batched_reads_and_writes(uint64_t seed) { return common(seed); }

/// Reads of several blocks, each a fused response whose parts several movers copy.
Config parts_of_fused_responses(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = cfg.replicas = 1, cfg.blocks = 1, cfg.warps = 1, cfg.rounds = 3, cfg.max_blocks = 8,
  cfg.chunk_shift = 3;
  cfg.agent_warps = 8, cfg.ring_groups = 1, cfg.fused = true, cfg.batch = false, cfg.fragments = false;
  return cfg;
}

/// Of two replicas a read takes the one that is asked for less.
Config one_ssd_is_slow(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = cfg.replicas = 2, cfg.blocks = 2, cfg.warps = 2, cfg.rounds = 8, cfg.max_blocks = 1;
  cfg.slow = 300;
  cfg.async = true;
  return cfg;
}

/// More lanes than command ids, one SSD: send queue, receives and command ids are all used up.
Config full_queues(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = cfg.replicas = 1, cfg.blocks = 2, cfg.warps = 3, cfg.rounds = 2, cfg.max_blocks = 1,
  cfg.chunk_shift = 0;
  cfg.instant = seed % 2;
  cfg.delay = 4;
  cfg.bursts = true;
  return cfg;
}

/// The channel is for one block, or for one warp, and all of its clients are one block.
Config in_one_block(Config cfg, Config::Sharing sharing, gn_u32 warps) {
  cfg.blocks = 1, cfg.warps = warps;
  cfg.sharing = sharing;
  cfg.in_smem = cfg.seed / 6 % 2;
  return cfg;
}

/// More commands than fit in the queues of one or two SSDs, all the time: they are sent in the order in which
/// they arrive.
Config first_come_first_served(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = 1 + static_cast<gn_u32>(seed % 2), cfg.replicas = 1, cfg.depth = 32;
  cfg.blocks = 2, cfg.warps = 2, cfg.rounds = 6, cfg.max_blocks = 1, cfg.chunk_shift = 0;
  cfg.pool_blocks = 64, cfg.batch = cfg.fragments = false;
  cfg.in_order = true;
  if (seed % 5 == 4) cfg.unordered = true;
  return seed % 3 == 2 ? in_one_block(cfg, Config::BLOCK, 4) : cfg;
}

/// More requests than slots, all the time: each gets its slots in its turn. Of four seeds one reads and three
/// write, with one to three replicas. Of 16 seeds each has another number of SSDs, from 1 to 16.
Config saturated_slots(uint64_t seed) {
  Config cfg = common(seed);
  cfg.writes = seed % 4 != 0;
  cfg.replicas = static_cast<gn_u32>(cfg.writes ? seed % 4 : 1 + (seed / 4 + 2) % 3);
  cfg.ssds = std::max(cfg.replicas, 1 + static_cast<gn_u32>(seed * 7 % 16));
  cfg.depth = std::max(32u, SLOTS >> log2_up(cfg.ssds));   // as a channel's CPU side has it
  cfg.blocks = 2, cfg.warps = 3, cfg.rounds = 1, cfg.max_blocks = 1, cfg.chunk_shift = 0;
  cfg.pool_blocks = 64, cfg.batch = cfg.fragments = false;
  cfg.saturates = true, cfg.closed_rounds = 6;
  return cfg;
}

/// Many doorbells of one queue pair, each of few commands.
Config many_doorbells(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = cfg.replicas = 1, cfg.blocks = 2, cfg.warps = 2, cfg.rounds = 3, cfg.max_blocks = 4,
  cfg.chunk_shift = 0;
  cfg.instant = true;
  cfg.preempt = 2;
  cfg.ack_1_of = 1 + static_cast<unsigned>(seed % 4) * 300;   // several at once, and a full send queue
  return cfg;
}

/// A pool too small for all: lanes wait for what others give back.
Config a_small_pool(uint64_t seed) {
  Config cfg = common(seed);
  cfg.pool_blocks = 2;
  return cfg;
}

/// A pool of one block that the host gives more to, or does not.
Config a_growing_pool(uint64_t seed) {
  Config cfg = common(seed);
  cfg.pool_blocks = 3 + static_cast<gn_u32>(seed % 20);
  cfg.grows = true;
  cfg.refuses = seed % 3 == 0;
  return cfg;
}

Config refused_reads(uint64_t seed) {
  Config cfg = common(seed);
  cfg.refuse_1_of = 3;
  return cfg;
}

/// Late completions of abandoned requests find their own memory, not a later request's.
Config late_completions(uint64_t seed) {
  Config cfg = common(seed);
  cfg.lost_1_of = 5;
  cfg.timeout = 300 + static_cast<gn_u32>(seed % 5) * 100;
  cfg.rounds = 4;
  cfg.parts = seed % 3 == 0 || cfg.fragments;
  cfg.leaves = seed % 3 == 1;
  if (seed / 2 % 2) {
    cfg.pool_blocks = 6;
  } else {  // more requests than slots: some are given up before they have one
    cfg.blocks = 2, cfg.warps = 3, cfg.max_blocks = 1;
  }
  return cfg;
}

/// A pool in fragments: most buffers are in pieces, and data goes where those are.
Config buffers_in_pieces(uint64_t seed) {
  Config (*const kinds[])(uint64_t) = {common, late_completions, refused_reads};
  Config cfg = kinds[seed % 3](seed);
  cfg.fragments = cfg.parts = true;
  cfg.max_blocks = 1 + static_cast<gn_u32>(seed % 8);
  if (cfg.pool_blocks < 24) cfg.pool_blocks = 24;
  cfg.async = seed % 5 == 4;
  return cfg;
}

Config one_queue_pair_breaks(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = 3;
  cfg.break_ssds = 1;
  cfg.break_at = 50 + static_cast<unsigned>(seed * 131 % 1500);
  return cfg;
}

/// A read is tried on another replica before it fails; waited for or not.
Config reads_survive_a_queue_pair(uint64_t seed) {
  Config cfg = one_queue_pair_breaks(seed);
  cfg.replicas = 2 + static_cast<gn_u32>(seed % 2);
  cfg.rounds = 5;
  cfg.reads_survive = true;
  cfg.async = seed % 4 == 3;
  return cfg;
}

Config all_queue_pairs_break(uint64_t seed) {
  Config cfg = one_queue_pair_breaks(seed);
  cfg.ssds = cfg.break_ssds = 4;
  return cfg;
}

/// Requests of more commands than there are slots: a request's own slot carries one after the other.
Config a_long_request(uint64_t seed) {
  Config cfg = common(seed);
  cfg.chunk_shift = 0, cfg.max_blocks = 8, cfg.blocks = 2, cfg.warps = 3, cfg.rounds = 1;
  cfg.ssds = 3, cfg.replicas = 1 + static_cast<gn_u32>(seed % 3);
  cfg.pool_blocks = 200;
  return cfg;
}

/// SSDs and clients take the next map at different times, and a client may skip one. The SSD that the map
/// drops breaks before or after that. No request fails. Each write is on every member of one epoch, and has
/// one stamp.
Config the_map_moves_on(uint64_t seed) {
  Config cfg = common(seed);
  cfg.ssds = 3 + static_cast<gn_u32>(seed % 2), cfg.replicas = 2 + static_cast<gn_u32>(seed / 2 % 2);
  cfg.rounds = 12, cfg.clock_shift = 12, cfg.max_blocks = 1 + 3 * static_cast<gn_u32>(seed % 2);
  cfg.map_at = 2000 + static_cast<unsigned>(seed * 1733 % 15000);
  cfg.maps = 1 + static_cast<gn_u32>(seed / 3 % 2);
  if (seed % 3 == 1) cfg.break_ssds = 1, cfg.break_at = cfg.map_at + static_cast<unsigned>(seed * 337 % 5000);
  if (cfg.break_at && seed % 2) cfg.break_at = cfg.map_at / 2;
  cfg.async = seed % 4 == 3;
  if (!cfg.async && seed % 5 == 4) return in_one_block(cfg, Config::BLOCK, 2);
  return seed % 7 == 6 ? in_one_block(cfg, Config::WARP, 1) : cfg;
}

/// Many maps, two at a time: a write that has read the word before both finds the table of the second one.
Config tables_are_filled_again(uint64_t seed) {
  Config cfg = the_map_moves_on(seed);
  cfg.ssds = 4, cfg.replicas = 3, cfg.blocks = 1, cfg.rounds = 8, cfg.maps = 24;
  cfg.break_at = 0, cfg.map_at = 1000;
  return cfg;
}

/// Queue pairs break and are made anew, again and again, while lanes read and write. No request fails, and
/// each goes on with the stamps that it had.
Config queue_pairs_made_anew(uint64_t seed) {
  Config cfg = the_map_moves_on(seed);
  cfg.map_at = 0, cfg.maps = 1;
  cfg.breaks = 2 + static_cast<gn_u32>(seed % 8);
  cfg.break_ssds = 1 + static_cast<gn_u32>(seed / 2 % 2);
  cfg.break_at = 300 + static_cast<unsigned>(seed * 337 % 3000);
  // full queues, whose blocks are acknowledged late
  if (seed % 6 == 5) cfg.depth = 32, cfg.max_blocks = 8, cfg.chunk_shift = 0, cfg.ack_1_of = 300;
  return cfg;
}

/// Not in the list below: the host does what it must not, and ThreadSanitizer finds it.
Config a_set_filled_unread(uint64_t seed) {
  Config cfg = queue_pairs_made_anew(seed);
  cfg.fills_unread = true, cfg.breaks = 12;
  return cfg;
}

/// Not in the list below, as the next one: the host does what it must not, and that must be found.
Config a_table_in_use_is_filled(uint64_t seed) {
  Config cfg = the_map_moves_on(seed);
  cfg.fills_in_use = true, cfg.maps = 2;
  return cfg;
}

Config a_word_before_its_table(uint64_t seed) {
  Config cfg = the_map_moves_on(seed);
  cfg.word_first = true, cfg.maps = 2;
  return cfg;
}

/// One block's warps share the channel, and one warp has it alone: everything above once more.
Config one_block_shares(uint64_t seed) {
  Config (*const kinds[])(uint64_t) = {common,        full_queues,      a_small_pool,
                                       refused_reads, late_completions, one_queue_pair_breaks};
  return in_one_block(kinds[seed % 6](seed), Config::BLOCK, 3);
}

Config one_warp_alone(uint64_t seed) {
  Config cfg = in_one_block(one_block_shares(seed), Config::WARP, 1);
  cfg.rounds = 5;
  return cfg;
}

/// More commands of one warp than its queue has room for.
Config one_warp_fills_its_queue(uint64_t seed) {
  Config cfg = in_one_block(a_long_request(seed), Config::WARP, 1);
  cfg.ssds = cfg.replicas = 1, cfg.rounds = 2;
  return cfg;
}

Config threads_alone(uint64_t seed) {
  Config cfg = common(seed);
  cfg.threads_alone = true;
  return seed % 3 == 2 ? in_one_block(cfg, Config::WARP, 1) : cfg;
}

/// Requests that no thread waits for, of warps that end before them.
Config no_thread_waits(uint64_t seed) {
  Config (*const kinds[])(uint64_t) = {common, full_queues, late_completions, one_queue_pair_breaks,
                                       refused_reads};
  Config cfg = kinds[seed % 5](seed);
  cfg.async = true;
  cfg.pool_blocks = 64;
  return seed % 4 == 3 ? in_one_block(cfg, Config::WARP, 1) : cfg;
}

/// Completions come before their data: everything above once more, behind DUMPs.
Config behind_dumps(uint64_t seed) {
  Config (*const kinds[])(uint64_t) = {common,
                                       full_queues,
                                       many_doorbells,
                                       refused_reads,
                                       late_completions,
                                       reads_survive_a_queue_pair,
                                       a_long_request,
                                       all_queue_pairs_break,
                                       one_block_shares,
                                       one_warp_alone,
                                       one_warp_fills_its_queue,
                                       no_thread_waits,
                                       threads_alone,
                                       buffers_in_pieces,
                                       a_small_pool,
                                       a_growing_pool,
                                       one_queue_pair_breaks};
  Config cfg = kinds[seed % 17](seed);
  cfg.unordered = true;
  if (cfg.break_at && seed % 2) cfg.ack_1_of = 200;  // DUMPs are under way when queue pairs break
  return cfg;
}

/// Not in the list below, as the next two: it must be found.
Config completions_are_trusted(uint64_t seed) {
  Config cfg = common(seed);
  cfg.unordered = cfg.trusts = true;
  return cfg;
}

/// Not in the list below, as the next one: it must be found.
Config a_callback_that_waits(uint64_t seed) {
  Config cfg = common(seed);
  cfg.async = cfg.callback_waits = true;
  return cfg;
}

/// Not in the list below: two warps use a channel that is for one. It must be found.
Config two_warps_alone(uint64_t seed) { return in_one_block(common(seed), Config::WARP, 2); }

struct Scenario {
  const char* name;
  Config (*config)(uint64_t);
  uint64_t least = 1;   // seeds, where neither sanitizer nor store buffers take time
};
const Scenario SCENARIOS[] = {
    {"batched_reads_and_writes", batched_reads_and_writes},
    {"buffers_in_pieces", buffers_in_pieces},
    {"parts_of_fused_responses", parts_of_fused_responses},
    {"one_ssd_is_slow", one_ssd_is_slow},
    {"full_queues", full_queues},
    {"first_come_first_served", first_come_first_served},
    {"saturated_slots", saturated_slots, 8},
    {"many_doorbells", many_doorbells},
    {"a_small_pool", a_small_pool},
    {"a_growing_pool", a_growing_pool},
    {"refused_reads", refused_reads},
    {"late_completions", late_completions},
    {"one_queue_pair_breaks", one_queue_pair_breaks},
    {"reads_survive_a_queue_pair", reads_survive_a_queue_pair},
    {"all_queue_pairs_break", all_queue_pairs_break},
    {"the_map_moves_on", the_map_moves_on, 4},
    {"tables_are_filled_again", tables_are_filled_again, 2},
    {"queue_pairs_made_anew", queue_pairs_made_anew, 12},
    {"a_long_request", a_long_request},
    {"threads_alone", threads_alone},
    {"no_thread_waits", no_thread_waits},
    {"one_block_shares", one_block_shares},
    {"one_warp_alone", one_warp_alone},
    {"one_warp_fills_its_queue", one_warp_fills_its_queue},
    {"behind_dumps", behind_dumps},
};
const Scenario MISUSES[] = {{"completions_are_trusted", completions_are_trusted},
                            {"a_table_in_use_is_filled", a_table_in_use_is_filled},
                            {"a_word_before_its_table", a_word_before_its_table},
                            {"a_set_filled_unread", a_set_filled_unread},
                            {"two_warps_alone", two_warps_alone},
                            {"a_callback_that_waits", a_callback_that_waits}};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: [PATIENCE_MS=n] traffic plain|tsan|asan|weak SEEDS [SCENARIO [FIRST]]\n");
    return 2;
  }
  bool weak = strcmp(argv[1], "weak") == 0, plain = strcmp(argv[1], "plain") == 0;
  uint64_t seeds = strtoull(argv[2], nullptr, 10), first = argc > 4 ? strtoull(argv[4], nullptr, 10) : 1;
  unsigned failures = 0;
  std::vector<Scenario> scenarios(SCENARIOS, SCENARIOS + sizeof SCENARIOS / sizeof *SCENARIOS);
  for (const Scenario& s : MISUSES)
    if (argc > 3 && strcmp(argv[3], s.name) == 0) scenarios = {s};
  for (const Scenario& s : scenarios) {
    if (argc > 3 && strcmp(argv[3], s.name) != 0) continue;
    unsigned bad = 0;
    made_anew = pieced_buffers = dumped = reads_of[0] = reads_of[1] = 0;
    for (uint64_t seed = first, end = first + (plain ? std::max(seeds, s.least) : seeds);
         seed < end && bad < 2; ++seed) {
      Config cfg = s.config(seed);
      cfg.weak = weak;
      bad += !run(cfg, s.name);
    }
    if (s.config == buffers_in_pieces && !bad && !pieced_buffers)
      ++bad, printf("  no buffer came in pieces\n");
    if (s.config == the_map_moves_on && !bad && !map_refusals)
      ++bad, printf("  no command was refused because of its map\n");
    if (s.config == queue_pairs_made_anew && !bad && !made_anew)
      ++bad, printf("  no queue pair was made anew\n");
    if (s.config == behind_dumps && !bad && !dumped) ++bad, printf("  no DUMP was executed\n");
    // In turn it would be half each.
    if (s.config == one_ssd_is_slow && !bad && reads_of[1] * 3 > reads_of[0] * 2)
      ++bad, printf("  the slow SSD has %llu reads, the other %llu\n", reads_of[1], reads_of[0]);
    printf("%s %s\n", bad ? "FAILED" : "ok", s.name);
    fflush(stdout);
    failures += bad != 0;
  }
  return failures != 0;
}
