// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// run(): lays out grids, blocks, warps and lanes, gives each lane a stack, schedules until the last grid has
// ended.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rt.hpp"

namespace simt {
namespace rt {
namespace {

constexpr size_t GUARD = 4096;
constexpr unsigned char SMEM_POISON = 0xa5;

void* zeroed(size_t count, size_t size) {
  void* p = calloc(count ? count : 1, size);
  if (!p) {
    fputs("simt: out of memory\n", stderr);
    abort();
  }
  return p;
}

/// What a lane needs from the system: a stack above a guard page and, under ThreadSanitizer, a fiber, whose
/// creation is slow. A thread keeps its last set: tests run many seeds.
struct LanePool {
  char* base = nullptr;
  void** fibers = nullptr;   // created when first used
  size_t count = 0, each = 0;

  ~LanePool() { unmap(); }

  void unmap() {
    if (!base) return;
    destroy_fibers();
    free(fibers);
    munmap(base, count * each);
    base = nullptr;
    count = 0;
  }

  void map(size_t want, size_t stack_bytes) {
    if (count >= want && each == stack_bytes + GUARD) return;
    unmap();
    each = stack_bytes + GUARD;
    void* p = mmap(nullptr, want * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) {
      fprintf(stderr, "simt: no memory for %zu stacks of %zu bytes\n", want, stack_bytes);
      abort();
    }
    base = static_cast<char*>(p);
    count = want;
    for (size_t i = 0; i < count; ++i) mprotect(base + i * each, GUARD, PROT_NONE);
    fibers = static_cast<void**>(zeroed(count, sizeof(void*)));
  }

  char* stack(size_t i) { return base + i * each + GUARD; }

  /// Null without ThreadSanitizer.
  void* tsan_fiber(size_t i) {
    if (!fibers[i] && __tsan_create_fiber) fibers[i] = __tsan_create_fiber(0);
    return fibers[i];
  }

  void destroy_fibers() {
    for (size_t i = 0; i < count; ++i) {
      if (fibers[i]) __tsan_destroy_fiber(fibers[i]);
      fibers[i] = nullptr;
    }
  }

  /// Dropped lanes leave their frames behind: marks of AddressSanitizer's, a call stack of ThreadSanitizer's.
  void forget_frames() {
    destroy_fibers();
    if (!__asan_unpoison_memory_region) return;
    for (size_t i = 0; i < count; ++i) __asan_unpoison_memory_region(stack(i), each - GUARD);
  }

  void swap(LanePool& other) {
    LanePool mine;
    mine.take(*this);
    take(other);
    other.take(mine);
  }

