// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// CUDA's words for device code compiled by g++.
#pragma once
#include <string.h>

#include "simt_hooks.hpp"

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define GN_DEV inline
#define GN_KERNEL extern "C" void
#define GN_KERNEL_OF(THREADS) GN_KERNEL

#define threadIdx (::simt::cur->thread)
#define blockIdx (::simt::cur->block)
#define blockDim (::simt::cur->block_dim)
#define gridDim (::simt::cur->grid_dim)

typedef unsigned char gn_u8;
typedef unsigned short gn_u16;
typedef unsigned int gn_u32;
typedef unsigned long long gn_u64;

// Votes.
inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_HERE) {
  return static_cast<unsigned>(simt::collective(simt::OP_BALLOT, mask, predicate != 0, 0, SIMT_PASS));
}
inline int __any_sync(unsigned mask, int predicate, SIMT_HERE) {
  return static_cast<int>(simt::collective(simt::OP_ANY, mask, predicate != 0, 0, SIMT_PASS));
}
inline int __all_sync(unsigned mask, int predicate, SIMT_HERE) {
  return static_cast<int>(simt::collective(simt::OP_ALL, mask, predicate != 0, 0, SIMT_PASS));
}

// Lanes with the same value: the full mask of them, the caller included.
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, SIMT_HERE) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "__match_any_sync takes 32 or 64 bits");
  unsigned long long bits = 0;
  memcpy(&bits, &value, sizeof value);
  return static_cast<unsigned>(simt::collective(simt::OP_MATCH_ANY, mask, bits, 0, SIMT_PASS));
}

// Shuffles. They order no memory: data handed over by one still needs __syncwarp.
#define SIMT_SHUFFLE(NAME, OP, ARG_TYPE)                                                   \
  template <class T>                                                                       \
  inline T NAME(unsigned mask, T value, ARG_TYPE arg, SIMT_HERE) {                         \
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, #NAME " takes 32 or 64 bits");         \
    unsigned long long bits = 0;                                                           \
    memcpy(&bits, &value, sizeof value);                                                   \
    bits = simt::collective(simt::OP, mask, bits, static_cast<int>(arg), SIMT_PASS);       \
    T result;                                                                              \
    memcpy(&result, &bits, sizeof result);                                                 \
    return result;                                                                         \
  }
SIMT_SHUFFLE(__shfl_sync, OP_SHFL, int)
SIMT_SHUFFLE(__shfl_up_sync, OP_SHFL_UP, unsigned)
SIMT_SHUFFLE(__shfl_down_sync, OP_SHFL_DOWN, unsigned)
SIMT_SHUFFLE(__shfl_xor_sync, OP_SHFL_XOR, int)
#undef SIMT_SHUFFLE

// Reductions (sm_80), for unsigned only.
#define SIMT_REDUCE(NAME, OP)                                                              \
  inline unsigned NAME(unsigned mask, unsigned value, SIMT_HERE) {                         \
    return static_cast<unsigned>(simt::collective(simt::OP, mask, value, 0, SIMT_PASS));   \
  }
SIMT_REDUCE(__reduce_add_sync, OP_REDUCE_ADD)
SIMT_REDUCE(__reduce_min_sync, OP_REDUCE_MIN)
SIMT_REDUCE(__reduce_max_sync, OP_REDUCE_MAX)
SIMT_REDUCE(__reduce_and_sync, OP_REDUCE_AND)
SIMT_REDUCE(__reduce_or_sync, OP_REDUCE_OR)
SIMT_REDUCE(__reduce_xor_sync, OP_REDUCE_XOR)
#undef SIMT_REDUCE

// Barriers: the only collectives that order memory.
inline void __syncwarp(unsigned mask = 0xffffffffu, SIMT_HERE) {
  simt::collective(simt::OP_SYNCWARP, mask, 0, 0, SIMT_PASS);
}
inline void __syncthreads(SIMT_HERE) { simt::block_barrier(SIMT_PASS); }

// A lane may rely on itself alone here: legal, and the hardest case for code that took it for "the warp".
inline unsigned __activemask() { return 1u << (threadIdx.x & 31u); }

inline void __nanosleep(unsigned, SIMT_HERE) { simt::pause(SIMT_PASS); }

// Bits.
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
