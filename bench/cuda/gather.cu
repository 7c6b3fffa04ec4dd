// SPDX-License-Identifier: Apache-2.0 OR MIT
// Copies a list of parts between mapped host memory and device memory. A block of threads copies a part, and
// a thread moves 16 bytes at a time. It is launched beside resident kernels (bench/src/copier.rs), so
// it uses few registers, no shared memory and no stack. For a stack the driver may resize memory that a
// resident kernel uses, and would wait for that kernel to end.
#include "fabric/arch.cuh"

namespace gn { namespace gather {

enum : gn_u32 { THREADS = 256, IN_FLIGHT = 4, PART_BYTES = THREADS * IN_FLIGHT * 16 };

// Mirrored by bench/src/copier.rs. All of it are multiples of 16.
struct part {
  gn_u8* to;
  const gn_u8* from;
  gn_u64 bytes;     // at most PART_BYTES, so that every thread has all its loads in flight at once
  gn_u64 reserved;  // a part is one sector of memory
};
static_assert(sizeof(part) == 32 && PART_BYTES == 16384, "");

}}  // namespace gn::gather

GN_KERNEL_OF(gn::gather::THREADS) gn_gather(const gn::gather::part* parts) {
  using namespace gn;
  const gather::part p = parts[blockIdx.x];
  const gn_u64 step = blockDim.x * 16;
  for (gn_u64 at = threadIdx.x * 16; at < p.bytes; at += gather::IN_FLIGHT * step) {
    gn_u32 v[gather::IN_FLIGHT][4];
#pragma unroll
    for (gn_u32 k = 0; k < gather::IN_FLIGHT; ++k)
      if (at + k * step < p.bytes) mem::ld16_stream(p.from + at + k * step, v[k]);
#pragma unroll
    for (gn_u32 k = 0; k < gather::IN_FLIGHT; ++k)
      if (at + k * step < p.bytes) mem::st16(p.to + at + k * step, v[k]);
  }
}
