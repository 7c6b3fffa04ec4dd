// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Small programs whose forbidden outcome must be seen where PTX allows it, and never where it does not.
// Lane 0 of warp 0 and lane 0 of warp 1 race; each sees what it can of x[0] and x[16].
#include "check.hpp"

using namespace gn::mem;

namespace {

// ThreadSanitizer is slow, and there is no weak mode to try under it.
const unsigned SEEDS = simt::weak_available() ? 4000 : 200;
constexpr gn_u32 UNSET = 9;

struct Shared {
  gn_u32 x[32];
  gn_u32 seen[2];
};

/// In how many seeds both lanes read 0.
template <class F>
unsigned both_saw_zero(bool weak, F program) {
  unsigned hits = 0;
  for (uint64_t seed = 1; seed <= SEEDS; ++seed) {
    Shared m{};
    m.seen[0] = m.seen[1] = UNSET;
    simt::Options o;
    o.seed = seed;
    o.preempt = 2;
    o.weak = weak;
    simt::launch(1, 33, o, [&] {
      if (gn::lane_id() == 0) program(m, threadIdx.x / 32);
    });
    if (m.seen[0] == 0 && m.seen[1] == 0) ++hits;
  }
  return hits;
}

// Store buffering: each side publishes, then checks whether the other one has published.
void store_buffering_relaxed(Shared& m, unsigned side) {
  st_relaxed_sys(&m.x[side * 16], 1);
  m.seen[side] = ld_relaxed_sys(&m.x[16 - side * 16]);
}
void store_buffering_release_acquire(Shared& m, unsigned side) {
  st_release_sys(&m.x[side * 16], 1);
  m.seen[side] = ld_acquire_sys(&m.x[16 - side * 16]);
}
void store_buffering_acqrel_fence(Shared& m, unsigned side) {
  st_relaxed_sys(&m.x[side * 16], 1);
  fence_release_sys();
  m.seen[side] = ld_relaxed_sys(&m.x[16 - side * 16]);
}
void store_buffering_sc_fence(Shared& m, unsigned side) {
  st_relaxed_sys(&m.x[side * 16], 1);
  fence_sc_sys();
  m.seen[side] = ld_relaxed_sys(&m.x[16 - side * 16]);
}

// Message passing: side 0 writes data and flag; the outcome is "flag without data".
template <class Publish>
void message(Shared& m, unsigned side, Publish publish) {
  if (side == 0) {
    st_relaxed_sys(&m.x[0], 1);
    publish(&m.x[16]);
  } else if (ld_acquire_sys(&m.x[16])) {
    m.seen[0] = 0;
    m.seen[1] = ld_relaxed_sys(&m.x[0]);
  }
}
void message_relaxed(Shared& m, unsigned side) {
  message(m, side, [](gn_u32* flag) { st_relaxed_sys(flag, 1); });
}
void message_release(Shared& m, unsigned side) {
  message(m, side, [](gn_u32* flag) { st_release_sys(flag, 1); });
}
void message_fence_then_relaxed(Shared& m, unsigned side) {
  message(m, side, [](gn_u32* flag) {
    fence_release_sys();
    st_relaxed_sys(flag, 1);
  });
}
void message_rmw_after_fence(Shared& m, unsigned side) {
  message(m, side, [](gn_u32* flag) {
    fence_release_sys();
    add_relaxed_gpu(flag, 1u);
  });
}
void message_acqrel_rmw(Shared& m, unsigned side) {
  message(m, side, [](gn_u32* flag) { exch_acqrel_gpu(flag, 1u); });
}
void message_acquire_rmw(Shared& m, unsigned side) {   // acquire alone publishes nothing
  message(m, side, [](gn_u32* flag) { exch_acquire_gpu(flag, 1u); });
}
/// A release, then a relaxed store to the same word: the later store must not make the release visible too
/// early.
void message_release_then_same_word(Shared& m, unsigned side) {
  message(m, side, [](gn_u32* flag) {
    st_release_sys(flag, 1);
    st_relaxed_sys(flag, 2);
  });
}

void nothing_is_reordered_without_weak_mode() {
  CHECK(both_saw_zero(false, store_buffering_relaxed) == 0);
  CHECK(both_saw_zero(false, message_relaxed) == 0);
}

void store_buffering_is_seen() {
  if (!simt::weak_available()) return;
  CHECK(both_saw_zero(true, store_buffering_relaxed) > 0);
  CHECK(both_saw_zero(true, store_buffering_release_acquire) > 0);
}

void only_an_sc_fence_stops_store_buffering() {
  if (!simt::weak_available()) return;
  CHECK(both_saw_zero(true, store_buffering_acqrel_fence) > 0);
  CHECK(both_saw_zero(true, store_buffering_sc_fence) == 0);
}

void message_without_release_is_seen_broken() {
  if (!simt::weak_available()) return;
  CHECK(both_saw_zero(true, message_relaxed) > 0);
  CHECK(both_saw_zero(true, message_acquire_rmw) > 0);
}

void message_with_release_is_never_broken() {
  if (!simt::weak_available()) return;
  CHECK(both_saw_zero(true, message_release) == 0);
  CHECK(both_saw_zero(true, message_fence_then_relaxed) == 0);
  CHECK(both_saw_zero(true, message_rmw_after_fence) == 0);
  CHECK(both_saw_zero(true, message_acqrel_rmw) == 0);
  CHECK(both_saw_zero(true, message_release_then_same_word) == 0);
}

void a_lane_sees_its_own_stores() {
  if (!simt::weak_available()) return;
  simt::Options o;
  o.weak = true;
  gn_u64 words[32] = {};
  unsigned wrong = 0;
  simt::launch(1, 32, o, [&] {
    gn_u64* mine = &words[gn::lane_id()];
    gn_u32* low = reinterpret_cast<gn_u32*>(mine);
    st_relaxed_gpu(low, 5u);
    if (ld_relaxed_gpu(low) != 5) ++wrong;
    if (ld_relaxed_gpu(mine) != 5) ++wrong;   // another width
    st_relaxed_gpu(low, 6u);
    if (add_relaxed_gpu(low, 1u) != 6) ++wrong;
  });
  CHECK(wrong == 0);
  for (gn_u64 w : words) CHECK(w == 7);
}

void syncwarp_publishes_in_weak_mode() {
  if (!simt::weak_available()) return;
  unsigned wrong = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    simt::Options o;
    o.seed = seed;
    o.weak = true;
    gn_u32 words[32] = {};
    simt::launch(1, 32, o, [&] {
      gn_u32 lane = gn::lane_id();
      st_relaxed_cta(&words[lane], lane + 1);
      __syncwarp();
      if (ld_relaxed_cta(&words[(lane + 1) % 32]) != (lane + 1) % 32 + 1) ++wrong;
    });
  }
  CHECK(wrong == 0);
}

