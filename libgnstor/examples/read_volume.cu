// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads a whole volume with the batched API and adds up its words: what a kernel of your own looks like.
//
// The host fills in read_volume_args: `f` with gn_device_file of <gnstor.h>, and `blocks`. It puts them into
// device memory and calls gn_launch with shared memory of gn::batch_bytes(threads), which is 128 + 8 *
// threads bytes. 128 threads in all are best. A channel holds 128 requests in flight, and its pool of 8 MiB
// has a buffer for each.
//
//   nvcc -std=c++17 -arch=sm_90 -fatbin -I fabric/cuda -I gnor/cuda -I libgnstor/include
//     libgnstor/examples/read_volume.cu
//
// A C++ compiler takes it as well, for the CPU: add -x c++ -DGN_SIMT_HOST -I fabric/simt.
#include "gnstor/gnstor.cuh"

// One request reads 16 blocks of 4 KiB: 64 KiB, which is the default chunk. An SSD serves a chunk with one
// command.
enum : gn_u32 { READ_BLOCKS = 16, READ_BYTES = READ_BLOCKS * gn::GN_BLOCK };

struct read_volume_args {
  gn::file f;       // the open volume
  gn_u32 blocks;    // number of 4 KiB blocks to read
  gn_u32 failed;    // out: requests that failed, and threads that got no buffer
  gn_u64 sum;       // out: sum of all 64-bit words
};

GN_DEV void read_volume_body(read_volume_args& a, gn_u32 block, gn_u32 grid) {
  gn::batch& b = *(gn::batch*)gn::smem();
  gn::batch_init(b);                           // one bit a thread: its request is pending
  gn_u64 buffer = gn::alloc(a.f, READ_BYTES);  // registered memory for one request; 0 when the pool is empty
  if (!buffer) gn::mem::add_relaxed_gpu(&a.failed, 1u);
  // Thread t reads the parts t, t + threads, ... of READ_BLOCKS blocks each.
  gn_u64 next = (gn_u64)(block * blockDim.x + threadIdx.x) * READ_BLOCKS;
  gn_u64 stride = (gn_u64)grid * blockDim.x * READ_BLOCKS;
  gn_u32 count = 0;
  gn::read_io x;
  // All 32 lanes of a warp stay in the loop together, also lanes without work: they share doorbells and
  // completions.
  while (__any_sync(0xffffffffu, buffer && (next < a.blocks || gn::batch_pending(b)))) {
    if (buffer && next < a.blocks && !gn::batch_pending(b)) {
      count = a.blocks - next < READ_BLOCKS ? (gn_u32)(a.blocks - next) : (gn_u32)READ_BLOCKS;
      x = gn::read_request(a.f, next, count, buffer, a.f.pool_key());
      gn::enter(b, a.f);
      next += stride;
    }
    gn::submit(b, a.f, x);                     // 1: builds this thread's command
    gn::commit(b, a.f, x);                     // 2: sends the warp's commands, one doorbell an SSD
    gn::poll(a.f);                             // 3: takes completions
    if (!gn::dispatch(b, a.f, x)) continue;    // 4: has this thread's request ended?
    if (x.status != gn::GN_OK) gn::mem::add_relaxed_gpu(&a.failed, 1u);
    // An SSD may still write to the buffer of a request that timed out, so the thread takes another buffer.
    if (x.status & gn::GN_TIMED_OUT) {
      gn::free(a.f, buffer, READ_BYTES, 1u << gn::lane_id());
      buffer = gn::alloc(a.f, READ_BYTES, 1u << gn::lane_id());
    }
    if (x.status != gn::GN_OK) continue;
    gn_u64 sum = 0;
    for (gn_u32 at = 0; at < count * gn::GN_BLOCK; at += 8)
      sum += gn::mem::ld_relaxed_sys((const gn_u64*)(buffer + at));
    gn::mem::add_relaxed_gpu(&a.sum, sum);
  }
  if (buffer) gn::free(a.f, buffer, READ_BYTES);
}

GN_CLIENT(read_volume, read_volume_args, read_volume_body)
