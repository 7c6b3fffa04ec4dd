// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The seam between device code (instrumented by whatever sanitizer the test uses) and the runtime (never
// instrumented). simt_cuda.hpp and simt_mem.hpp call these; device code does not.
#pragma once
#include <stddef.h>
#include <stdint.h>

// The place of the call in device code. Evaluated at the call, as default arguments are; inside a Place they
// would name this file.
#define SIMT_HERE const char *simt_file = __builtin_FILE(), int simt_line = __builtin_LINE()
#define SIMT_PASS (::simt::Place{simt_file, simt_line})

namespace simt {

/// Where device code calls the runtime, for reports.
struct Place {
  const char* file;
  int line;
};

struct Dim {
  unsigned x, y, z;
};

/// Values of CUDA's built-in variables for one lane.
struct Ids {
  Dim thread, block, block_dim, grid_dim;
  unsigned char* smem;
};

/// The lane that runs on this OS thread; null outside lanes. __thread and not thread_local: access to the
/// latter from another file goes through a function, in case there is a constructor to run.
extern __thread Ids* cur;

enum Op : int {
  OP_NONE,
  OP_SYNCWARP,
  OP_BALLOT,
  OP_ANY,
  OP_ALL,
  OP_MATCH_ANY,
  OP_SHFL,
  OP_SHFL_UP,
  OP_SHFL_DOWN,
  OP_SHFL_XOR,
  OP_REDUCE_ADD,
  OP_REDUCE_MIN,
  OP_REDUCE_MAX,
  OP_REDUCE_AND,
  OP_REDUCE_OR,
  OP_REDUCE_XOR,
  OP_SYNCTHREADS,
};

enum class Scope { cta, gpu, sys };
enum class Access { load, store, rmw };

/// A warp collective: waits until all live lanes of `mask` have arrived, returns this lane's result.
unsigned long long collective(Op op, unsigned mask, unsigned long long value, int arg, Place here);

/// __syncthreads().
void block_barrier(Place here);

/// Before every shared access: checks the scope, counts progress, may run another lane.
void point(const void* p, Scope scope, Access access, Place here);

/// In every spin loop: runs another lane.
void pause(Place here);

/// A look at the clock; counts as work, so that a loop on time alone does not keep the CPU for ever.
void clock_point(Place here);

/// A fence that orders (acq_rel) or also waits for all stores to be visible (sc).
void fence(bool sequentially_consistent, Place here);

/// Ends the run: device code found that it is used in a way it is not made for.
[[noreturn]] void misuse(const char* what, SIMT_HERE);

/// True with equal odds when the schedule is random (Options::preempt), else false.
bool coin();

// Store buffers of the weak mode. `order` is an __ATOMIC_ constant.
/// False: nothing was buffered, the caller stores.
bool buffer_store(void* p, unsigned size, unsigned long long value, int order);
/// True: this lane has a store to `p` that others may not see yet, and `*value` is it.
bool buffer_load(const void* p, unsigned size, unsigned long long* value);
/// Before a read-modify-write, or a plain access, to [p, p + size).
void drain_buffer(const void* p, unsigned size, int order);

}  // namespace simt