 private:
  void take(LanePool& from) {
    base = from.base, fibers = from.fibers, count = from.count, each = from.each;
    from.base = nullptr, from.fibers = nullptr, from.count = 0;
  }
};

thread_local LanePool kept_pool;

/// Takes the pool that the thread keeps, for one run. A run inside a host step finds none and maps its own.
struct PoolInUse : LanePool {
  PoolInUse() { swap(kept_pool); }
  ~PoolInUse() {
    if (!kept_pool.base) swap(kept_pool);
  }
};

unsigned warps_per_block(const Grid& g) { return (g.block + WARP - 1) / WARP; }

/// The number of lanes, or 0 after a failure was noted.
unsigned check_arguments(Sim& s, const Grid* grids, size_t ngrids) {
  uint64_t lanes = 0;
  if (!ngrids) fail_run(s, FAIL_ARGUMENT, "no grid to run");
  for (size_t i = 0; i < ngrids && !s.stats.failed; ++i) {
    const Grid& g = grids[i];
    if (!g.grid || !g.block || g.block > MAX_BLOCK || !g.body)
      fail_run(s, FAIL_ARGUMENT,
               "grid %zu of %u blocks of %u lanes: needs a body, a block, and 1 to %u lanes a block", i,
               g.grid, g.block, MAX_BLOCK);
    lanes += static_cast<uint64_t>(g.grid) * g.block;
    if (!s.stats.failed && lanes > MAX_LANES)
      fail_run(s, FAIL_ARGUMENT, "more than %u lanes in one run: use smaller grids", MAX_LANES);
  }
  if (!s.stats.failed && s.options.weak && !weak_available())
    fail_run(s, FAIL_ARGUMENT, "the weak mode cannot be combined with ThreadSanitizer");
  if (!s.stats.failed && s.options.stack < 16384)
    fail_run(s, FAIL_ARGUMENT, "a lane's stack needs at least 16384 bytes, not %zu", s.options.stack);
  return s.stats.failed ? 0 : static_cast<unsigned>(lanes);
}

void start_lane(Sim& s, Lane* l, LanePool& pool, size_t pool_index, size_t grid_index) {
  l->stack = pool.stack(pool_index);
  l->sp = new_context(l->stack, s.options.stack, lane_entry);
  if (s.options.weak) l->buffer = static_cast<StoreBuffer*>(zeroed(1, sizeof(StoreBuffer)));
  l->tsan_fiber = pool.tsan_fiber(pool_index);
  if (l->tsan_fiber) {
    char name[48];
    snprintf(name, sizeof name, "g%zu b%u t%u", grid_index, l->block.x, l->thread.x);
    __tsan_set_fiber_name(l->tsan_fiber, name);
  }
  ++s.live;
  make_runnable(s, l);
}

void* shared_memory(size_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, 16, bytes ? bytes : 1)) abort();
  memset(p, SMEM_POISON, bytes);
  return p;
}

/// Fills the arrays in the order grid, block, warp, lane.
void lay_out(Sim& s, LanePool& pool) {
  Block* b = s.blocks;
  Warp* w = s.warps;
  Lane* l = s.lanes;
  size_t pool_index = 0;
  for (size_t gi = 0; gi < s.ngrids; ++gi) {
    const Grid& spec = *s.grids[gi].spec;
    s.grids[gi].live = spec.grid * spec.block;
    for (unsigned bi = 0; bi < spec.grid; ++bi, ++b) {
      b->grid = &s.grids[gi];
      b->lanes = l;
      b->nlanes = warps_per_block(spec) * WARP;
      b->live = spec.block;
      b->smem = static_cast<unsigned char*>(shared_memory(spec.smem));
      for (unsigned t = 0; t < b->nlanes; ++t, ++l) {
        if (t % WARP == 0) {
          w = &s.warps[(l - s.lanes) / WARP];
          w->block = b;
          w->lanes = l;
        }
        l->thread = {t, 0, 0};
        l->block = {bi, 0, 0};
        l->block_dim = {spec.block, 1, 1};
        l->grid_dim = {spec.grid, 1, 1};
        l->smem = b->smem;
        l->sim = &s;
        l->warp = w;
        l->index = static_cast<unsigned>(l - s.lanes);
        l->bit = 1u << t % WARP;
        l->run_slot = NOT_RUNNABLE;
        l->ended = t >= spec.block;   // the rest of the last warp
        if (l->ended) continue;
        w->live |= l->bit;
        start_lane(s, l, pool, pool_index++, gi);
      }
    }
  }
}

void allocate(Sim& s, const Grid* grids, size_t ngrids) {
  size_t nwarps = 0;
  for (size_t i = 0; i < ngrids; ++i) {
    s.nblocks += grids[i].grid;
    nwarps += static_cast<size_t>(grids[i].grid) * warps_per_block(grids[i]);
  }
  s.nlanes = static_cast<unsigned>(nwarps * WARP);
  s.ngrids = ngrids;
  s.grids = static_cast<GridState*>(zeroed(ngrids, sizeof(GridState)));
  s.blocks = static_cast<Block*>(zeroed(s.nblocks, sizeof(Block)));
  s.warps = static_cast<Warp*>(zeroed(nwarps, sizeof(Warp)));
  s.runnable = static_cast<unsigned*>(zeroed(s.nlanes, sizeof(unsigned)));
  size_t lane_bytes = s.nlanes * sizeof(Lane);
  void* lanes = nullptr;
  if (posix_memalign(&lanes, alignof(Lane), lane_bytes)) abort();
  memset(lanes, 0, lane_bytes);
  s.lanes = static_cast<Lane*>(lanes);
  for (size_t i = 0; i < ngrids; ++i) s.grids[i].spec = &grids[i];
}

void release(Sim& s) {
  for (unsigned i = 0; i < s.nlanes; ++i) free(s.lanes[i].buffer);
  for (unsigned i = 0; i < s.nblocks; ++i) free(s.blocks[i].smem);
  free(s.lanes);
  free(s.runnable);
  free(s.warps);
  free(s.blocks);
  free(s.grids);
}

void schedule(Sim& s) {
  while (s.live && !s.stats.failed) {
    if (s.host.step) s.host.step(s.host.arg);
    if (!s.nrunnable) {
      fail_run(s, FAIL_DEADLOCK, "deadlock: every lane waits for others");
      return;
    }
    enter_lane(s, pick(s));
    GridState* ended = s.just_ended;
    s.just_ended = nullptr;
    if (ended && ended->spec->on_done) {
      tsan_acquire(&ended->end_order);
      ended->spec->on_done(ended->spec->done_arg);
    }
  }
  // The host's last look at what the lanes left; before run() returns, which orders everything.
  if (s.host.step && !s.stats.failed) s.host.step(s.host.arg);
}

/// Two sweeps over all lanes at least, or lanes that found nothing yet would count as idle.
unsigned idle_limit(const Sim& s, unsigned lanes) {
  if (s.host.step || !s.options.idle_yields) return 0;
  return s.options.idle_yields > 2 * lanes ? s.options.idle_yields : 2 * lanes;
}

/// The actions of dropped lanes precede the end of run(), too. These lanes cannot report that any more, so
/// their fibers do it for ThreadSanitizer.
void release_dropped_lanes(Sim& s) {
  if (!s.tsan_fiber) return;
  for (unsigned i = 0; i < s.nlanes; ++i) {
    if (s.lanes[i].ended) continue;
    tsan_switch(s.lanes[i].tsan_fiber);
    tsan_release(&s.end_order);
  }
  tsan_switch(s.tsan_fiber);
}

void run_checked(Sim& s, const Grid* grids, size_t ngrids, unsigned lanes) {
  PoolInUse pool;
  pool.map(lanes, s.options.stack);
  allocate(s, grids, ngrids);
  if (__tsan_get_current_fiber) s.tsan_fiber = __tsan_get_current_fiber();
  lay_out(s, pool);
  tsan_release(&s.start_order);
  s.idle_limit = idle_limit(s, lanes);
  s.until_housekeeping = HOUSEKEEPING_SWITCHES;
  if (s.options.deadline_ns) s.deadline_at_ns = monotonic_ns() + s.options.deadline_ns;

  schedule(s);

  if (s.stats.failed) {
    release_dropped_lanes(s);
    report_failure(s);
    pool.forget_frames();
  }
  tsan_acquire(&s.end_order);
  release(s);
}

}  // namespace
}  // namespace rt

bool weak_available() { return !__tsan_create_fiber; }

Stats run(const Grid* grids, size_t ngrids, const Options& options, Visible visible, Host host) {
  rt::Sim s{};
  s.options = options;
  s.options.stack = (options.stack + 4095) & ~size_t{4095};   // guards must lie on page borders
  s.visible = visible;
  s.host = host;
  s.rng = (options.seed + 1) * 0x9e3779b97f4a7c15u | 1;
  for (int warm_up = 0; warm_up < 8; ++warm_up) rt::random_bits(s);

  if (cur) {
    rt::fail_run(s, FAIL_ARGUMENT, "run() called by a lane");
    rt::report_failure(s);
    return s.stats;
  }
  unsigned lanes = rt::check_arguments(s, grids, ngrids);
  if (lanes)
    rt::run_checked(s, grids, ngrids, lanes);
  else
    rt::report_failure(s);
  return s.stats;
}

}  // namespace simt
