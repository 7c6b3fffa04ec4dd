// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Warp collectives mean what they mean in CUDA, and using them wrongly is reported with the place.
#include "check.hpp"

namespace {

constexpr unsigned FULL = 0xffffffffu;

/// Runs one warp under many schedules; the body returns whether what it saw was right.
template <class F>
bool right_in_all_schedules(unsigned lanes, F body) {
  unsigned wrong = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const unsigned preempts[] = {0, 1, 8};
    for (unsigned preempt : preempts) {
      simt::Options o;
      o.seed = seed;
      o.preempt = preempt;
      simt::launch(1, lanes, o, [&] {
        if (!body(gn::lane_id())) ++wrong;
      });
    }
  }
  return wrong == 0;
}

void votes() {
  CHECK(right_in_all_schedules(
      32, [](gn_u32 lane) { return __ballot_sync(FULL, lane % 3 == 0) == 0x49249249u; }));
  CHECK(right_in_all_schedules(
      32, [](gn_u32 lane) { return __any_sync(FULL, lane == 7) && !__any_sync(FULL, 0); }));
  CHECK(right_in_all_schedules(
      32, [](gn_u32 lane) { return __all_sync(FULL, 1) && !__all_sync(FULL, lane != 7); }));
}

void match_any_gives_the_full_mask_of_equal_lanes() {
  CHECK(right_in_all_schedules(32, [](gn_u32 lane) {
    return __match_any_sync(FULL, lane % 4) == 0x11111111u << lane % 4;
  }));
  CHECK(right_in_all_schedules(32, [](gn_u32 lane) {
    gn_u64 high = static_cast<gn_u64>(lane / 16) << 40;   // equal in the low 32 bits
    return __match_any_sync(FULL, high) == (lane < 16 ? 0xffffu : 0xffff0000u);
  }));
}

void shuffles() {
  CHECK(right_in_all_schedules(32, [](gn_u32 lane) { return __shfl_sync(FULL, lane * 10, 5) == 50; }));
  CHECK(right_in_all_schedules(
      32, [](gn_u32 lane) { return __shfl_sync(FULL, lane, (lane + 1) % 32) == (lane + 1) % 32; }));
  CHECK(right_in_all_schedules(
      32, [](gn_u32 lane) { return __shfl_up_sync(FULL, lane, 3) == (lane < 3 ? lane : lane - 3); }));
  CHECK(right_in_all_schedules(
      32, [](gn_u32 lane) { return __shfl_down_sync(FULL, lane, 3) == (lane > 28 ? lane : lane + 3); }));
  CHECK(
      right_in_all_schedules(32, [](gn_u32 lane) { return __shfl_xor_sync(FULL, lane, 16) == (lane ^ 16); }));
  CHECK(right_in_all_schedules(32, [](gn_u32 lane) {
    gn_u64 wide = 0x100000000ull * lane + 1;
    return __shfl_sync(FULL, wide, 31) == 0x100000000ull * 31 + 1;
  }));
}

void reductions() {
  CHECK(right_in_all_schedules(32, [](gn_u32 lane) { return __reduce_add_sync(FULL, lane) == 496; }));
  CHECK(right_in_all_schedules(32, [](gn_u32 lane) { return __reduce_min_sync(FULL, lane + 4) == 4; }));
  CHECK(right_in_all_schedules(32, [](gn_u32 lane) { return __reduce_max_sync(FULL, lane) == 31; }));
  CHECK(right_in_all_schedules(32, [](gn_u32 lane) { return __reduce_or_sync(FULL, 1u << lane) == FULL; }));
  CHECK(right_in_all_schedules(32, [](gn_u32 lane) { return __reduce_and_sync(FULL, ~(1u << lane)) == 0; }));
  CHECK(right_in_all_schedules(32, [](gn_u32 lane) { return __reduce_xor_sync(FULL, lane) == 0; }));
}

void diverged_groups_do_not_mix() {
  CHECK(right_in_all_schedules(32, [](gn_u32 lane) {
    gn_u32 mine = lane % 2 ? 0xaaaaaaaau : 0x55555555u;
    unsigned first = __ballot_sync(mine, 1);
    unsigned sum = __reduce_add_sync(mine, lane);
    __syncwarp();
    return first == mine && sum == (lane % 2 ? 256u : 240u);
  }));
}

/// Part of the lanes may be at the next meeting point while the rest are still at one of their own.
void groups_with_overlapping_masks_may_wait_at_once() {
  CHECK(right_in_all_schedules(32, [](gn_u32 lane) {
    unsigned early = 0;
    if (lane < 3) early = __ballot_sync(0x7u, 1);
    if (lane < 2) early += __reduce_add_sync(0x3u, lane);
    unsigned all = __ballot_sync(FULL, 1);
    return all == FULL && early == (lane < 2 ? 8u : lane == 2 ? 7u : 0u);
  }));
}

