// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads a whole volume without waiting for any read. Every thread begins a chain of reads and ends. Each
// read's callback begins the next. One warp polls until none is left.
//
// Launch "read_async" with at least two warps; its argument as for read_volume.cu.
#include "gnstor/gnstor.cuh"

struct read_async_args;

// State of one chain of reads. It is in memory, because callbacks run in other threads.
struct read_chain {
  read_async_args* all;
  gn_u64 buffer;
};

struct read_async_args {
  gn::file f;       // the open volume
  gn_u32 blocks;    // of 4 KiB, to read
  gn_u32 chains;    // at most; a pool of 8 MiB has 2,048 buffers
  gn_u32 next;      // next block to read
  gn_u32 failed;    // out: reads that failed
  gn_u64 sum;       // out: of all 64-bit words
  read_chain chain[128];
};

GN_DEV gn_u32 begin_next(read_chain& c) {
  gn_u32 block = gn::mem::add_relaxed_gpu(&c.all->next, 1u);
  if (block >= c.all->blocks) return gn::GN_OK;
  const gn::file& f = c.all->f;
  gn_u32 begun = gn::submit_async(f, gn::read_request(f, block, 1, c.buffer, f.pool_key()), 0, (gn_u64)&c);
  // no slot is free, which cannot happen: each chain has its own here
  if (begun != gn::GN_PENDING) gn::mem::add_relaxed_gpu(&c.all->failed, 1u);
  return begun;
}

// Index 0 of the table. It runs in a thread that polls; it may submit and free, not wait.
__device__ void block_is_here(const gn::file& f, gn_u64 user, gn_u32 status, gn_u32) {
  read_chain& c = *(read_chain*)user;
  gn_u64 sum = 0;
  for (gn_u32 at = 0; status == gn::GN_OK && at < gn::GN_BLOCK; at += 8)
    sum += gn::mem::ld_relaxed_sys((const gn_u64*)(c.buffer + at));
  gn::mem::add_relaxed_gpu(&c.all->sum, sum);
  if (status != gn::GN_OK) gn::mem::add_relaxed_gpu(&c.all->failed, 1u);
  // Late data may still come into the buffer of a read that timed out, so no other read uses it.
  if ((status & gn::GN_TIMED_OUT) || begin_next(c) != gn::GN_PENDING) gn::free(f, c.buffer, gn::GN_BLOCK);
}

__device__ gn::callback<> read_async_callbacks[] = {block_is_here};

GN_DEV void read_async_body(read_async_args& a, gn_u32 block, gn_u32) {
  const gn::callbacks<> back = {read_async_callbacks, 1};
  gn_u32 thread = block * blockDim.x + threadIdx.x;
  if (thread < 128 && thread < a.chains) {
    read_chain& c = a.chain[thread];
    c.all = &a;
    c.buffer = gn::alloc(a.f, gn::GN_BLOCK);
    if (c.buffer && begin_next(c) != gn::GN_PENDING) gn::free(a.f, c.buffer, gn::GN_BLOCK);
  }
  __syncthreads();
  // The first warp of each block advances the requests of all threads until none is left in the channel.
  if (gn::warp_in_block() == 0 && gn::drain(a.f, a.f.timeout_ns, back) != 0 && gn::lane_id() == 0)
    gn::mem::add_relaxed_gpu(&a.failed, 1u);
}

GN_CLIENT(read_async, read_async_args, read_async_body)
