// SPDX-License-Identifier: Apache-2.0 OR MIT
// A lane of a client: its request, the buffer of the request, and a look at the result.
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

/// The request must not move until it has ended.
io request_of(Harness& r, const Lane& lane) {
  gn_u32 opcode = lane.write ? IO_WRITE : IO_READ;
  io_range at = {lane.vba, lane.blocks};
  return r.cfg.fragments ? io_make(r.v, opcode, at, io_pages{lane.data, lane.first, POOL_KEY}, 0)
                         : io_make(r.v, opcode, at, io_memory{lane.data.base, POOL_KEY}, 0);
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

}  // namespace
