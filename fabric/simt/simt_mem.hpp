// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// gn::mem for g++: each access is a scheduling point followed by the __atomic_ operation of the same order.
// Overloads exist for the same types as in "fabric/arch.cuh", so that what compiles here compiles there.
#pragma once
#include <string.h>

#include "simt_cuda.hpp"
#include "simt_hooks.hpp"
#include "simt_run.hpp"

namespace simt {

template <int Order, Scope S, class T>
inline T atomic_load(const T* p, Place here) {
  point(p, S, Access::load, here);
  unsigned long long own;
  if (buffer_load(p, sizeof(T), &own)) return static_cast<T>(own);
  return __atomic_load_n(p, Order);
}

template <int Order, Scope S, class T>
inline void atomic_store(T* p, T value, Place here) {
  point(p, S, Access::store, here);
  if (buffer_store(p, sizeof(T), value, Order)) return;
  __atomic_store_n(p, value, Order);
}

template <int Order, Scope S, class T>
inline void before_rmw(T* p, Place here) {
  point(p, S, Access::rmw, here);
  drain_buffer(p, sizeof(T), Order);
}

/// CUDA's compare-and-swap returns what it found, also on success. A failed one stores nothing, so of acq_rel
/// only the acquire is left.
template <int Order, Scope S, class T>
inline T atomic_cas(T* p, T expected, T value, Place here) {
  constexpr int on_failure = Order == __ATOMIC_ACQ_REL ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED;
  before_rmw<Order, S>(p, here);
  __atomic_compare_exchange_n(p, &expected, value, false, Order, on_failure);
  return expected;
}

/// __atomic_ has no fetch_max. It writes even when nothing changes, so that its order holds in that case too.
template <int Order, Scope S, class T>
inline T atomic_max(T* p, T value, Place here) {
  before_rmw<Order, S>(p, here);
  T seen = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &seen, seen < value ? value : seen, true, Order, __ATOMIC_RELAXED)) {
  }
  return seen;
}

#define SIMT_FETCH(NAME, BUILTIN)                                     \
  template <int Order, Scope S, class T>                              \
  inline T NAME(T* p, T value, Place here) {                          \
    before_rmw<Order, S>(p, here);                                    \
    return BUILTIN(p, value, Order);                                  \
  }
SIMT_FETCH(atomic_add, __atomic_fetch_add)
SIMT_FETCH(atomic_or, __atomic_fetch_or)
SIMT_FETCH(atomic_and, __atomic_fetch_and)
SIMT_FETCH(atomic_exch, __atomic_exchange_n)
#undef SIMT_FETCH

}  // namespace simt

