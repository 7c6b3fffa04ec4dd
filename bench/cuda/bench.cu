// SPDX-License-Identifier: Apache-2.0 OR MIT
// The load generator's kernel: a block a client, a thread a request in flight. A thread begins its next
// request when its last one has ended, until the time is over, every unit was done, or the host says stop.
//
// A unit (one request's blocks) belongs to one thread, for reading and writing: so a thread knows what each
// of its reads must find, also while others write.
#include "bench.h"
#include "machine.cuh"

namespace gn { namespace bench {

// a thread looks whether to stop at every sixteenth short request
enum : gn_u32 { ALL = 0xffffffffu, STOP_LOOKS = 16 };

// Where a block of a unit is. In pieces they are in reverse order, pages of up to 64 KiB, blocks of more: no
// two of them are neighbours.
template <bool PIECES>
GN_DEV gn_u64 block_of(gn_u64 unit, gn_u32 blocks, gn_u32 block) {
  gn_u32 shift = blocks > MOST_PIECES ? (gn_u32)PIECE_BLOCK : (gn_u32)PIECE_PAGE;
  if (PIECES) block = ((blocks - 1 - block) >> shift << shift) + (block & ((1u << shift) - 1));
  return unit + (gn_u64)block * GN_BLOCK;
}

// The same as the library is told it.
GN_DEV void tell_pieces(buffer& b, gn_u64 unit, gn_u32 blocks) {
  b.base = unit;
  b.pages = blocks;
  b.shift = blocks > MOST_PIECES ? (gn_u32)PIECE_BLOCK : (gn_u32)PIECE_PAGE;
  gn_u32 n = blocks >> b.shift;
  for (gn_u32 i = 0; i < n; ++i) b.piece[i] = (gn_u16)(n - 1 - i);
}

// Writes the pattern into a unit's buffer; the whole warp.
template <bool PIECES>
GN_DEV void fill_unit(const args& a, gn_u32 vid, gn_u64 buffer, gn_u32 vba, gn_u32 generation) {
  gn_u64 age = header_age(generation, a.seed);
  for (gn_u32 block = 0; block < a.unit_blocks; ++block) {
    gn_u64 place = header_place(vid, vba + block), pattern = pattern_of(place, age);
#pragma unroll
    for (gn_u32 s = 0; s < SECTORS; ++s) {
      gn_u32 data[4];
      piece_of(place, age, pattern, s, lane_id(), data);
      mem::st16((void*)(block_of<PIECES>(buffer, a.unit_blocks, block) + s * SECTOR + lane_id() * 16), data);
    }
  }
}

// Overwrites every header, so that a read that brings nothing cannot pass for the one before it. One thread.
GN_DEV void poison_unit(const args& a, gn_u64 buffer) {
  const gn_u32 data[4] = {0xDEADBEEFu, 0xDEADBEEFu, 0xDEADBEEFu, 0xDEADBEEFu};
  for (gn_u32 sector = 0; sector < a.unit_blocks * SECTORS; ++sector)
    mem::st16((void*)(buffer + sector * SECTOR), data);
}

GN_DEV void note_wrong(lane_result& r, gn_u64 place, gn_u32 generation, gn_u64 found0, gn_u64 found1) {
  if (r.wrong_sector != ~0ull) return;  // the first one is kept
  r.wrong_sector = place & 0xffffffffffffull;
  r.wanted = generation;
  r.found[0] = found0;
  r.found[1] = found1;
}

// Compares every header of a unit that was read. One thread; a block's headers are loaded side by side.
template <bool PIECES>
GN_DEV bool headers_right(const args& a, gn_u32 vid, lane_result& r, gn_u64 buffer, gn_u32 vba,
                          gn_u32 generation) {
  gn_u64 age = header_age(generation, a.seed);
  bool right = true;
  for (gn_u32 block = 0; block < a.unit_blocks; ++block) {
    gn_u32 data[SECTORS][4];
#pragma unroll
    for (gn_u32 s = 0; s < SECTORS; ++s)
      mem::ld16_stream((const void*)(block_of<PIECES>(buffer, a.unit_blocks, block) + s * SECTOR), data[s]);
#pragma unroll
    for (gn_u32 s = 0; s < SECTORS; ++s) {
      gn_u64 place = header_place(vid, vba + block) + s;
      gn_u64 found0 = (gn_u64)data[s][1] << 32 | data[s][0], found1 = (gn_u64)data[s][3] << 32 | data[s][2];
      if (found0 == place && found1 == age) continue;
      right = false;
      note_wrong(r, place, generation, found0, found1);
    }
  }
  return right;
}

// Compares every byte of a block; the whole warp, for the thread that gives its account. Returns the same to
// all lanes.
GN_DEV bool block_right(const args& a, gn_u32 vid, gn_u64 buffer, gn_u32 vba, gn_u32 generation) {
  gn_u64 age = header_age(generation, a.seed), place = header_place(vid, vba),
         pattern = pattern_of(place, age);
  gn_u32 data[SECTORS][4], wrong = 0;
#pragma unroll
  for (gn_u32 s = 0; s < SECTORS; ++s)
    mem::ld16_stream((const void*)(buffer + s * SECTOR + lane_id() * 16), data[s]);
#pragma unroll
  for (gn_u32 s = 0; s < SECTORS; ++s) {
    gn_u32 want[4];
    piece_of(place, age, pattern, s, lane_id(), want);
    for (gn_u32 k = 0; k < 4; ++k) wrong |= data[s][k] ^ want[k];
  }
  return !__any_sync(ALL, wrong != 0);
}

// Checks what each lane with `check` set has read; the whole warp.
template <bool PIECES>
GN_DEV void verify(const args& a, gn_u32 vid, lane_result& r, bool check, gn_u64 buffer, gn_u32 vba,
                   gn_u32 generation, gn_u32 draw) {
  bool right = !check || headers_right<PIECES>(a, vid, r, buffer, vba, generation);
  // One block of 64 in full: which ones is drawn for every unit.
  gn_u32 step = a.flags & WHOLE ? 1u : 64u, first = draw % step;
  for (gn_u32 todo = __ballot_sync(ALL, check && first < a.unit_blocks); todo; todo &= todo - 1) {
    int lane = __ffs((int)todo) - 1;
    gn_u64 from = __shfl_sync(ALL, buffer, lane);
    gn_u32 at = __shfl_sync(ALL, vba, lane), age = __shfl_sync(ALL, generation, lane);
    for (gn_u32 block = __shfl_sync(ALL, first, lane); block < a.unit_blocks; block += step) {
      bool same = block_right(a, vid, block_of<PIECES>(from, a.unit_blocks, block), at + block, age);
      if (lane_id() != (gn_u32)lane) continue;
      r.whole_blocks += 1;
      if (same) continue;
      right = false;
      gn_u64 place = header_place(vid, at + block);
      note_wrong(r, place, age, place, header_age(age, a.seed));  // its headers are right
    }
  }
  if (!check) return;
  if (right) r.verified += 1;
  else r.wrong += 1;
  if (right && (a.flags & WHOLE)) r.generations += generation;
}

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

// The same by a CPU thread: this one only asks, and looks for the answer.
GN_DEV bool pass_by_cpu(const client& me, bool begins, bool busy, gn_u32 sequence, gn_u64 started, io& x) {
  if (begins)
    mem::st_release_sys(me.requests + threadIdx.x, request_word(sequence, x.opcode == IO_WRITE, x.vba));
  bool ended = false;
  if (busy) {
    gn_u64 answer = mem::ld_acquire_sys(me.answers + threadIdx.x);
    if (answer >> 48 == (sequence & 0xffffu)) {
      x.status = (gn_u32)answer;
      x.dw0 = (gn_u32)(answer >> 32) & 0xffffu;
      ended = true;
    } else if (now_ns() - started > me.f.timeout_ns) {
      x.status = GN_TIMED_OUT;
      ended = true;
    }
  }
  if (!__any_sync(ALL, ended)) pause(100);
  return ended;
}

// A block's shared memory: its batch, and its channel.
struct shared {
  batch b;
  smem_channel room;
};

// What uses a client's channel: the warps of its block, with buffers that are contiguous or in pieces, or one
// warp alone. Or a CPU thread uses queues of its own.
enum : gn_u32 { OF_BLOCK, OF_WARP, OF_CPU, IN_PIECES_OF_BLOCK };

template <gn_u32 WHO>
GN_DEV void body(args& a, gn_u32 block, gn_u32) {
  constexpr bool PIECES = WHO == IN_PIECES_OF_BLOCK;
  batch& b = ((shared*)smem())->b;
  smem_channel& room = ((shared*)smem())->room;
  batch_init(b);
  client& me = a.clients[block];
  block_file of_block{me.f.c, me.f.v, me.f.timeout_ns};
  warp_file of_warp{me.f.c, me.f.v, me.f.timeout_ns};
  if constexpr (WHO != OF_CPU)
    if (threadIdx.x == 0) me.f.c->stamps = a.flags & STAMPS;
  if constexpr (WHO == OF_BLOCK || PIECES) of_block = load_smem(of_block, room);
  if constexpr (WHO == OF_WARP) of_warp = load_smem(of_warp, room);
  const gn_u32 vid = me.f.v->vid;
  gn_u32 lane = threadIdx.x < a.depth ? threadIdx.x : 0;
  lane_result& r = me.lanes[lane];  // a thread without work never writes to it
  // Unit u belongs to thread u mod depth.
  gn_u32 mine = threadIdx.x < a.depth && lane < a.units ? (a.units - lane - 1) / a.depth + 1 : 0;
  gn_u64 buffer = me.buffers + (gn_u64)lane * a.unit_blocks * GN_BLOCK;
  gn::buffer pieces;
  if constexpr (PIECES) tell_pieces(pieces, buffer, a.unit_blocks);
  gn_u64 state = mix64(a.seed ^ mix64((gn_u64)block << 32 | lane));
  gn_u64 timed_from = now_ns() + a.warmup_ns, until = timed_from + a.runtime_ns, started = 0;
  gn_u32 begun = 0, unit = 0, generation = 0, draw = 0;
  const gn_u32 looks = a.flags & ONCE || a.unit_blocks > 1 ? 1u : (gn_u32)STOP_LOOKS;
  bool open = mine != 0, busy = false, writes = false;
  if (open) r.first_ns = timed_from;
  if (block == 0 && threadIdx.x == 0) *a.multiprocessors = multiprocessors();
  io x;
  while (__any_sync(ALL, busy || open)) {
    if (!busy && open &&
        ((begun % looks == 0 && mem::ld_relaxed_sys(a.stop)) || now_ns() >= until ||
         (a.flags & ONCE && begun == mine)))
      open = false;
    bool begins = !busy && open;
    if (begins) {
      state += 0x9E3779B97F4A7C15ull;
      gn_u64 dice = mix64(state);
      draw = (gn_u32)dice & 0xffffu;
      gn_u32 which = a.flags & RANDOM ? (gn_u32)((dice >> 32) * mine >> 32) : begun % mine;
      writes = (((gn_u32)dice >> 16) * 100u >> 16) >= a.read_percent;
      unit = which * a.depth + lane;
      generation = me.generations[unit] + (writes ? 1u : 0u);
      begun += 1;
      if (!writes && (a.flags & VERIFY)) poison_unit(a, buffer);
    }
    for (gn_u32 todo = __ballot_sync(ALL, begins && writes && (a.flags & VERIFY)); todo; todo &= todo - 1) {
      int from = __ffs((int)todo) - 1;
      gn_u32 vba = __shfl_sync(ALL, unit, from) * a.unit_blocks;
      fill_unit<PIECES>(a, vid, __shfl_sync(ALL, buffer, from), vba, __shfl_sync(ALL, generation, from));
    }
    __syncwarp();  // the warp's stores are before each lane's command
    if (begins) {
      gn_u64 vba = (gn_u64)unit * a.unit_blocks;
      if constexpr (PIECES)
        x = io_make(*me.f.v, writes ? IO_WRITE : IO_READ, vba, a.unit_blocks, pieces, 0, me.key, 0);
      else if (writes) x = write_request(me.f, vba, a.unit_blocks, buffer, me.key);
      else x = read_request(me.f, vba, a.unit_blocks, buffer, me.key);
      x.attempt = writes ? 0 : a.replica;
      if (!writes && a.replica) x.flags = FLAG_PINNED;  // what was asked for is this replica, not the data
      started = now_ns();
      busy = true;
    }
    bool ended;
    if constexpr (WHO == OF_CPU) ended = pass_by_cpu(me, begins, busy, begun, started, x);
    else if constexpr (WHO == OF_WARP) ended = pass(b, of_warp, begins, x);
    else ended = pass(b, of_block, begins, x);
    if (ended) {
      gn_u64 now = now_ns();
      busy = false;
      if (x.status == GN_OK) {
        if (started >= timed_from) record(me, r, writes ? WRITE : READ, now - started, now);
        r.ios[writes ? WRITE : READ] += 1;
        if (writes) me.generations[unit] = generation;
      } else {
        // The end of this thread's work: what its unit holds now is not known, and after a time-out neither
        // is its buffer.
        r.status = x.status;
        r.dw0 = x.dw0;
        r.failed_vba = x.vba;
        open = false;
      }
    }
    if (a.flags & VERIFY)
      verify<PIECES>(a, vid, r, ended && x.status == GN_OK && !writes, buffer, unit * a.unit_blocks,
                     generation, draw);
  }
  if constexpr (WHO != OF_CPU) write_back(me.f, room);
}

}}  // namespace gn::bench

GN_CLIENT(gn_bench_of_block, gn::bench::args, gn::bench::body<gn::bench::OF_BLOCK>)
GN_CLIENT(gn_bench_in_pieces, gn::bench::args, gn::bench::body<gn::bench::IN_PIECES_OF_BLOCK>)
GN_CLIENT(gn_bench_of_warp, gn::bench::args, gn::bench::body<gn::bench::OF_WARP>)
GN_CLIENT(gn_bench_by_cpu, gn::bench::args, gn::bench::body<gn::bench::OF_CPU>)
