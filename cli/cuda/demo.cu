// SPDX-License-Identifier: Apache-2.0 OR MIT
// The demo's kernel, written as a user would: every thread reads its own blocks of a volume with the batched
// API and hashes them.
#include "gnstor/gnstor.cuh"

namespace {

struct demo_args {
  gn::file f;
  gn_u32 blocks;         // of the volume to read
  gn_u32 reserved;
  gn_u64* hashes;        // out, per block
  gn_u64* start_ns;      // out, per block: when it was submitted, and when it was dispatched
  gn_u64* end_ns;
  gn_u32* status;        // out, per block
  gn_u32* detail;        // out, per block: DW0
};

// The hash of a block: a sum over its 64-bit words, each mixed with its position, so that a warp can share
// the work.
GN_DEV gn_u64 hash_with_warp(gn_u64 address) {
  gn_u64 sum = 0;
  gn_u32 v[8][4];  // all loads first: one round trip, not eight
#pragma unroll
  for (gn_u32 k = 0; k < 8; ++k)
    gn::mem::ld16_stream((const void*)(address + (k * 32 + gn::lane_id()) * 16), v[k]);
#pragma unroll
  for (gn_u32 k = 0; k < 8; ++k) {
    gn_u32 piece = k * 32 + gn::lane_id();
    sum += gn::mix64(((gn_u64)v[k][1] << 32 | v[k][0]) + (2 * piece + 1) * 0x9E3779B97F4A7C15ull);
    sum += gn::mix64(((gn_u64)v[k][3] << 32 | v[k][2]) + (2 * piece + 2) * 0x9E3779B97F4A7C15ull);
  }
  for (int half = 16; half; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
  return sum;
}

// Poison in every 512 bytes, so that a read that delivers nothing cannot pass for the one before it.
GN_DEV void poison(gn_u64 address, gn_u32 vba) {
  gn_u32 v[4] = {0xDEADBEEFu, vba, ~vba, 0xDEADBEEFu};
  for (gn_u32 at = 0; at < gn::GN_BLOCK; at += 512) gn::mem::st16((void*)(address + at), v);
}

GN_DEV void demo_body(demo_args& a, gn_u32 block, gn_u32 blocks) {
  gn::batch& b = *(gn::batch*)gn::smem();
  gn::batch_init(b);
  gn_u32 next = block * blockDim.x + threadIdx.x, stride = blocks * blockDim.x, mine = 0;
  gn_u64 buffer = 0, started = 0;
  gn::io x;
  bool reading = false;
  while (__any_sync(0xffffffffu, reading || next < a.blocks)) {
    if (!reading && next < a.blocks) {
      buffer = gn::alloc(a.f, gn::GN_BLOCK);
      if (buffer) {
        mine = next;
        next += stride;
        poison(buffer, mine);
        x = gn::read_request(a.f, mine, 1, buffer, a.f.pool_key());
        gn::enter(b, a.f);
        started = gn::now_ns();
        reading = true;
      }
    }
    gn::submit(b, a.f, x);
    gn::commit(b, a.f, x);
    gn::poll(a.f);
    bool ended = gn::dispatch(b, a.f, x);
    if (ended) {
      reading = false;
      a.start_ns[mine] = started;
      a.end_ns[mine] = gn::now_ns();
      a.status[mine] = x.status;
      a.detail[mine] = x.dw0;
    }
    for (gn_u32 todo = __ballot_sync(0xffffffffu, ended && x.status == gn::GN_OK); todo; todo &= todo - 1) {
      int lane = __ffs((int)todo) - 1;
      gn_u64 hash = hash_with_warp(__shfl_sync(0xffffffffu, buffer, lane));
      if (gn::lane_id() == (gn_u32)lane) a.hashes[mine] = hash;
    }
    __syncwarp();  // the others have read this lane's buffer before it is given back
    if (ended) gn::free(a.f, buffer, gn::GN_BLOCK);
  }
}

}  // namespace

GN_CLIENT(gn_demo_read, demo_args, demo_body)