void lanes_that_ended_need_not_arrive() {
  CHECK(right_in_all_schedules(
      32, [](gn_u32 lane) { return lane < 8 || __ballot_sync(FULL, 1) == 0xffffff00u; }));
  // a partial warp
  CHECK(right_in_all_schedules(5, [](gn_u32) { return __ballot_sync(FULL, 1) == 0x1fu; }));
}

void a_block_barrier_waits_for_every_warp() {
  gn_u32 arrived = 0;
  unsigned wrong = 0;
  simt::Options o;
  o.preempt = 1;
  simt::launch(1, 100, o, [&] {
    for (gn_u32 round = 1; round <= 20; ++round) {
      gn::mem::add_relaxed_cta(&arrived, 1u);
      __syncthreads();
      if (gn::mem::ld_relaxed_cta(&arrived) != round * 100) ++wrong;
      __syncthreads();
    }
  });
  CHECK(wrong == 0);
}

void ids_are_those_of_the_launch() {
  unsigned seen[3][70] = {}, wrong = 0;
  simt::launch(3, 70, {}, [&] {
    ++seen[blockIdx.x][threadIdx.x];
    if (blockDim.x != 70 || gridDim.x != 3 || gn::warp_in_block() != threadIdx.x / 32) ++wrong;
    if (gn::lt_mask() != (1u << threadIdx.x % 32) - 1) ++wrong;
  });
  CHECK(wrong == 0);
  for (auto& block : seen)
    for (unsigned n : block) CHECK(n == 1);
}

void endian_helpers() {
  CHECK(gn::be16(0x0102) == 0x0201);
  CHECK(gn::be32(0x01020304u) == 0x04030201u);
  CHECK(gn::be64(0x0102030405060708ull) == 0x0807060504030201ull);
}

// Misuse that the runtime must report.

void different_collectives_in_one_group_are_reported() {
  simt::Stats s = simt::launch(1, 32, check::returning(), [] {
    if (gn::lane_id() == 3)
      __any_sync(FULL, 1);
    else
      __ballot_sync(FULL, 1);
  });
  CHECK(s.failure == simt::FAIL_MISUSE);
  CHECK(check::says(s, "disagree"));
  CHECK(check::says(s, "collective.cpp"));
}

void a_full_mask_under_divergence_is_reported() {
  simt::Stats s = simt::launch(1, 32, check::returning(), [] {
    if (gn::lane_id() == 0) __syncwarp(FULL);
    __ballot_sync(FULL, 1);
  });
  CHECK(s.failed);
}

void a_caller_outside_its_mask_is_reported() {
  simt::Stats s = simt::launch(1, 32, check::returning(), [] { __syncwarp(0xfffffffeu); });
  CHECK(s.failure == simt::FAIL_MISUSE);
  CHECK(check::says(s, "not in its own mask"));
}

void a_shuffle_from_an_absent_lane_is_reported() {
  simt::Stats s = simt::launch(1, 32, check::returning(), [] {
    if (gn::lane_id() < 16) __shfl_sync(0xffffu, 1u, 20);
  });
  CHECK(s.failure == simt::FAIL_MISUSE);
  CHECK(check::says(s, "takes no part"));
}

void narrow_scopes_towards_the_host_are_reported() {
  static gn_u32 host_word;
  simt::Region visible{&host_word, sizeof host_word};
  auto nothing = [] { return false; };
  auto with = [&](auto body) {
    return simt::launch_with_host({1, 1}, check::returning(), {&visible, 1}, body, nothing);
  };
  CHECK(check::says(with([] { gn::mem::st_release_gpu(&host_word, 1); }), "gpu scope"));
  CHECK(check::says(with([] { gn::mem::ld_acquire_cta(&host_word); }), "cta scope"));
  CHECK(!with([] { gn::mem::st_release_sys(&host_word, 1); }).failed);
}

}  // namespace

int main() {
  RUN(votes);
  RUN(match_any_gives_the_full_mask_of_equal_lanes);
  RUN(shuffles);
  RUN(reductions);
  RUN(diverged_groups_do_not_mix);
  RUN(groups_with_overlapping_masks_may_wait_at_once);
  RUN(lanes_that_ended_need_not_arrive);
  RUN(a_block_barrier_waits_for_every_warp);
  RUN(ids_are_those_of_the_launch);
  RUN(endian_helpers);
  RUN(different_collectives_in_one_group_are_reported);
  RUN(a_full_mask_under_divergence_is_reported);
  RUN(a_caller_outside_its_mask_is_reported);
  RUN(a_shuffle_from_an_absent_lane_is_reported);
  RUN(narrow_scopes_towards_the_host_are_reported);
  return check::failures != 0;
}
