// SPDX-License-Identifier: Apache-2.0 OR MIT
// The demo's kernel, written as a user would: every thread reads its own blocks of a volume with the batched API and hashes them.
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

GN_DEV gn_u64 hash_block(gn_u64 address) {
  gn_u64 h = 0x474E53746F72ull;
  for (gn_u32 at = 0; at < gn::GN_BLOCK; at += 16) {
    gn_u32 v[4];
    gn::mem::ld16_stream((const void*)(address + at), v);
    h = gn::mix64(h ^ ((gn_u64)v[1] << 32 | v[0]));
    h = gn::mix64(h ^ ((gn_u64)v[3] << 32 | v[2]));
  }
  return h;
}

// Poison, so that a read that delivers nothing cannot pass for the one before it.
GN_DEV void poison(gn_u64 address, gn_u32 vba) {
  gn_u32 v[4] = {0xDEADBEEFu, vba, ~vba, 0xDEADBEEFu};
  for (gn_u32 at = 0; at < gn::GN_BLOCK; at += 16) gn::mem::st16((void*)(address + at), v);
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
    if (gn::dispatch(b, a.f, x)) {
      reading = false;
      a.start_ns[mine] = started;
      a.end_ns[mine] = gn::now_ns();
      a.status[mine] = x.status;
      a.detail[mine] = x.dw0;
      if (x.status == gn::GN_OK) a.hashes[mine] = hash_block(buffer);
      if (x.status != gn::GN_TIMED_OUT) gn::free(a.f, buffer, gn::GN_BLOCK);
    }
  }
}

}  // namespace

GN_CLIENT(gn_demo_read, demo_args, demo_body)
