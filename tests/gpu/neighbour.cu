// SPDX-License-Identifier: Apache-2.0 OR MIT
// Kernels of the test of neighbours on a GPU: one that reads a volume, and one of somebody who knows nothing of volumes.
#include "gnstor/gnstor.cuh"
#include "neighbour.h"

static_assert(sizeof(gn::file) == sizeof(reading_args::file), "");

GN_DEV void reading_body(reading_args& a, gn_u32 block, gn_u32 grid) {
  gn::batch& b = *(gn::batch*)gn::smem();
  gn::batch_init(b);
  const gn::file& f = *(const gn::file*)a.file;
  gn_u64 buffer = 0, until = gn::now_ns() + a.runtime_ns;
  gn_u32 next = block * blockDim.x + threadIdx.x, stride = grid * blockDim.x, at = 0;
  bool wanted = true, busy = false;
  gn::io x = {};
  while (__any_sync(0xffffffffu, wanted || busy)) {
    if (wanted && !busy) {
      // More threads than buffers take turns: a block that has read gives its buffer back.
      buffer = gn::alloc(f, gn::GN_BLOCK);
      if (buffer) {
        at = next % a.blocks;
        next += stride;
        x = gn::read_request(f, at, 1, buffer, f.pool_key());
        gn::enter(b, f);
        busy = true;
        wanted = gn::now_ns() < until;
      } else {
        gn::pause(1000);
      }
    }
    gn::submit(b, f, x);
    gn::commit(b, f, x);
    gn::poll(f);
    if (!gn::dispatch(b, f, x)) continue;
    busy = false;
    if (x.status != gn::GN_OK) gn::mem::add_relaxed_gpu(&a.failed, 1u);
    else if (gn::mem::ld_relaxed_sys((const gn_u64*)buffer) != (gn_u64)at * BLOCK_SALT) gn::mem::add_relaxed_gpu(&a.wrong, (gn_u64)1);
    else gn::mem::add_relaxed_gpu(&a.reads, (gn_u64)1);
    // What a request that timed out may still write to is not given back.
    if (x.status != gn::GN_TIMED_OUT) gn::free(f, buffer, gn::GN_BLOCK);
  }
}

GN_CLIENT(neighbour_reading, reading_args, reading_body)

// Holds its multiprocessor until somebody says that it may go.
GN_KERNEL neighbour_holding(const gn_u32* go) {
  while (gn::mem::ld_relaxed_sys(go) == 0) gn::pause(1000);
}

// Somebody's ordinary work.
GN_KERNEL neighbour_adding(gn_u32* sum) { gn::mem::add_relaxed_gpu(sum, 1u); }
