// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the bare copy gets, and what it leaves. Mirrored by bench/src/copy_baseline.rs.
#pragma once
#include "fabric/arch.cuh"

namespace gn { namespace copy {

// The counters of one warp.
struct result {
  gn_u64 pieces;
  gn_u64 first_ns;    // when it began, and when its last piece was there
  gn_u64 last_ns;
  gn_u64 host_at;     // offsets of the last piece, to be compared
  gn_u64 device_at;
};
static_assert(sizeof(result) == 40, "");

struct args {
  gn_u8* host;
  gn_u8* device;
  result* results;    // one a warp
  gn_u64 host_pieces; // at least one a warp
  gn_u64 runtime_ns;
  gn_u64 seed;
  gn_u32 piece;       // bytes, a multiple of 4096
  gn_u32 slots;       // pieces of device memory that each warp has
  gn_u32 to_host;     // 1: from device to host memory; 0: the other way
  gn_u32 reserved;
};
static_assert(sizeof(args) == 64, "");

}}  // namespace gn::copy
