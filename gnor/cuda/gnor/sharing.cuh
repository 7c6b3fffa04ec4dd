// SPDX-License-Identifier: Apache-2.0 OR MIT
// Which threads share a channel, as a compile-time parameter: what its words are touched with.
//
//   by_device   any warp of the grid                              atomics and orders of scope .gpu
//   by_block    the warps of one block                            the same of scope .cta
//   by_warp     one warp, whose lanes call together, or one of its threads: no read-modify-write at all
//
// A channel that is used by_warp from two warps at once is broken: undefined on a GPU, found by the CPU
// execution (`visit`). Between launches the sharing may change.
#pragma once
#include "gnor/abi.h"

namespace gn {

GN_DEV gn_u32 lowest(gn_u32 mask) { return (gn_u32)__ffs((int)mask) - 1; }

// Position of the n-th (from 0) bit that is set in `mask`, which has more than n.
GN_DEV gn_u32 nth_bit(gn_u32 mask, gn_u32 n) {
  gn_u32 at = 0;
#pragma unroll
  for (gn_u32 width = 16; width; width /= 2) {
    gn_u32 below = (gn_u32)__popc((mask >> at) & ((1u << width) - 1));
    if (n >= below) n -= below, at += width;
  }
  return at;
}

struct by_device {
  static constexpr bool ALONE = false, IN_BLOCK = false;
  template <class T>
  GN_DEV static T ld(const T* p) { return mem::ld_relaxed_gpu(p); }
  template <class T>
  GN_DEV static T ld_acquire(const T* p) { return mem::ld_acquire_gpu(p); }
  template <class T>
  GN_DEV static void st(T* p, T v) { mem::st_relaxed_gpu(p, v); }
  template <class T>
  GN_DEV static void st_release(T* p, T v) { mem::st_release_gpu(p, v); }
  GN_DEV static gn_u32 add(gn_u32* p, gn_u32 v) { return mem::add_relaxed_gpu(p, v); }
  GN_DEV static gn_u32 add_acqrel(gn_u32* p, gn_u32 v) { return mem::add_acqrel_gpu(p, v); }
  GN_DEV static gn_u32 or_acqrel(gn_u32* p, gn_u32 v) { return mem::or_acqrel_gpu(p, v); }
  GN_DEV static gn_u32 and_release(gn_u32* p, gn_u32 v) { return mem::and_release_gpu(p, v); }
  template <class T>
  GN_DEV static T cas(T* p, T seen, T v) { return mem::cas_relaxed_gpu(p, seen, v); }
  template <class T>
  GN_DEV static T cas_acqrel(T* p, T seen, T v) { return mem::cas_acqrel_gpu(p, seen, v); }
  GN_DEV static gn_u32 exch_acquire(gn_u32* p, gn_u32 v) { return mem::exch_acquire_gpu(p, v); }
  struct visit {
    GN_DEV visit(channel&) {}
  };
};

struct by_block {
  static constexpr bool ALONE = false, IN_BLOCK = true;
  template <class T>
  GN_DEV static T ld(const T* p) { return mem::ld_relaxed_cta(p); }
  template <class T>
  GN_DEV static T ld_acquire(const T* p) { return mem::ld_acquire_cta(p); }
  template <class T>
  GN_DEV static void st(T* p, T v) { mem::st_relaxed_cta(p, v); }
  template <class T>
  GN_DEV static void st_release(T* p, T v) { mem::st_release_cta(p, v); }
  GN_DEV static gn_u32 add(gn_u32* p, gn_u32 v) { return mem::add_relaxed_cta(p, v); }
  GN_DEV static gn_u32 add_acqrel(gn_u32* p, gn_u32 v) { return mem::add_acqrel_cta(p, v); }
  GN_DEV static gn_u32 or_acqrel(gn_u32* p, gn_u32 v) { return mem::or_acqrel_cta(p, v); }
  GN_DEV static gn_u32 and_release(gn_u32* p, gn_u32 v) { return mem::and_acqrel_cta(p, v); }
  template <class T>
  GN_DEV static T cas(T* p, T seen, T v) { return mem::cas_acqrel_cta(p, seen, v); }
  template <class T>
  GN_DEV static T cas_acqrel(T* p, T seen, T v) { return mem::cas_acqrel_cta(p, seen, v); }
  GN_DEV static gn_u32 exch_acquire(gn_u32* p, gn_u32 v) {
    gn_u32 seen = mem::ld_relaxed_cta(p);
    for (;;) {
      gn_u32 old = mem::cas_acqrel_cta(p, seen, v);
      if (old == seen) return old;
      seen = old;
    }
  }
  struct visit {
    GN_DEV visit(channel&) {}
  };
};

// The warp's lanes hand over to each other by __syncwarp. If two of them would change one word, they take
// turns (in_turns).
struct by_warp {
  static constexpr bool ALONE = true, IN_BLOCK = true;
  template <class T>
  GN_DEV static T ld(const T* p) { return mem::ld_relaxed_cta(p); }
  template <class T>
  GN_DEV static T ld_acquire(const T* p) { return mem::ld_relaxed_cta(p); }
  template <class T>
  GN_DEV static void st(T* p, T v) { mem::st_relaxed_cta(p, v); }
  template <class T>
  GN_DEV static void st_release(T* p, T v) { mem::st_relaxed_cta(p, v); }
  template <class T>
  GN_DEV static T put(T* p, T old, T v) {
    mem::st_relaxed_cta(p, v);
    return old;
  }
  GN_DEV static gn_u32 add(gn_u32* p, gn_u32 v) { gn_u32 old = ld(p); return put(p, old, old + v); }
  GN_DEV static gn_u32 add_acqrel(gn_u32* p, gn_u32 v) { return add(p, v); }
  GN_DEV static gn_u32 or_acqrel(gn_u32* p, gn_u32 v) { gn_u32 old = ld(p); return put(p, old, old | v); }
  GN_DEV static gn_u32 and_release(gn_u32* p, gn_u32 v) { gn_u32 old = ld(p); return put(p, old, old & v); }
  template <class T>
  GN_DEV static T cas(T* p, T seen, T v) { T old = ld(p); return old == seen ? put(p, old, v) : old; }
  template <class T>
  GN_DEV static T cas_acqrel(T* p, T seen, T v) { return cas(p, seen, v); }
  GN_DEV static gn_u32 exch_acquire(gn_u32* p, gn_u32 v) { gn_u32 old = ld(p); return put(p, old, v); }
#if defined(GN_SIMT_HOST)
  // Counts the warp in for as long as it is inside; two at once end the run.
  struct visit {
    channel& c;
    gn_u32 me = blockIdx.x * (blockDim.x / 32) + warp_in_block() + 1;
    explicit visit(channel& channel_) : c(channel_) {
      gn_u32 other = mem::cas_relaxed_gpu(&c.visitor, 0u, me);
      if (other != 0 && other != me) simt::misuse("a channel used by_warp is used by two warps");
      mem::add_relaxed_gpu(&c.visits, 1u);
    }
    ~visit() {
      if (mem::add_relaxed_gpu(&c.visits, 0u - 1u) == 1) mem::cas_relaxed_gpu(&c.visitor, me, 0u);
    }
  };
#else
  struct visit {
    GN_DEV visit(channel&) {}
  };
#endif
};

// Runs `f` in each lane of `mask` that has `mine` set: at once, or one after the other if nothing is atomic.
// The lanes call it together. Where they take turns, the first one, too, sees what all have stored before.
template <class S, class F>
GN_DEV void in_turns(gn_u32 mask, bool mine, F f) {
  if constexpr (S::ALONE) {
    gn_u32 todo = __ballot_sync(mask, mine);
    if (todo) __syncwarp(mask);
    for (; todo; todo &= todo - 1) {
      if (lane_id() == lowest(todo)) f();
      __syncwarp(mask);
    }
  } else if (mine) {
    f();
  }
}

}  // namespace gn
