// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// One kernel for each access of "fabric/arch.cuh", named after it and the type, so that check_ptx.sh can look
// at the PTX of each. It compiles as CPU code too, which shows that both sides offer the same functions.
#include "fabric/arch.cuh"

using namespace gn::mem;

#define USE_LD(ACCESS, BITS) \
  GN_KERNEL use_##ACCESS##_u##BITS(gn_u##BITS* p, gn_u##BITS* out) { *out = ACCESS(p); }
#define USE_ST(ACCESS, BITS) \
  GN_KERNEL use_##ACCESS##_u##BITS(gn_u##BITS* p, gn_u##BITS v) { ACCESS(p, v); }
#define USE_RMW(ACCESS, BITS) \
  GN_KERNEL use_##ACCESS##_u##BITS(gn_u##BITS* p, gn_u##BITS v, gn_u##BITS* out) { *out = ACCESS(p, v); }
#define USE_CAS(ACCESS, BITS)                                                                    \
  GN_KERNEL use_##ACCESS##_u##BITS(gn_u##BITS* p, gn_u##BITS e, gn_u##BITS v, gn_u##BITS* out) { \
    *out = ACCESS(p, e, v);                                                                      \
  }

#define ALL_WIDTHS(USE, ACCESS) USE(ACCESS, 8) USE(ACCESS, 16) USE(ACCESS, 32) USE(ACCESS, 64)
#define RMW_WIDTHS(USE, ACCESS) USE(ACCESS, 32) USE(ACCESS, 64)

ALL_WIDTHS(USE_LD, ld_relaxed_sys)
ALL_WIDTHS(USE_LD, ld_acquire_sys)
ALL_WIDTHS(USE_LD, ld_relaxed_gpu)
ALL_WIDTHS(USE_LD, ld_acquire_gpu)
ALL_WIDTHS(USE_LD, ld_relaxed_cta)
ALL_WIDTHS(USE_LD, ld_acquire_cta)

ALL_WIDTHS(USE_ST, st_relaxed_sys)
ALL_WIDTHS(USE_ST, st_release_sys)
ALL_WIDTHS(USE_ST, st_relaxed_gpu)
ALL_WIDTHS(USE_ST, st_release_gpu)
ALL_WIDTHS(USE_ST, st_relaxed_cta)
ALL_WIDTHS(USE_ST, st_release_cta)

RMW_WIDTHS(USE_RMW, add_relaxed_gpu)
RMW_WIDTHS(USE_RMW, add_acqrel_gpu)
RMW_WIDTHS(USE_RMW, add_relaxed_cta)
RMW_WIDTHS(USE_RMW, add_acqrel_cta)
RMW_WIDTHS(USE_RMW, max_relaxed_gpu)
RMW_WIDTHS(USE_RMW, max_acqrel_gpu)
RMW_WIDTHS(USE_RMW, or_relaxed_gpu)
RMW_WIDTHS(USE_RMW, or_acqrel_gpu)
RMW_WIDTHS(USE_RMW, or_acqrel_cta)
RMW_WIDTHS(USE_RMW, and_release_gpu)
RMW_WIDTHS(USE_RMW, and_acqrel_gpu)
RMW_WIDTHS(USE_RMW, and_acqrel_cta)
RMW_WIDTHS(USE_RMW, exch_acquire_gpu)
RMW_WIDTHS(USE_RMW, exch_acqrel_gpu)
RMW_WIDTHS(USE_CAS, cas_relaxed_gpu)
RMW_WIDTHS(USE_CAS, cas_acqrel_gpu)
RMW_WIDTHS(USE_CAS, cas_acqrel_cta)

GN_KERNEL use_ld_poll2_sys(gn_u64* p, gn_u64* out) { ld_poll2_sys(p, out[0], out[1]); }
GN_KERNEL use_fence_acquire_sys() { fence_acquire_sys(); }
GN_KERNEL use_fence_release_sys() { fence_release_sys(); }
GN_KERNEL use_st_poll2_sys(gn_u64* p, gn_u64 a, gn_u64 b) { st_poll2_sys(p, a, b); }
GN_KERNEL use_fence_release_gpu() { fence_release_gpu(); }
GN_KERNEL use_fence_sc_sys() { fence_sc_sys(); }
GN_KERNEL use_mmio_store(gn_u64* p, gn_u64 v) { mmio_store_after_release_sys(p, v); }
GN_KERNEL use_st_fenced_sys_u32(gn_u32* p, gn_u32 v) { st_fenced_sys(p, v); }
GN_KERNEL use_st_fenced_sys_u64(gn_u64* p, gn_u64 v) { st_fenced_sys(p, v); }
GN_KERNEL use_copy16(void* dst, const void* src) { copy16(dst, src); }
GN_KERNEL use_ld16_stream(const void* src, gn_u32* out) {
  gn_u32 v[4];
  ld16_stream(src, v);
  out[0] = v[0] + v[1] + v[2] + v[3];
}
GN_KERNEL use_st16(void* dst, gn_u32 a) {
  const gn_u32 v[4] = {a, a + 1, a + 2, a + 3};
  st16(dst, v);
}

// These functions access no memory. They only have to compile.
GN_KERNEL compile_the_rest(gn_u64* out) {
  pause(32);
  out[0] = now_ns() + lane_id() + lt_mask() + warp_in_block() + smem()[lane_id()];
  out[1] = gn::be64(out[0]) + gn::be32(static_cast<gn_u32>(out[0])) + gn::be16(static_cast<gn_u16>(out[0]));
  out[2] = gn::lane_id() + gn::lt_mask() + gn::warp_in_block() + gn::smem()[0] + gn::now_ns();
  gn_u32 full = 0xffffffffu, lane = gn::lane_id();
  out[3] = __ballot_sync(full, lane == 3) + __any_sync(full, 1) + __all_sync(full, 1) +
           __match_any_sync(full, lane) + __match_any_sync(full, out[0]) + __shfl_sync(full, lane, 0) +
           __shfl_up_sync(full, lane, 1) + __shfl_down_sync(full, lane, 1) +
           __shfl_xor_sync(full, out[0], 1) + __reduce_add_sync(full, lane) + __reduce_min_sync(full, lane) +
           __reduce_max_sync(full, lane) + __reduce_and_sync(full, lane) + __reduce_or_sync(full, lane) +
           __reduce_xor_sync(full, lane);
  __syncwarp();
  __syncthreads();
  out[4] = __ffs(3) + __ffsll(3) + __popc(lane) + __popcll(out[0]) + __clz(3) + __clzll(3) + __activemask();
}
