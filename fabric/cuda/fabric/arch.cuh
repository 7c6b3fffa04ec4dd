// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The one device header that knows what compiles it: nvcc and NVRTC, or, with GN_SIMT_HOST, g++
// (fabric/simt).
//
// Every value that another warp, the host or a NIC can see is touched through gn::mem. There the order and
// the scope are in the access's name, as in PTX. There is no `volatile` and no raw atomic in device code.
//
//   ld_{relaxed,acquire}_{cta,gpu,sys}   u8 u16 u32 u64
//   st_{relaxed,release}_{cta,gpu,sys}   u8 u16 u32 u64
//   add, or, and, exch, max, cas         u32 u64; gpu and cta scope only: over PCIe an RMW is not atomic with
//                                        the CPU
//
// Addresses are generic (global or shared) unless a function says otherwise. Nothing is included from the
// system: NVRTC has no include path.
#pragma once

#if defined(GN_SIMT_HOST)
#include "simt.hpp"
#else

typedef unsigned char gn_u8;
typedef unsigned short gn_u16;
typedef unsigned int gn_u32;
typedef unsigned long long gn_u64;

#define GN_DEV __device__ __forceinline__
#define GN_KERNEL extern "C" __global__ void
// A kernel of at most so many threads a block: the compiler keeps its registers to what fits, and a launch
// cannot fail for them.
#define GN_KERNEL_OF(THREADS) extern "C" __global__ void __launch_bounds__(THREADS, 1)