namespace gn {

// 1-D blocks only, as everywhere in this project.
GN_DEV gn_u32 lane_id() { return threadIdx.x & 31u; }
GN_DEV gn_u32 lt_mask() { return (1u << lane_id()) - 1u; }
GN_DEV gn_u32 warp_in_block() { return threadIdx.x >> 5; }
GN_DEV gn_u8* smem() { return simt::cur->smem; }
// On the CPU every thread can reach all memory.
GN_DEV bool is_global(const void*) { return true; }

GN_DEV gn_u64 now_ns(SIMT_HERE) {
  simt::clock_point(SIMT_PASS);
  return simt::clock_ns();
}
GN_DEV void pause(gn_u32 ns, SIMT_HERE) {
  (void)ns;
  simt::pause(SIMT_PASS);
}

GN_DEV gn_u16 bswap16(gn_u16 v) { return __builtin_bswap16(v); }
GN_DEV gn_u32 bswap32(gn_u32 v) { return __builtin_bswap32(v); }
GN_DEV gn_u64 bswap64(gn_u64 v) { return __builtin_bswap64(v); }

namespace mem {

#define SIMT_LOAD(NAME, ORDER, SCOPE, T) \
  GN_DEV T NAME(const T* p, SIMT_HERE) { return simt::atomic_load<ORDER, simt::Scope::SCOPE>(p, SIMT_PASS); }
#define SIMT_STORE(NAME, ORDER, SCOPE, T) \
  GN_DEV void NAME(T* p, T v, SIMT_HERE) { simt::atomic_store<ORDER, simt::Scope::SCOPE>(p, v, SIMT_PASS); }
#define SIMT_RMW(NAME, OP, ORDER, SCOPE, T) \
  GN_DEV T NAME(T* p, T v, SIMT_HERE) { return simt::OP<ORDER, simt::Scope::SCOPE>(p, v, SIMT_PASS); }
#define SIMT_CAS(NAME, ORDER, SCOPE, T)                                          \
  GN_DEV T NAME(T* p, T expected, T v, SIMT_HERE) {                              \
    return simt::atomic_cas<ORDER, simt::Scope::SCOPE>(p, expected, v, SIMT_PASS); \
  }

#define SIMT_ALL_WIDTHS(MACRO, ...) \
  MACRO(__VA_ARGS__, gn_u8) MACRO(__VA_ARGS__, gn_u16) MACRO(__VA_ARGS__, gn_u32) MACRO(__VA_ARGS__, gn_u64)
#define SIMT_RMW_WIDTHS(MACRO, ...) MACRO(__VA_ARGS__, gn_u32) MACRO(__VA_ARGS__, gn_u64)

SIMT_ALL_WIDTHS(SIMT_LOAD, ld_relaxed_sys, __ATOMIC_RELAXED, sys)
SIMT_ALL_WIDTHS(SIMT_LOAD, ld_acquire_sys, __ATOMIC_ACQUIRE, sys)
SIMT_ALL_WIDTHS(SIMT_LOAD, ld_relaxed_gpu, __ATOMIC_RELAXED, gpu)
SIMT_ALL_WIDTHS(SIMT_LOAD, ld_acquire_gpu, __ATOMIC_ACQUIRE, gpu)
SIMT_ALL_WIDTHS(SIMT_LOAD, ld_relaxed_cta, __ATOMIC_RELAXED, cta)
SIMT_ALL_WIDTHS(SIMT_LOAD, ld_acquire_cta, __ATOMIC_ACQUIRE, cta)

SIMT_ALL_WIDTHS(SIMT_STORE, st_relaxed_sys, __ATOMIC_RELAXED, sys)
SIMT_ALL_WIDTHS(SIMT_STORE, st_release_sys, __ATOMIC_RELEASE, sys)
SIMT_ALL_WIDTHS(SIMT_STORE, st_relaxed_gpu, __ATOMIC_RELAXED, gpu)
SIMT_ALL_WIDTHS(SIMT_STORE, st_release_gpu, __ATOMIC_RELEASE, gpu)
SIMT_ALL_WIDTHS(SIMT_STORE, st_relaxed_cta, __ATOMIC_RELAXED, cta)
SIMT_ALL_WIDTHS(SIMT_STORE, st_release_cta, __ATOMIC_RELEASE, cta)

SIMT_RMW_WIDTHS(SIMT_RMW, add_relaxed_gpu, atomic_add, __ATOMIC_RELAXED, gpu)
SIMT_RMW_WIDTHS(SIMT_RMW, add_acqrel_gpu, atomic_add, __ATOMIC_ACQ_REL, gpu)
SIMT_RMW_WIDTHS(SIMT_RMW, add_relaxed_cta, atomic_add, __ATOMIC_RELAXED, cta)
SIMT_RMW_WIDTHS(SIMT_RMW, add_acqrel_cta, atomic_add, __ATOMIC_ACQ_REL, cta)
SIMT_RMW_WIDTHS(SIMT_RMW, or_relaxed_gpu, atomic_or, __ATOMIC_RELAXED, gpu)
SIMT_RMW_WIDTHS(SIMT_RMW, or_acqrel_gpu, atomic_or, __ATOMIC_ACQ_REL, gpu)
SIMT_RMW_WIDTHS(SIMT_RMW, or_acqrel_cta, atomic_or, __ATOMIC_ACQ_REL, cta)
SIMT_RMW_WIDTHS(SIMT_RMW, and_release_gpu, atomic_and, __ATOMIC_RELEASE, gpu)
SIMT_RMW_WIDTHS(SIMT_RMW, and_acqrel_gpu, atomic_and, __ATOMIC_ACQ_REL, gpu)
SIMT_RMW_WIDTHS(SIMT_RMW, and_acqrel_cta, atomic_and, __ATOMIC_ACQ_REL, cta)
SIMT_RMW_WIDTHS(SIMT_RMW, exch_acquire_gpu, atomic_exch, __ATOMIC_ACQUIRE, gpu)
SIMT_RMW_WIDTHS(SIMT_RMW, exch_acqrel_gpu, atomic_exch, __ATOMIC_ACQ_REL, gpu)
SIMT_RMW_WIDTHS(SIMT_RMW, max_relaxed_gpu, atomic_max, __ATOMIC_RELAXED, gpu)
SIMT_RMW_WIDTHS(SIMT_RMW, max_acqrel_gpu, atomic_max, __ATOMIC_ACQ_REL, gpu)
SIMT_RMW_WIDTHS(SIMT_CAS, cas_relaxed_gpu, __ATOMIC_RELAXED, gpu)
SIMT_RMW_WIDTHS(SIMT_CAS, cas_acqrel_gpu, __ATOMIC_ACQ_REL, gpu)
SIMT_RMW_WIDTHS(SIMT_CAS, cas_acqrel_cta, __ATOMIC_ACQ_REL, cta)

#undef SIMT_LOAD
#undef SIMT_STORE
#undef SIMT_RMW
#undef SIMT_CAS
#undef SIMT_ALL_WIDTHS
#undef SIMT_RMW_WIDTHS

/// The halves of a vector load are two accesses in no fixed order, hence the coin. The acquire sits on the
/// loads because ThreadSanitizer does not model the fence that the GPU uses.
GN_DEV void ld_poll2_sys(const gn_u64* p, gn_u64& a, gn_u64& b, SIMT_HERE) {
  if (simt::coin()) {
    b = simt::atomic_load<__ATOMIC_ACQUIRE, simt::Scope::sys>(p + 1, SIMT_PASS);
    a = simt::atomic_load<__ATOMIC_ACQUIRE, simt::Scope::sys>(p, SIMT_PASS);
  } else {
    a = simt::atomic_load<__ATOMIC_ACQUIRE, simt::Scope::sys>(p, SIMT_PASS);
    b = simt::atomic_load<__ATOMIC_ACQUIRE, simt::Scope::sys>(p + 1, SIMT_PASS);
  }
}

GN_DEV void fence_acquire_sys(SIMT_HERE) { simt::fence(false, SIMT_PASS); }
GN_DEV void fence_release_sys(SIMT_HERE) { simt::fence(false, SIMT_PASS); }
GN_DEV void fence_release_gpu(SIMT_HERE) { simt::fence(false, SIMT_PASS); }
GN_DEV void fence_sc_sys(SIMT_HERE) { simt::fence(true, SIMT_PASS); }

// ThreadSanitizer does not model the fence before it: under it the order is in the access.
#if defined(__SANITIZE_THREAD__)
enum { SIMT_FENCED = __ATOMIC_RELEASE };
#else
enum { SIMT_FENCED = __ATOMIC_RELAXED };
#endif
GN_DEV void st_fenced_sys(gn_u32* p, gn_u32 v, SIMT_HERE) {
  simt::atomic_store<SIMT_FENCED, simt::Scope::sys>(p, v, SIMT_PASS);
}
GN_DEV void st_fenced_sys(gn_u64* p, gn_u64 v, SIMT_HERE) {
  simt::atomic_store<SIMT_FENCED, simt::Scope::sys>(p, v, SIMT_PASS);
}

/// The halves are two accesses in no fixed order, as the halves of a load. Under ThreadSanitizer they pass on
/// what the thread has acquired, as they do on the hardware. What a thread has seen by an acquire of system
/// scope has been performed for every thread.
GN_DEV void st_poll2_sys(gn_u64* p, gn_u64 a, gn_u64 b, SIMT_HERE) {
  bool second = simt::coin();
  simt::atomic_store<SIMT_FENCED, simt::Scope::sys>(p + second, second ? b : a, SIMT_PASS);
  simt::atomic_store<SIMT_FENCED, simt::Scope::sys>(p + !second, second ? a : b, SIMT_PASS);
}

GN_DEV void mmio_store_after_release_sys(gn_u64* p, gn_u64 v, SIMT_HERE) {
  simt::atomic_store<__ATOMIC_RELEASE, simt::Scope::sys>(p, v, SIMT_PASS);
}

// Bulk data: plain accesses, so that ThreadSanitizer checks that something else orders them.
GN_DEV void ld16_stream(const void* src, gn_u32 v[4]) {
  simt::drain_buffer(src, 16, __ATOMIC_RELAXED);
  memcpy(v, src, 16);
}
GN_DEV void st16(void* dst, const gn_u32 v[4]) {
  simt::drain_buffer(dst, 16, __ATOMIC_RELAXED);
  memcpy(dst, v, 16);
}
GN_DEV void copy16(void* dst, const void* src) {
  gn_u32 v[4];
  ld16_stream(src, v);
  st16(dst, v);
}

}  // namespace mem
}  // namespace gn
