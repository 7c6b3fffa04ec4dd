// SPDX-License-Identifier: Apache-2.0 OR MIT
// Kernels of the test of neighbours on a GPU: one that reads a volume, and one of a neighbour that knows
// nothing of volumes.
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
      // There are more threads than buffers, so they take turns: a block that has read gives its buffer back.
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
    else if (gn::mem::ld_relaxed_sys((const gn_u64*)buffer) != (gn_u64)at * BLOCK_SALT)
      gn::mem::add_relaxed_gpu(&a.wrong, (gn_u64)1);
    else gn::mem::add_relaxed_gpu(&a.reads, (gn_u64)1);
    gn::free(f, buffer, gn::GN_BLOCK);
  }
}

GN_CLIENT(neighbour_reading, reading_args, reading_body)

// Every thread keeps a buffer until all threads have one, and reads into it. For that all blocks must be on
// the GPU at once.
GN_DEV void growing_body(growing_args& a, gn_u32 block, gn_u32 grid) {
  const gn::file& f = *(const gn::file*)a.file;
  gn_u64 buffer = gn::alloc_wait(f, a.bytes);
  if (!buffer) gn::mem::add_relaxed_gpu(&a.without, 1u);
  gn::mem::add_acqrel_gpu(&a.arrived, 1u);
  while (__any_sync(0xffffffffu, gn::mem::ld_relaxed_gpu(&a.arrived) < grid * blockDim.x)) gn::poll(f);
  gn_u32 count = a.bytes / gn::GN_BLOCK, first = (block * blockDim.x + threadIdx.x) * count % a.blocks;
  gn_u32 status = gn::read_sync(f, first, buffer ? count : 0, buffer, f.pool_key());
  if (status != gn::GN_OK) gn::mem::add_relaxed_gpu(&a.failed, 1u);
  for (gn_u32 i = 0; buffer && status == gn::GN_OK && i < count; ++i) {
    bool right = gn::mem::ld_relaxed_sys((const gn_u64*)(buffer + i * gn::GN_BLOCK)) ==
                 (gn_u64)(first + i) * BLOCK_SALT;
    gn::mem::add_relaxed_gpu(right ? &a.right : &a.wrong, 1u);
  }
  gn::free(f, buffer, a.bytes);
}

GN_CLIENT(neighbour_growing, growing_args, growing_body)

GN_DEV void judge(pieces_args& a, gn_u32 block, gn_u64 there) {
  bool right = gn::mem::ld_relaxed_sys((const gn_u64*)there) == (gn_u64)block * BLOCK_SALT;
  gn::mem::add_relaxed_gpu(right ? &a.right : &a.wrong, 1u);
}

// One block. Eight lanes of each of four warps have a buffer at a time. Together they have half of the pool's
// free pages.
GN_DEV void pieces_body(pieces_args& a, gn_u32, gn_u32) {
  __shared__ gn_u32 word;
  __shared__ gn_u64 range;
  const gn::file& f = *(const gn::file*)a.file;
  gn::pool& p = f.c->data;
  gn_u64 grows = p.host_addr;
  gn_u32 blocks = p.blocks;
  if (threadIdx.x == 0) range = gn::alloc(f, gn::POOL_LONGEST, 1u);
  __syncthreads();
  if (threadIdx.x == 0) p.host_addr = 0;
  for (gn_u32 b = threadIdx.x; b < blocks; b += blockDim.x)
    gn::by_device::or_acqrel(gn::pool_word(p, b), 0x5555u);
  __syncthreads();
  for (gn_u32 round = 0; round < 4; ++round) {
    gn::buffer b;
    gn_u32 wants = gn::lane_id() < 8 ? (gn_u32)gn::POOL_BLOCK : 0u,
           first = (round * blockDim.x + threadIdx.x) * 16 % (a.blocks - 16);
    bool got = gn::alloc_wait(f, wants, b);
    if (wants && !got) gn::mem::add_relaxed_gpu(&a.without, 1u);
    if (got && b.shift != gn::PIECE_PAGE) gn::mem::add_relaxed_gpu(&a.whole, 1u);
    gn_u32 status = gn::read_sync(f, first, got ? 16 : 0, b);
    if (status != gn::GN_OK) gn::mem::add_relaxed_gpu(&a.failed, 1u);
    for (gn_u32 i = 0; got && status == gn::GN_OK && i < 16; ++i) judge(a, first + i, b.at(i * gn::GN_BLOCK));
    gn::free(f, b);
  }
  __syncthreads();
  for (gn_u32 b = threadIdx.x; b < blocks; b += blockDim.x)
    gn::by_device::and_release(gn::pool_word(p, b), ~0x5555u);
  if (threadIdx.x == 0) p.host_addr = grows;
  __syncthreads();
  gn_u32 status =
      range ? gn::read_block(f, 3, TOGETHER, range, f.pool_key(), word) : (gn_u32)gn::GN_BAD_REQUEST;
  if (threadIdx.x == 0 && status != gn::GN_OK) gn::mem::add_relaxed_gpu(&a.failed, 1u);
  for (gn_u32 i = threadIdx.x; status == gn::GN_OK && i < TOGETHER; i += blockDim.x)
    judge(a, 3 + i, range + (gn_u64)i * gn::GN_BLOCK);
  __syncthreads();
  if (gn::warp_in_block() == 0 && range) {
    status = gn::read_warp(f, 300, TOGETHER, range, f.pool_key());
    if (gn::lane_id() == 0 && status != gn::GN_OK) gn::mem::add_relaxed_gpu(&a.failed, 1u);
    for (gn_u32 i = gn::lane_id(); status == gn::GN_OK && i < TOGETHER; i += 32)
      judge(a, 300 + i, range + (gn_u64)i * gn::GN_BLOCK);
  }
  __syncthreads();
  if (threadIdx.x == 0) gn::free(f, range, gn::POOL_LONGEST, 1u);
}

