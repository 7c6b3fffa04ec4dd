// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Many warps take buffers of all sizes from a pool that grows, contiguous ones and such as may be in pieces.
// No page has two owners, none is lost, and of all threads that find the pool empty at once, one asks.
//   pool plain|tsan SEEDS [WARPS]      "ok NAME" or "FAILED NAME" a test
#include "harness.hpp"
#include "gnor/buffer.cuh"

namespace {

using namespace harness;
using namespace gn::mem;

constexpr gn_u32 MOST = 64, PAGES = MOST * POOL_PAGES, BASE_PAGE = 0x1000;

struct World {
  uint64_t seed;
  gn_u32 warps, first_blocks;
  bool refuses;
  Memory words{MOST * 4}, host{64};
  pool p{};
  std::vector<gn_u32> owner;   // of each page: 0, or the thread that has it + 1. Plain: two owners are a race
  gn_u32 ready = 0, ended = 0;
  gn_u32 twice = 0, outside = 0, failed = 0, served = 0, in_pieces = 0;
  unsigned asks = 0, wrong_asks = 0, steps = 0;
  gn_u32 answered = 0;

  World(uint64_t s, gn_u32 w)
      : seed(s), warps(w), first_blocks(1 + s % 20), refuses(s % 4 == 3), owner(PAGES, 0) {
    p = {gn_u64{BASE_PAGE} * POOL_PAGE, words.at(), host.at(), first_blocks, 7, MOST, 0};
  }
};

void user(void* arg) {
  World& w = *static_cast<World*>(arg);
  gn_u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  Rng rng(w.seed * 7919 + thread);
  const gn_u32 sizes[] = {1, 1, 1, 2, 5, 15, 16, 17, 32, 100, 256};
  for (gn_u32 round = 0; round < 2; ++round) {
    gn_u32 pages = sizes[rng.below(w.first_blocks >= 16 || !w.refuses ? 11 : 6)],
           bytes = pages * POOL_PAGE - rng.below(POOL_PAGE);
    bool any = rng.one_of(3), got;
    buffer b = {};
    if (any) {
      got = pool_alloc_buffer<by_device>(w.p, bytes, thread, b);
    } else {
      b.base = pool_alloc<by_device>(w.p, bytes, thread);
      b.pages = pages, b.shift = PIECE_ALL;
      got = b.base != 0;
    }
    if (!got) {
      add_relaxed_gpu(&w.failed, 1u);
      pause(20);
      continue;
    }
    add_relaxed_gpu(&w.served, 1u);
    if (b.shift != PIECE_ALL) add_relaxed_gpu(&w.in_pieces, 1u);
    gn_u32 of[256], outside = b.pages != pages;
    for (gn_u32 i = 0; i < pages; ++i) {
      gn_u64 at = b.at(i * POOL_PAGE);
      of[i] = static_cast<gn_u32>(at / POOL_PAGE) - BASE_PAGE;
      outside += at % POOL_PAGE || of[i] >= PAGES || b.at(i * POOL_PAGE + 77) != at + 77;
    }
    if (outside) {
      add_relaxed_gpu(&w.outside, 1u);
      continue;
    }
    for (gn_u32 i = 0; i < pages; ++i) {
      if (w.owner[of[i]]) add_relaxed_gpu(&w.twice, 1u);
      w.owner[of[i]] = thread + 1;
    }
    for (gn_u32 k = rng.below(4); k--;) pause(20);
    for (gn_u32 i = 0; i < pages; ++i) {
      if (w.owner[of[i]] != thread + 1) add_relaxed_gpu(&w.twice, 1u);
      w.owner[of[i]] = 0;
    }
    if (any) pool_free_buffer<by_device>(w.p, b);
    else pool_free<by_device>(w.p, b.base, pages * POOL_PAGE);
  }
}

/// One thread: small buffers come from blocks that are split already, and a held block is not handed out.
void careful_user(void* arg) {
  World& w = *static_cast<World*>(arg);
  if (threadIdx.x) return;
  auto page = [&](gn_u32 hint) { return pool_alloc<by_device>(w.p, POOL_PAGE, hint); };
  auto block_of = [&](gn_u64 at) { return (at - w.p.base) / POOL_BLOCK; };
  gn_u64 first = page(5 * POOL_PAGES), beside = page(3 * POOL_PAGES),
         run = pool_alloc<by_device>(w.p, 3 * POOL_PAGE, 4 * POOL_PAGES);
  if (block_of(first) != 5 || block_of(beside) != 5 || block_of(run) != 5) add_relaxed_gpu(&w.outside, 1u);
  pool_hold<by_device>(w.p, beside, POOL_PAGE, POOL_HELD);
  pool_free<by_device>(w.p, beside, POOL_PAGE);
  gn_u64 elsewhere = page(5 * POOL_PAGES);
  if (block_of(elsewhere) == 5) add_relaxed_gpu(&w.twice, 1u);
  pool_hold<by_device>(w.p, beside, POOL_PAGE, 0u - POOL_HELD);
  gn_u64 again = page(5 * POOL_PAGES);
  if (block_of(again) != 5) add_relaxed_gpu(&w.outside, 1u);
  pool_free<by_device>(w.p, run, 3 * POOL_PAGE);
  for (gn_u64 at : {first, elsewhere, again}) pool_free<by_device>(w.p, at, POOL_PAGE);
  add_relaxed_gpu(&w.served, 1u);
}

/// One thread, in a pool in which every second page is taken, and every second one of the other blocks.
/// Buffers come in pieces or not at all.
void patient_user(void* arg) {
  World& w = *static_cast<World*>(arg);
  if (threadIdx.x) return;
  auto words = reinterpret_cast<gn_u32*>(w.words.p);
  gn_u32 bad = 0;
  buffer b;
  auto takes = [&](gn_u32 pages) { return pool_alloc_buffer<by_device>(w.p, pages * POOL_PAGE, 3, b); };
  for (gn_u32 i = 0; i < w.p.blocks; ++i)
    words[i] = i % 4 == 0 ? 0u : i % 4 == 2 ? (gn_u32)POOL_WHOLE : 0x5555u;
  std::vector<gn_u32> before(words, words + MOST);
  bad += !takes(16) || b.shift != PIECE_ALL;  // a block: contiguous comes first
  pool_free_buffer<by_device>(w.p, b);
  bad += !takes(64) || b.shift != PIECE_BLOCK || b.at(16 * POOL_PAGE) == b.at(0) + POOL_BLOCK;
  buffer page;
  bad += !pool_alloc_buffer<by_device>(w.p, 2 * POOL_PAGE, 0, page) || page.shift != PIECE_PAGE ||
         page.at(POOL_PAGE) != page.at(0) + 2 * POOL_PAGE;
  pool_free_buffer<by_device>(w.p, page);
  bad += takes(80) || b.pages;  // four blocks are free, not five; what was taken of them is back
  for (gn_u32 i = 0; i < w.p.blocks; i += 4) bad += words[i] != POOL_WHOLE, words[i] = 0;
  for (gn_u32 i = 0; i < MOST; ++i) bad += words[i] != before[i], words[i] = 0;
  // The test counts the parts while it cuts them.
  for (gn_u32 seed = 0; seed < 4000; ++seed) {
    Rng rng(seed);
    b.shift = rng.below(3) * 4;
    gn_u32 first = rng.below(256), vba = rng.below(600), chunk = rng.below(9), sent = rng.below(257),
           parts = sent != 0;
    for (gn_u32 k = 1; k < sent; ++k)
      parts += (vba + k) % (1u << chunk) == 0 || (first + k) % (1u << b.shift) == 0;
    bad += parts != parts_of(b, first, vba, chunk, sent);
  }
  // Pages beyond the range of a piece's number must not be mistaken for others.
  std::vector<gn_u32> far(0x1000 + 16, 0xffffu);
  for (gn_u32 i = 0x1000; i < far.size(); ++i) far[i] = 0x5555u;
  pool large = {w.p.base, reinterpret_cast<gn_u64>(far.data()), 0, static_cast<gn_u32>(far.size()),
                7,        static_cast<gn_u32>(far.size()),      0};
  bad += pool_alloc_buffer<by_device>(large, 2 * POOL_PAGE, 0, b);
  far[0xfff] = 0x5555u;
  bad += !pool_alloc_buffer<by_device>(large, 8 * POOL_PAGE, 0, b) ||
         b.at(7 * POOL_PAGE) != large.base + 0x10000ull * POOL_PAGE - POOL_PAGE;
  if (bad) add_relaxed_gpu(&w.outside, bad);
  add_relaxed_gpu(&w.served, 1u);
}

/// Lanes and warps in step want more pieces than there are. Some of them always get theirs, and a single warp
/// gets all there are.
void users_in_step(void* arg) {
  World& w = *static_cast<World*>(arg);
  auto words = reinterpret_cast<gn_u32*>(w.words.p);
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    for (gn_u32 i = 0; i < w.p.blocks; ++i) words[i] = 0x5555u;
    st_release_gpu(&w.ready, 1u);
  }
  while (!ld_acquire_gpu(&w.ready)) pause(20);
  __syncwarp();
  gn_u32 room = w.p.blocks / 2;  // for buffers of 16 pages
  for (gn_u32 round = 0; round < 10; ++round) {
    buffer b;
    bool got = false;
    // As gn::alloc does it: the lanes of a warp one after the other.
    for (gn_u32 todo = __ballot_sync(~0u, true); todo; todo &= todo - 1) {
      if (lane_id() == lowest(todo)) got = pool_alloc_buffer<by_device>(w.p, POOL_BLOCK, 0, b);
      __syncwarp();
    }
    gn_u32 served = (gn_u32)__popc(__ballot_sync(~0u, got));
    if (lane_id() == 0) add_relaxed_gpu(&w.served, served);
    if (w.warps == 1 && served != room) add_relaxed_gpu(&w.outside, 1u);
    if (got) pool_free_buffer<by_device>(w.p, b);
    __syncwarp();
  }
  if (add_acqrel_gpu(&w.ended, 1u) + 1 == w.warps * 32) {
    for (gn_u32 i = 0; i < w.p.blocks; ++i) w.outside += words[i] != 0x5555u, words[i] = 0;
    w.outside += w.p.asked >= GATHERING;
  }
}