void the_poll_halves_come_in_either_order() {
  unsigned a_newer = 0, b_newer = 0;
  for (uint64_t seed = 1; seed <= SEEDS; ++seed) {
    simt::Options o;
    o.seed = seed;
    o.preempt = 2;
    alignas(16) gn_u64 words[2] = {};
    simt::launch(1, 33, o, [&] {
      if (threadIdx.x == 0) {
        st_release_sys(&words[0], 1);
        st_release_sys(&words[1], 1);
      } else if (threadIdx.x == 32) {
        gn_u64 a, b;
        ld_poll2_sys(words, a, b);
        fence_acquire_sys();
        if (a > b) ++a_newer;
        if (b > a) ++b_newer;
      }
    });
  }
  CHECK(a_newer > 0);
  CHECK(b_newer > 0);
}

}  // namespace

int main() {
  RUN(nothing_is_reordered_without_weak_mode);
  RUN(store_buffering_is_seen);
  RUN(only_an_sc_fence_stops_store_buffering);
  RUN(message_without_release_is_seen_broken);
  RUN(message_with_release_is_never_broken);
  RUN(a_lane_sees_its_own_stores);
  RUN(syncwarp_publishes_in_weak_mode);
  RUN(the_poll_halves_come_in_either_order);
  return check::failures != 0;
}
