// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// How a test or a host process runs device code on the CPU: describe the grids, call simt::run().
//
//     caller ──run()──> scheduler ──switch──> lane fiber ──pause / collective / atomic──> another lane
//                          │  ^                                                              │
//                          v  └──────────────── all wait, a lane ended, host's turn ─────────┘
//                       HostStep, Grid::on_done
//
// Every lane (CUDA thread) is a fiber; all lanes of one run share the OS thread that called run(). Several OS
// threads may each have a run of their own. Nothing here knows gnstor; it knows CUDA's execution model.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace simt {

/// One lane's program; called once per lane.
typedef void (*Body)(void* arg);

/// One non-blocking step of the CPU side, called between lane steps in the scheduler's context.
/// The result is informative only: true when the step did something.
typedef bool (*HostStep)(void* arg);

/// A one-dimensional grid. All grids of a run are resident at once, as on a GPU with room for them.
struct Grid {
  unsigned grid;            ///< blocks
  unsigned block;           ///< lanes a block, at most MAX_BLOCK
  size_t smem;              ///< bytes of dynamic shared memory a block; starts as 0xA5, never as zeroes
  Body body;
  void* arg;
  void (*on_done)(void*);   ///< may be null; called without a lane, after this grid's last lane has ended
  void* done_arg;
};

/// Memory that the host or a device on the bus can see. Accesses narrower than sys, and read-modify-writes
/// (over PCIe they are not atomic with the CPU), are errors there.
struct Region {
  const void* lo;
  size_t len;
};

/// The regions of a run.
struct Visible {
  const Region* regions = nullptr;
  size_t count = 0;
};

/// The CPU side that a run steps. Without a step other OS threads may be the peers.
struct Host {
  HostStep step = nullptr;
  void* arg = nullptr;
};

/// Blocks of a grid, and lanes of a block.
struct Shape {
  unsigned grid, block;
};

enum Failure : unsigned {
  FAIL_NONE = 0,
  FAIL_ARGUMENT = 1,   ///< run() was asked for something impossible
  FAIL_MISUSE = 2,     ///< device code broke a CUDA rule, or a scope is too narrow
  FAIL_DEADLOCK = 3,   ///< every lane waits in a collective that cannot complete
  FAIL_LIVELOCK = 4,   ///< Options::max_steps used up
  FAIL_DEADLINE = 5,   ///< Options::deadline_ns exceeded
};

struct Options {
  uint64_t seed = 1;
  unsigned preempt = 8;  ///< switch at 1 of N memory accesses; 1 = at each; 0 = only where a lane waits
  bool weak = false;  ///< store buffers: stores show late, relaxed ones out of order (not with TSan)
  unsigned idle_yields = 256;  ///< fruitless pauses before the OS thread offers its CPU; 0 = never
  uint64_t max_steps = UINT64_MAX;    ///< more lane switches asked for than this: livelock
  uint64_t deadline_ns = 0;           ///< wall-clock limit of the run; 0 = none
  size_t stack = 128 << 10;           ///< bytes a lane
  /// Called with the report before the default action (print it, _exit 71 on deadlock, 70 on all else).
  void (*on_fail)(const char* report) = nullptr;
  /// When set, a failure ends the run and not the process: called once with the report, then run() returns
  /// with Stats::failed. Lanes are dropped where they stand; no destructor of theirs runs.
  void (*abort_run)(void* arg, const char* report) = nullptr;
  void* abort_arg = nullptr;
};

struct Stats {
  uint64_t yields;       ///< pauses and preemptions
  uint64_t switches;     ///< fiber switches into a lane
  uint64_t os_yields;    ///< times the OS thread offered its CPU
  bool failed;
  Failure failure;
  char message[512];     ///< the report's beginning, NUL-terminated; empty unless failed
};

/// Two guard-page mappings a lane must stay well below Linux's default of 65530 mappings a process.
constexpr unsigned MAX_LANES = 16384;
constexpr unsigned MAX_BLOCK = 1024;
constexpr unsigned WARP = 32;

/// Runs all grids to their end.
Stats run(const Grid* grids, size_t ngrids, const Options&, Visible = {}, Host = {});

/// False under ThreadSanitizer: stores that leave a store buffer later would not be attributed to their lane.
bool weak_available();

/// One grid from a callable, for tests.
template <class F>
Stats launch(unsigned grid, unsigned block, const Options& options, F body, size_t smem = 0) {
  Grid g{grid, block, smem, [](void* p) { (*static_cast<F*>(p))(); }, &body, nullptr, nullptr};
  return run(&g, 1, options);
}

/// One grid and a host step from callables, with the memory that both see.
template <class F, class H>
Stats launch_with_host(Shape shape, const Options& options, Visible visible, F body, H host) {
  Grid g{shape.grid, shape.block, 0, [](void* p) { (*static_cast<F*>(p))(); }, &body, nullptr, nullptr};
  HostStep step = [](void* p) -> bool { return (*static_cast<H*>(p))(); };
  return run(&g, 1, options, visible, Host{step, &host});
}

/// The clock of now_ns(): CLOCK_BOOTTIME unless replaced. Replace it before run(), never during one, because
/// the pointer belongs to the process. Deadlines always use the real clock.
extern uint64_t (*clock_ns)();
uint64_t monotonic_ns();

}  // namespace simt