bool host_turn(void* arg) {
  World& w = *static_cast<World*>(arg);
  if (++w.steps % 16) return false;
  pool_host& words = *reinterpret_cast<pool_host*>(w.p.host_addr);
  gn_u32 asked = __atomic_load_n(&words.asked, __ATOMIC_ACQUIRE);
  if (asked == w.answered) return false;
  ++w.asks;
  if (asked <= w.answered || asked > MOST || asked > 2 * (w.answered ? w.answered : w.first_blocks))
    ++w.wrong_asks;
  w.answered = asked;
  if (!w.refuses) __atomic_store_n(&words.granted, asked, __ATOMIC_RELEASE);
  return true;
}

gn_u64 in_pieces_at_all = 0;

bool run(uint64_t seed, gn_u32 warps, simt::Body body = user) {
  World w(seed, warps);
  // A run has at most 16,384 lanes: of very many warps each has half of its own.
  simt::Grid grid = {warps, warps > 500 ? 16u : 32u, 0, body, &w, nullptr, nullptr};
  simt::Region visible = {w.host.p, w.host.bytes};
  simt::Options o;
  o.seed = seed;
  o.preempt = body == users_in_step ? 1 : seed % 3 ? 4 : 2;
  o.deadline_ns = 100000 * 1000000ull;
  o.abort_run = [](void*, const char*) {};
  simt::Stats s = simt::run(&grid, 1, o, {&visible, 1}, {host_turn, &w});
  in_pieces_at_all += w.in_pieces;
  gn_u32 left = 0;
  for (gn_u32 b = 0; b < MOST; ++b) left += reinterpret_cast<gn_u32*>(w.words.p)[b] != 0;
  // At most one request for each doubling: from one block to 64 there are six. Of 120 tries, with room for
  // two at a time, 28 were served; if all may gather at once, 4.
  bool in_step = body != users_in_step || w.served >= 15;
  bool good = in_step && !s.failed && !left && !w.twice && !w.outside && !w.wrong_asks && w.asks <= 6 &&
              w.served && !(w.refuses && w.p.blocks != w.first_blocks);
  if (!good)
    printf(
        "  seed %llu, %u warps: left %u, twice %u, outside %u, served %u, failed %u, asks %u (%u bad), "
        "blocks %u %s\n",
        static_cast<unsigned long long>(seed), warps, left, w.twice, w.outside, w.served, w.failed, w.asks,
        w.wrong_asks, w.p.blocks, s.failed ? s.message : "");
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: pool plain|tsan SEEDS [WARPS]\n");
    return 2;
  }
  uint64_t seeds = strtoull(argv[2], nullptr, 10);
  gn_u32 warps = argc > 3 ? static_cast<gn_u32>(strtoul(argv[3], nullptr, 10)) : 4;
  // pools of 16 blocks, and one of 4
  unsigned bad = !run(15, 1, careful_user) + !run(15, 1, patient_user) + !run(15, 1, users_in_step) +
                 !run(3, 12, users_in_step);
  for (uint64_t seed = 1; seed <= seeds && bad < 2; ++seed) bad += !run(seed, warps);
  if (!bad && !in_pieces_at_all) ++bad, printf("  no buffer came in pieces\n");
  printf("%s pool_of_%u_warps\n", bad ? "FAILED" : "ok", warps);
  return bad != 0;
}