namespace gn {

// Blocks are one-dimensional throughout.
GN_DEV gn_u32 lane_id() { return threadIdx.x & 31u; }
GN_DEV gn_u32 warp_in_block() { return threadIdx.x >> 5; }

/// The lanes of the warp below this one.
GN_DEV gn_u32 lt_mask() {
  gn_u32 mask;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
  return mask;
}

/// The block's dynamic shared memory.
GN_DEV gn_u8* smem() {
  extern __shared__ __align__(16) unsigned char gn_smem_[];
  return gn_smem_;
}

GN_DEV gn_u64 now_ns() {
  gn_u64 ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

/// Whether it is memory that every thread reaches by this address, now and in later kernels.
GN_DEV bool is_global(const void* p) {
  gn_u32 yes;
  asm("{ .reg .pred q; isspacep.global q, %1; selp.u32 %0, 1, 0, q; }" : "=r"(yes) : "l"(p));
  return yes != 0;
}

/// Belongs in every spin loop; on the CPU it lets the other lanes run.
GN_DEV void pause(gn_u32 ns) { __nanosleep(ns); }

GN_DEV gn_u32 bswap32(gn_u32 v) { return __byte_perm(v, 0, 0x0123); }
GN_DEV gn_u16 bswap16(gn_u16 v) { return static_cast<gn_u16>(__byte_perm(v, 0, 0x4401)); }
GN_DEV gn_u64 bswap64(gn_u64 v) {
  return static_cast<gn_u64>(bswap32(static_cast<gn_u32>(v))) << 32 | bswap32(static_cast<gn_u32>(v >> 32));
}

namespace mem {

// The "memory" clobber keeps the compiler from moving other accesses across; the PTX qualifiers do the rest.
#define GN_PTX_LD(NAME, SEM, T, PTX_TYPE, REG, VIA)                                                     \
  GN_DEV T NAME(const T* p) {                                                                           \
    VIA v;                                                                                              \
    asm volatile("ld." SEM "." PTX_TYPE " %0, [%1];" : "=" REG(v) : "l"(p) : "memory");                 \
    return static_cast<T>(v);                                                                           \
  }
#define GN_PTX_ST(NAME, SEM, T, PTX_TYPE, REG, VIA)                                                     \
  GN_DEV void NAME(T* p, T v) {                                                                         \
    asm volatile("st." SEM "." PTX_TYPE " [%0], %1;" ::"l"(p), REG(static_cast<VIA>(v)) : "memory");    \
  }
#define GN_PTX_RMW(NAME, SEM, OP, T, PTX_TYPE, REG)                                                     \
  GN_DEV T NAME(T* p, T v) {                                                                            \
    T old;                                                                                              \
    asm volatile("atom." SEM "." OP "." PTX_TYPE " %0, [%1], %2;"                                       \
                 : "=" REG(old) : "l"(p), REG(v) : "memory");                                           \
    return old;                                                                                         \
  }
#define GN_PTX_CAS(NAME, SEM, T, PTX_TYPE, REG)                                                         \
  GN_DEV T NAME(T* p, T expected, T v) {                                                                \
    T old;                                                                                              \
    asm volatile("atom." SEM ".cas." PTX_TYPE " %0, [%1], %2, %3;"                                      \
                 : "=" REG(old) : "l"(p), REG(expected), REG(v) : "memory");                            \
    return old;                                                                                         \
  }

// PTX has no 8-bit registers: a byte travels in 32 bits.
#define GN_ALL_WIDTHS(MACRO, NAME, SEM)             \
  MACRO(NAME, SEM, gn_u8, "u8", "r", gn_u32)        \
  MACRO(NAME, SEM, gn_u16, "u16", "h", gn_u16)      \
  MACRO(NAME, SEM, gn_u32, "u32", "r", gn_u32)      \
  MACRO(NAME, SEM, gn_u64, "u64", "l", gn_u64)
#define GN_RMW_ARITH(NAME, SEM, OP)                 \
  GN_PTX_RMW(NAME, SEM, OP, gn_u32, "u32", "r")     \
  GN_PTX_RMW(NAME, SEM, OP, gn_u64, "u64", "l")
#define GN_RMW_BITS(NAME, SEM, OP)                  \
  GN_PTX_RMW(NAME, SEM, OP, gn_u32, "b32", "r")     \
  GN_PTX_RMW(NAME, SEM, OP, gn_u64, "b64", "l")
#define GN_CAS_BITS(NAME, SEM)                      \
  GN_PTX_CAS(NAME, SEM, gn_u32, "b32", "r")         \
  GN_PTX_CAS(NAME, SEM, gn_u64, "b64", "l")

GN_ALL_WIDTHS(GN_PTX_LD, ld_relaxed_sys, "relaxed.sys")
GN_ALL_WIDTHS(GN_PTX_LD, ld_acquire_sys, "acquire.sys")
GN_ALL_WIDTHS(GN_PTX_LD, ld_relaxed_gpu, "relaxed.gpu")
GN_ALL_WIDTHS(GN_PTX_LD, ld_acquire_gpu, "acquire.gpu")
GN_ALL_WIDTHS(GN_PTX_LD, ld_relaxed_cta, "relaxed.cta")
GN_ALL_WIDTHS(GN_PTX_LD, ld_acquire_cta, "acquire.cta")

GN_ALL_WIDTHS(GN_PTX_ST, st_relaxed_sys, "relaxed.sys")
GN_ALL_WIDTHS(GN_PTX_ST, st_release_sys, "release.sys")
GN_ALL_WIDTHS(GN_PTX_ST, st_relaxed_gpu, "relaxed.gpu")
GN_ALL_WIDTHS(GN_PTX_ST, st_release_gpu, "release.gpu")
GN_ALL_WIDTHS(GN_PTX_ST, st_relaxed_cta, "relaxed.cta")
GN_ALL_WIDTHS(GN_PTX_ST, st_release_cta, "release.cta")

GN_RMW_ARITH(add_relaxed_gpu, "relaxed.gpu", "add")
GN_RMW_ARITH(add_acqrel_gpu, "acq_rel.gpu", "add")
GN_RMW_ARITH(add_relaxed_cta, "relaxed.cta", "add")
GN_RMW_ARITH(add_acqrel_cta, "acq_rel.cta", "add")
GN_RMW_ARITH(max_relaxed_gpu, "relaxed.gpu", "max")
GN_RMW_ARITH(max_acqrel_gpu, "acq_rel.gpu", "max")
GN_RMW_BITS(or_relaxed_gpu, "relaxed.gpu", "or")
GN_RMW_BITS(or_acqrel_gpu, "acq_rel.gpu", "or")
GN_RMW_BITS(or_acqrel_cta, "acq_rel.cta", "or")
GN_RMW_BITS(and_release_gpu, "release.gpu", "and")
GN_RMW_BITS(and_acqrel_gpu, "acq_rel.gpu", "and")
GN_RMW_BITS(and_acqrel_cta, "acq_rel.cta", "and")
GN_RMW_BITS(exch_acquire_gpu, "acquire.gpu", "exch")
GN_RMW_BITS(exch_acqrel_gpu, "acq_rel.gpu", "exch")
GN_CAS_BITS(cas_relaxed_gpu, "relaxed.gpu")
GN_CAS_BITS(cas_acqrel_gpu, "acq_rel.gpu")
GN_CAS_BITS(cas_acqrel_cta, "acq_rel.cta")

#undef GN_PTX_LD
#undef GN_PTX_ST
#undef GN_PTX_RMW
#undef GN_PTX_CAS
#undef GN_ALL_WIDTHS
#undef GN_RMW_ARITH
#undef GN_RMW_BITS
#undef GN_CAS_BITS

/// One 16-byte load of two words that each carry a phase bit. The words may be of different ages, so each
/// must be judged by itself. Global memory, 16-byte aligned. Follow with fence_acquire_sys() before using
/// what they guard.
GN_DEV void ld_poll2_sys(const gn_u64* p, gn_u64& a, gn_u64& b) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(a), "=l"(b) : "l"(__cvta_generic_to_global(p)) : "memory");
}

/// One 16-byte store of two words that each carry a phase bit: a reader that sees a word sees that word, and
/// nothing more. Global memory, 16-byte aligned.
GN_DEV void st_poll2_sys(gn_u64* p, gn_u64 a, gn_u64 b) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "l"(a),
               "l"(b)
               : "memory");
}

