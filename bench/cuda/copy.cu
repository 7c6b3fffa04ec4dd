// SPDX-License-Identifier: Apache-2.0 OR MIT
// The bare copy: warps move pieces between host and device memory as the HCA's movers do. It has no queue,
// key, sum or report. So its rate is the upper limit of everything that copies with a kernel.
#include "copy.h"

namespace gn { namespace copy {

// As `copy_warp` of fabric/mover.cuh, without the sum: eight loads of 16 bytes are in flight a lane.
GN_DEV void move(gn_u8* to, const gn_u8* from, gn_u32 bytes) {
  for (gn_u32 at = lane_id() * 16; at < bytes; at += 8 * 32 * 16) {
    gn_u32 v[8][4];
#pragma unroll
    for (gn_u32 k = 0; k < 8; ++k) mem::ld16_stream(from + at + k * 512, v[k]);
#pragma unroll
    for (gn_u32 k = 0; k < 8; ++k) mem::st16(to + at + k * 512, v[k]);
  }
}

GN_DEV gn_u64 next_random(gn_u64& state) {
  state += 0x9E3779B97F4A7C15ull;
  gn_u64 x = state;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

}}  // namespace gn::copy

// Copies until the time is over. No two warps touch one piece of the host's memory or one slot of the
// device's.
GN_KERNEL gn_copy(gn::copy::args* of) {
  using namespace gn;
  const copy::args a = *of;
  gn_u32 warps = gridDim.x * (blockDim.x / 32), warp = blockIdx.x * (blockDim.x / 32) + warp_in_block();
  copy::result& r = a.results[warp];
  gn_u64 mine = (a.host_pieces - warp + warps - 1) / warps, state = a.seed + warp, pieces = 0, host_at = 0,
         device_at = 0;
  gn_u64 begun = __shfl_sync(0xffffffffu, now_ns(), 0), now = begun;
  while (now - begun < a.runtime_ns) {
    gn_u64 which = copy::next_random(state) % mine * warps + warp;  // all lanes draw the same
    host_at = which * a.piece;
    device_at = ((gn_u64)warp * a.slots + pieces % a.slots) * a.piece;
    if (a.to_host) copy::move(a.host + host_at, a.device + device_at, a.piece);
    else copy::move(a.device + device_at, a.host + host_at, a.piece);
    __syncwarp();
    pieces += 1;
    now = __shfl_sync(0xffffffffu, now_ns(), 0);
  }
  if (lane_id() != 0) return;
  r.pieces = pieces;
  r.first_ns = begun;
  r.last_ns = now;
  r.host_at = host_at;
  r.device_at = device_at;
}
