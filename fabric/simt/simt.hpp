// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What "fabric/arch.cuh" includes under GN_SIMT_HOST: CUDA's words and gn::mem for g++.
//
//   simt_run.hpp    grids, options, run()                        for the host side
//   simt_hooks.hpp  calls into the runtime                       for the next two only
//   simt_cuda.hpp   threadIdx, __ballot_sync, __syncwarp, ...    for device code
//   simt_mem.hpp    gn::mem, gn::lane_id, gn::be32, ...          for device code
//
// Some things are left out on purpose, so that using them does not compile. Raw atomics (atomicCAS and its
// like) have no order in their name. Static __shared__ is left out because blocks share an OS thread. So are
// the width argument of shuffles, 2-D and 3-D blocks, and cooperative groups.
//
// What this cannot show: stale loads, plain stores that arrive late, PCIe ordering, two lanes in one instant.
// `volatile` and a bare fence followed by a relaxed store compile here, but ThreadSanitizer sees no order in
// them.
#pragma once
#include "simt_cuda.hpp"
#include "simt_hooks.hpp"
#include "simt_mem.hpp"
#include "simt_run.hpp"