/// After a relaxed poll that found its value. ThreadSanitizer does not model fences: prefer ld_acquire_* to a
/// fence. From sm_90 on it does not wait for the thread's own stores, which takes a microsecond and more.
GN_DEV void fence_acquire_sys() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.acquire.sys;" ::: "memory");
#else
  asm volatile("fence.acq_rel.sys;" ::: "memory");
#endif
}

/// Orders earlier accesses before later stores. It does not order stores with later *loads*.
GN_DEV void fence_release_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

/// The same towards other threads of the GPU. It does not wait for stores that are on their way to the host.
GN_DEV void fence_release_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

/// A store after a fence_release_sys of the same thread: one fence can serve several hand-overs.
GN_DEV void st_fenced_sys(gn_u32* p, gn_u32 v) { st_relaxed_sys(p, v); }
GN_DEV void st_fenced_sys(gn_u64* p, gn_u64 v) { st_relaxed_sys(p, v); }

/// For "publish, then look whether the other side sleeps": the only fence that orders a store with a later
/// load.
GN_DEV void fence_sc_sys() { asm volatile("fence.sc.sys;" ::: "memory"); }

/// Rings a NIC's doorbell register: everything before it is visible to the device when the register is
/// written. A release store is not available for MMIO, hence the fence.
GN_DEV void mmio_store_after_release_sys(gn_u64* p, gn_u64 v) {
  asm volatile(
      "fence.acq_rel.sys;\n\tst.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(p)),
      "l"(v)
      : "memory");
}

// Bulk data, 16-byte aligned. These order nothing: an acquire before and a release after do.

/// Reads past the L1, which is not coherent with the host, a NIC or other SMs. Global memory.
GN_DEV void ld16_stream(const void* src, gn_u32 v[4]) {
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "l"(__cvta_generic_to_global(src))
               : "memory");
}

GN_DEV void st16(void* dst, const gn_u32 v[4]) {
  *static_cast<uint4*>(dst) = make_uint4(v[0], v[1], v[2], v[3]);
}

/// For data that cannot be stale in the L1, such as what this block wrote.
GN_DEV void copy16(void* dst, const void* src) {
  *static_cast<uint4*>(dst) = *static_cast<const uint4*>(src);
}

}  // namespace mem
}  // namespace gn

#endif  // GN_SIMT_HOST

// Definitions that both compilers share.
namespace gn {

/// To and from big-endian, as mlx5 structures and RDMA headers are; both GPUs and the CPUs served are
/// little-endian.
GN_DEV gn_u16 be16(gn_u16 v) { return bswap16(v); }
GN_DEV gn_u32 be32(gn_u32 v) { return bswap32(v); }
GN_DEV gn_u64 be64(gn_u64 v) { return bswap64(v); }

namespace mem {
using gn::lane_id;
using gn::lt_mask;
using gn::now_ns;
using gn::pause;
using gn::smem;
using gn::warp_in_block;
}  // namespace mem
}  // namespace gn
