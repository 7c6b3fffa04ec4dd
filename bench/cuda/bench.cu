// SPDX-License-Identifier: Apache-2.0 OR MIT
// The load generator's kernel: a block for each client, a thread for each request in flight. A thread begins
// its next request when its last one has ended. It ends when the time is over, every unit is done, or the
// host says stop. With a limited rate it also waits for a start of its client's schedule.
//
// A unit (one request's blocks) belongs to one thread, for reading and writing. So a thread knows what each
// of its reads must find, also while others write.
#include "bench.h"
#include "machine.cuh"
#include "pace.cuh"
#include "verify.cuh"

namespace gn { namespace bench {

// a thread looks whether to stop at every sixteenth short request
enum : gn_u32 { STOP_LOOKS = 16 };

GN_DEV void record(const client& me, lane_result& r, gn_u32 op, gn_u64 ns, gn_u64 now) {
  mem::add_relaxed_gpu(&me.histograms[op * BUCKETS + bucket_of(ns)], (gn_u64)1);
  r.sum_ns[op] += ns;
  if (ns > r.max_ns[op]) r.max_ns[op] = ns;
  r.last_ns = now;
}

// One pass of this thread's request through the batched API; the whole warp. True once, when it has ended.
template <class S>
GN_DEV bool pass(batch& b, const file_of<S>& f, bool begins, io& x) {
  if (begins) enter(b, f);
  submit(b, f, x);
  commit(b, f, x);
  poll(f);
  return dispatch(b, f, x);
}

// A block's shared memory: its batch, its channel and its schedule.
struct shared {
  batch b;
  smem_channel room;
  schedule starts;
};

// What uses a client's channel: the warps of its block, with buffers that are contiguous or in pieces, or one
// warp alone. Or a CPU thread uses queues of its own.
enum : gn_u32 { OF_BLOCK, OF_WARP, OF_CPU, IN_PIECES_OF_BLOCK };

// A thread's work: the units that belong to it, and its request.
struct worker {
  lane_result& r;          // a thread without work never writes to it
  gn_u64 buffer = 0;
  gn_u64 random = 0;       // state of its generator
  gn_u64 timed_from = 0;   // end of the warm-up
  gn_u64 until = 0;        // from here on no request begins
  gn_u64 started = 0;      // when its request began; with a limited rate, when it was due
  gn_u64 issued = 0;       // when its request began
  gn_u32 lane = 0, units = 0;
  gn_u32 begun = 0;        // requests so far
  gn_u32 unit = 0, generation = 0, draw = 0;
  bool open = false;       // may begin more
  bool has_start = false;  // waits for a start that it has taken
  bool busy = false;       // has a request in flight
  bool writes = false;
};

GN_DEV worker worker_of(const args& a, const client& me, gn_u32 block, gn_u64 begin) {
  gn_u32 lane = threadIdx.x < a.depth ? threadIdx.x : 0;
  worker w{me.lanes[lane]};
  w.lane = lane;
  // Unit u belongs to thread u mod depth.
  w.units = threadIdx.x < a.depth && lane < a.units ? (a.units - lane - 1) / a.depth + 1 : 0;
  w.buffer = me.buffers + (gn_u64)lane * a.unit_blocks * GN_BLOCK;
  w.random = mix64(a.seed ^ mix64((gn_u64)block << 32 | lane));
  w.timed_from = begin + a.warmup_ns;
  w.until = w.timed_from + a.runtime_ns;
  w.open = w.units != 0;
  if (w.open) w.r.first_ns = w.timed_from;
  return w;
}

// Whether the thread, which has no request in flight, may begin one now. Closes it when it may begin no more.
GN_DEV bool may_begin(const args& a, schedule& s, worker& w) {
  const gn_u32 looks = a.interval || a.flags & ONCE || a.unit_blocks > 1 ? 1u : (gn_u32)STOP_LOOKS;
  gn_u64 now = now_ns();
  if ((w.begun % looks == 0 && mem::ld_relaxed_sys(a.stop)) || now >= w.until ||
      (a.flags & ONCE && w.begun == w.units)) {
    w.open = false;
    return false;
  }
  if (!a.interval) return true;
  if (!w.has_start) {
    w.started = take_start(a, s, w.writes);
    w.has_start = true;
    if (w.started >= w.until) w.open = false;
  }
  return w.open && now >= w.started;
}

// Draws the thread's next request.
GN_DEV void choose(const args& a, const client& me, worker& w) {
  w.random += 0x9E3779B97F4A7C15ull;
  gn_u64 dice = mix64(w.random);
  w.draw = (gn_u32)dice & 0xffffu;
  gn_u32 which = a.flags & RANDOM ? (gn_u32)((dice >> 32) * w.units >> 32) : w.begun % w.units;
  if (!a.interval) w.writes = (((gn_u32)dice >> 16) * 100u >> 16) >= a.read_percent;
  w.unit = which * a.depth + w.lane;
  w.generation = me.generations[w.unit] + (w.writes ? 1u : 0u);
  w.begun += 1;
  w.has_start = false;
  if (!w.writes && (a.flags & VERIFY)) poison_unit(a, w.buffer);
}

// Writes the pattern into the buffers of all lanes with `begins` set, if their requests write. The whole warp
// calls it.
template <bool PIECES>
GN_DEV void fill_units(const args& a, gn_u32 vid, const worker& w, bool begins) {
  gn_u32 todo = __ballot_sync(ALL, begins && w.writes && (a.flags & VERIFY));
  for (; todo; todo &= todo - 1) {
    int from = __ffs((int)todo) - 1;
    gn_u32 vba = __shfl_sync(ALL, w.unit, from) * a.unit_blocks;
    fill_unit<PIECES>(a, {__shfl_sync(ALL, w.buffer, from), vid, vba, __shfl_sync(ALL, w.generation, from)});
  }
  __syncwarp();  // the warp's stores are before each lane's command
}

// Builds the thread's request.
template <bool PIECES>
GN_DEV void make(const args& a, const client& me, worker& w, const gn::buffer& pieces, io& x) {
  gn_u64 vba = (gn_u64)w.unit * a.unit_blocks;
  if constexpr (PIECES)
    x = io_make(*me.f.v, w.writes ? IO_WRITE : IO_READ, {vba, a.unit_blocks}, io_pages{pieces, 0, me.key}, 0);
  else if (w.writes) x = write_request(me.f, vba, a.unit_blocks, w.buffer, me.key);
  else x = read_request(me.f, vba, a.unit_blocks, w.buffer, me.key);
  x.attempt = w.writes ? 0 : a.replica;
  if (!w.writes && a.replica) x.flags = FLAG_PINNED;  // what was asked for is this replica, not the data
  w.issued = now_ns();
  if (!a.interval) w.started = w.issued;
  w.busy = true;
}

// The same as `pass` with a CPU thread: this thread only posts the request, and polls for the answer.
GN_DEV bool pass_by_cpu(const client& me, const worker& w, bool begins, io& x) {
  if (begins)
    mem::st_release_sys(me.requests + threadIdx.x, request_word(w.begun, x.opcode == IO_WRITE, x.vba));
  bool ended = false;
  if (w.busy) {
    gn_u64 answer = mem::ld_acquire_sys(me.answers + threadIdx.x);
    if (answer >> 48 == (w.begun & 0xffffu)) {
      x.status = (gn_u32)answer;
      x.dw0 = (gn_u32)(answer >> 32) & 0xffffu;
      ended = true;
    } else if (now_ns() - w.issued > me.f.timeout_ns) {
      x.status = GN_TIMED_OUT;
      ended = true;
    }
  }
  if (!__any_sync(ALL, ended)) pause(100);
  return ended;
}

// Books a request that has ended.
GN_DEV void account(const client& me, worker& w, const io& x) {
  gn_u64 now = now_ns();
  gn_u32 op = w.writes ? WRITE : READ;
  w.busy = false;
  if (x.status == GN_OK) {
    if (w.started >= w.timed_from) record(me, w.r, op, now - w.started, now);
    w.r.ios[op] += 1;
    if (w.writes) me.generations[w.unit] = w.generation;
    return;
  }
  // The end of this thread's work: what its unit holds now is not known, and after a time-out neither is its
  // buffer.
  w.r.status = x.status;
  w.r.dw0 = x.dw0;
  w.r.failed_vba = x.vba;
  w.open = false;
}

template <gn_u32 WHO>
GN_DEV void body(args& a, gn_u32 block, gn_u32) {
  constexpr bool PIECES = WHO == IN_PIECES_OF_BLOCK;
  shared& s = *(shared*)smem();
  batch_init(s.b);
  client& me = a.clients[block];
  block_file of_block{me.f.c, me.f.v, me.f.timeout_ns};
  warp_file of_warp{me.f.c, me.f.v, me.f.timeout_ns};
  if constexpr (WHO != OF_CPU)
    if (threadIdx.x == 0) me.f.c->stamps = a.flags & STAMPS;
  if constexpr (WHO == OF_BLOCK || PIECES) of_block = load_smem(of_block, s.room);
  if constexpr (WHO == OF_WARP) of_warp = load_smem(of_warp, s.room);
  if (block == 0 && threadIdx.x == 0) *a.multiprocessors = multiprocessors();
  schedule_init(s.starts);
  const gn_u32 vid = me.f.v->vid;
  worker w = worker_of(a, me, block, s.starts.begin);
  gn::buffer pieces;
  if constexpr (PIECES) tell_pieces(pieces, w.buffer, a.unit_blocks);
  io x;
  while (__any_sync(ALL, w.busy || w.open)) {
    bool begins = !w.busy && w.open && may_begin(a, s.starts, w);
    if (begins) choose(a, me, w);
    fill_units<PIECES>(a, vid, w, begins);
    if (begins) make<PIECES>(a, me, w, pieces, x);
    bool ended;
    if constexpr (WHO == OF_CPU) ended = pass_by_cpu(me, w, begins, x);
    else if constexpr (WHO == OF_WARP) ended = pass(s.b, of_warp, begins, x);
    else ended = pass(s.b, of_block, begins, x);
    if (ended) account(me, w, x);
    if (a.flags & VERIFY)
      verify<PIECES>(a, w.r, ended && x.status == GN_OK && !w.writes,
                     {w.buffer, vid, w.unit * a.unit_blocks, w.generation}, w.draw);
    if (a.interval && !__any_sync(ALL, w.busy)) pause(100);  // all wait for their starts
  }
  if constexpr (WHO != OF_CPU) write_back(me.f, s.room);
}

}}  // namespace gn::bench

GN_CLIENT(gn_bench_of_block, gn::bench::args, gn::bench::body<gn::bench::OF_BLOCK>)
GN_CLIENT(gn_bench_in_pieces, gn::bench::args, gn::bench::body<gn::bench::IN_PIECES_OF_BLOCK>)
GN_CLIENT(gn_bench_of_warp, gn::bench::args, gn::bench::body<gn::bench::OF_WARP>)
GN_CLIENT(gn_bench_by_cpu, gn::bench::args, gn::bench::body<gn::bench::OF_CPU>)
