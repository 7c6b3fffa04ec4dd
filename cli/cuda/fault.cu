// SPDX-License-Identifier: Apache-2.0 OR MIT
// A kernel that fails with reads in flight, to see that no other kernel does.
#include "gnstor/gnstor.cuh"
#include "trap.cuh"

namespace {

enum : gn_u32 { TRAP = 1, HANG = 2 };

struct fault_args {
  gn::file f;
  gn_u32 blocks;        // of the volume
  gn_u32 what;
  const gn_u32* never;  // stays 0
};

GN_DEV void fault_body(fault_args& a, gn_u32 block, gn_u32) {
  gn::batch& b = *(gn::batch*)gn::smem();
  gn::batch_init(b);
  gn_u64 buffer = gn::alloc(a.f, gn::GN_BLOCK);
  gn::io x = {};
  if (buffer) {
    x = gn::read_request(a.f, (block * blockDim.x + threadIdx.x) % a.blocks, 1, buffer, a.f.pool_key());
    gn::enter(b, a.f);
  }
  gn::submit(b, a.f, x);
  gn::commit(b, a.f, x);
  if (a.what == TRAP) gn::trap();
  while (a.what == HANG && gn::mem::ld_relaxed_sys(a.never) == 0) gn::pause(1000);
}

}  // namespace

GN_CLIENT(gn_demo_fault, fault_args, fault_body)