GN_CLIENT(neighbour_pieces, pieces_args, pieces_body)

GN_DEV gn_u32 begin_next(calling_args::link& c) {
  calling_args& a = *c.all;
  gn_u32 number = gn::mem::add_relaxed_gpu(&a.begun, 1u);
  if (number >= a.reads) return gn::GN_OK;
  const gn::file& f = *(const gn::file*)a.file;
  c.block = number % a.blocks;
  gn_u32 begun = gn::submit_async(f, gn::read_request(f, c.block, 1, c.buffer, f.pool_key()), 0, (gn_u64)&c);
  if (begun != gn::GN_PENDING) gn::mem::add_relaxed_gpu(&a.failed, 1u);
  return begun;
}

__device__ void block_is_here(const gn::file& f, gn_u64 user, gn_u32 status, gn_u32) {
  calling_args::link& c = *(calling_args::link*)user;
  bool right =
      status == gn::GN_OK && gn::mem::ld_relaxed_sys((const gn_u64*)c.buffer) == c.block * BLOCK_SALT;
  gn::mem::add_relaxed_gpu(status != gn::GN_OK ? &c.all->failed : right ? &c.all->right : &c.all->wrong, 1u);
  if ((status & gn::GN_TIMED_OUT) || begin_next(c) != gn::GN_PENDING) gn::free(f, c.buffer, gn::GN_BLOCK);
}

__device__ gn::callback<> neighbour_callbacks[] = {block_is_here};

GN_DEV void calling_body(calling_args& a, gn_u32 block, gn_u32) {
  const gn::file& f = *(const gn::file*)a.file;
  gn_u32 thread = block * blockDim.x + threadIdx.x;
  if (thread < CHAINS) {  // whole warps
    calling_args::link& c = a.chain[thread];
    c.all = &a;
    c.buffer = gn::alloc(f, gn::GN_BLOCK);
    if (!c.buffer || begin_next(c) != gn::GN_PENDING) gn::mem::add_relaxed_gpu(&a.failed, 1u);
  }
  __syncthreads();
  if (gn::warp_in_block() != 0) return;
  gn_u32 left = gn::drain(f, f.timeout_ns, gn::callbacks<>{neighbour_callbacks, 1});
  if (gn::lane_id() == 0) gn::mem::st_relaxed_gpu(&a.left, left);
}

GN_CLIENT(neighbour_calling, calling_args, calling_body)

// Holds its multiprocessor until the host says that it may go.
GN_KERNEL neighbour_holding(const gn_u32* go) {
  while (gn::mem::ld_relaxed_sys(go) == 0) gn::pause(1000);
}

// A neighbour's ordinary work.
GN_KERNEL neighbour_adding(gn_u32* sum) { gn::mem::add_relaxed_gpu(sum, 1u); }
