// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads a whole volume with the batched API and adds up its words: what a kernel of your own looks like.
//
// The host fills read_volume_args in (`f` by gn_device_file of <gnstor.h>, the rest as it likes), puts it into device memory and
// launches "read_volume" by gn_launch, with shared memory of gn::batch_bytes(threads): 128 + 8 * threads bytes.
//
//   nvcc -std=c++17 -arch=sm_90 -fatbin -I fabric/cuda -I gnor/cuda -I libgnstor/include libgnstor/examples/read_volume.cu
//
// A C++ compiler takes it as well, for the CPU: with -x c++ -DGN_SIMT_HOST -I fabric/simt besides.
#include "gnstor/gnstor.cuh"

struct read_volume_args {
  gn::file f;       // the open volume
  gn_u32 blocks;    // of 4 KiB, to read
  gn_u32 failed;    // out: requests that failed, and threads that got no buffer
  gn_u64 sum;       // out: of all 64-bit words
};

GN_DEV void read_volume_body(read_volume_args& a, gn_u32 block, gn_u32 grid) {
  gn::batch& b = *(gn::batch*)gn::smem();
  gn::batch_init(b);                              // who waits for what: one bit a thread
  gn_u64 buffer = gn::alloc(a.f, gn::GN_BLOCK);   // 4 KiB of memory that the SSDs may write to; 0 when the pool is empty
  if (!buffer) gn::mem::add_relaxed_gpu(&a.failed, 1u);
  gn_u32 next = block * blockDim.x + threadIdx.x;  // thread t reads blocks t, t + all threads, ...
  gn_u32 stride = grid * blockDim.x;
  gn::read_io x;
  // The 32 lanes of a warp stay together, those without work too: they share doorbells and take each other's completions.
  while (__any_sync(0xffffffffu, buffer && (next < a.blocks || gn::batch_pending(b)))) {
    if (buffer && next < a.blocks && !gn::batch_pending(b)) {
      x = gn::read_request(a.f, next, 1, buffer, a.f.pool_key());
      gn::enter(b, a.f);
      next += stride;
    }
    gn::submit(b, a.f, x);                        // 1: builds this thread's command
    gn::commit(b, a.f, x);                        // 2: sends the warp's commands, one doorbell an SSD
    gn::poll(a.f);                                // 3: takes completions
    if (!gn::dispatch(b, a.f, x)) continue;       // 4: has this thread's request ended?
    if (x.status != gn::GN_OK) gn::mem::add_relaxed_gpu(&a.failed, 1u);
    // The buffer of a request that timed out may still be written to: another one is taken for the next.
    if (x.status & gn::GN_TIMED_OUT) gn::free(a.f, buffer, gn::GN_BLOCK), buffer = gn::alloc(a.f, gn::GN_BLOCK, 1u << gn::lane_id());
    if (x.status != gn::GN_OK) continue;
    gn_u64 sum = 0;
    for (gn_u32 at = 0; at < gn::GN_BLOCK; at += 8) sum += gn::mem::ld_relaxed_sys((const gn_u64*)(buffer + at));
    gn::mem::add_relaxed_gpu(&a.sum, sum);
  }
  if (buffer) gn::free(a.f, buffer, gn::GN_BLOCK);
}

GN_CLIENT(read_volume, read_volume_args, read_volume_body)
