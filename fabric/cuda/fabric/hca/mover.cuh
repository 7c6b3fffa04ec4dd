// SPDX-License-Identifier: Apache-2.0 OR MIT
// The HCA's data mover: one warp copies one descriptor between host memory and a remote address, whose key it
// checks. It computes the block sum on the way (proto/src/checksum.rs).
#pragma once
#include "fabric/hca/fused.cuh"
#include "fabric/hca/held.cuh"

namespace gn { namespace hca {

enum : gn_u32 { SUM_STEP = 0x9E3779B9u, SUM_BYTES = 4096 };

GN_DEV gn_u32 sum_mix(gn_u32 x) {
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  return x ^ (x >> 16);
}

// Copies one word if the ends are not aligned: at most four bytes, lowest first.
GN_DEV gn_u32 copy_word(gn_u8* to, const gn_u8* from, gn_u32 bytes) {
  gn_u32 word = 0;
  for (gn_u32 i = 0; i < bytes; ++i) {
    gn_u8 b = mem::ld_relaxed_sys(from + i);
    to[i] = b;
    word |= (gn_u32)b << 8 * i;
  }
  return word;
}

// Copies `bytes` with the whole warp; returns this lane's share of the block sum. Eight 16-byte loads are in
// flight a lane: a read over PCIe takes over a microsecond.
GN_DEV gn_u32 copy_warp(gn_u8* to, const gn_u8* from, gn_u32 bytes) {
  gn_u32 lane = lane_id(), sum = 0;
  if ((((gn_u64)to | (gn_u64)from | bytes) & 15) != 0) {
    for (gn_u32 i = lane; i * 4 < bytes; i += 32)
      sum += sum_mix(copy_word(to + i * 4, from + i * 4, bytes - i * 4 < 4 ? bytes - i * 4 : 4) +
                     (i + 1) * SUM_STEP);
    return sum;
  }
  gn_u32 pieces = bytes / 16;
  for (gn_u32 base = lane; base < pieces; base += 8 * 32) {
    gn_u32 v[8][4];
#pragma unroll
    for (gn_u32 k = 0; k < 8; ++k)
      if (base + k * 32 < pieces) mem::ld16_stream(from + (gn_u64)(base + k * 32) * 16, v[k]);
#pragma unroll
    for (gn_u32 k = 0; k < 8; ++k) {
      gn_u32 piece = base + k * 32;
      if (piece >= pieces) continue;
      mem::st16(to + (gn_u64)piece * 16, v[k]);
#pragma unroll
      for (gn_u32 j = 0; j < 4; ++j) sum += sum_mix(v[k][j] + (piece * 4 + j + 1) * SUM_STEP);
    }
  }
  return sum;
}

// Executes a copy descriptor; the whole warp. Its report is kept. The fence of up_push_together, or
// __syncwarp and the release of end_part, orders the last lane-store before the report. So data is in the
// owner's memory before any completion that the report leads to.
GN_DEV void execute_copy(const agent_args& a, delayed_table& delayed, const down_work& d, up_kept& reports) {
  gn_u32 index = down_qpn(d) - a.first_qpn, bytes = down_bytes(d), status = COPY_OK, sum = 0;
  bool inbound = down_op(d) != DOWN_TO_HOST;
  gn_u32 access = inbound ? (gn_u32)ACCESS_REMOTE_WRITE : (gn_u32)ACCESS_REMOTE_READ;
  // One lane decides: the queue pair may go into error at any time, and the lanes must not disagree.
  bool opens = index < a.qp_count && mem::ld_relaxed_gpu(&a.qps[index].state) == QP_RTS &&
               key_opens(a, a.qps[index].pd, {down_key(d), d.w[2], bytes * down_blocks(d), access});
  if (!__shfl_sync(0xffffffffu, (gn_u32)opens, 0)) {
    status = COPY_BAD_KEY;
  } else {
#pragma unroll 1
    for (gn_u32 k = 0; k < down_blocks(d); ++k) {
      gn_u32 held = NO_PLACE;
      if (inbound && a.held_addr) held = hold(a, down_qpn(d), d.w[2] + k * SUM_BYTES, bytes);
      gn_u8 *host = (gn_u8*)d.w[k ? 4 : 1],
            *device = held == NO_PLACE ? (gn_u8*)d.w[2] + k * SUM_BYTES : held_data(a, held);
      sum += copy_warp(inbound ? device : host, inbound ? host : device, bytes);
      __syncwarp();
      // pairs with the acquire in release_held
      if (held != NO_PLACE && lane_id() == 0)
        mem::st_release_gpu(&held_place(a, held)->state, (gn_u32)HELD_FULL);
    }
    sum = bytes == SUM_BYTES ? __reduce_add_sync(0xffffffffu, sum) : 0u;  // only whole blocks have one
    if ((down_flags(d) & DOWN_CHECK_SUM) && (bytes != SUM_BYTES || sum != (gn_u32)d.w[5]))
      status = COPY_BAD_SUM;
  }
  __syncwarp();
  if (!(down_flags(d) & DOWN_PART))
    up_keep(reports, {UP_DONE, down_qpn(d), down_tag(d), status, bytes, 0, sum});
  else if (lane_id() == 0) end_part(delayed, d, status);
}

}}  // namespace gn::hca
