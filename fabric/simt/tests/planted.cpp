// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Bugs that a sanitizer must find, and their correct twins, in which it must find nothing. run.sh runs one a
// process:
//   planted NAME     exits 0 unless a sanitizer objects
#include "check.hpp"

using namespace gn::mem;

namespace {

constexpr unsigned FULL = 0xffffffffu;

// The leader hands a value over in shared memory.
void hand_over(bool with_barrier) {
  gn_u32* slot = reinterpret_cast<gn_u32*>(gn::smem()) + gn::warp_in_block();
  if (gn::lane_id() == 0) *slot = 7;
  if (with_barrier)
    __syncwarp();
  else
    __shfl_sync(FULL, 1u, 0);   // arrives later, but orders no memory
  if (*slot != 7) gn::pause(1);
}

// Two halves of a warp, each with its own barrier. These barriers do not order one half with the other.
void halves(bool with_barrier) {
  gn_u32* slot = reinterpret_cast<gn_u32*>(gn::smem()) + gn::warp_in_block();
  gn_u32 lane = gn::lane_id();
  if (lane == 0) *slot = 7;
  __syncwarp(lane < 16 ? 0xffffu : 0xffff0000u);
  if (with_barrier) __syncwarp();
  if (lane == 31 && *slot != 7) gn::pause(1);
}

// Blocks share nothing that __syncthreads orders.
void across_blocks() {
  static gn_u32 word;
  if (threadIdx.x == 0 && blockIdx.x == 0) word = 7;
  __syncthreads();
  if (threadIdx.x == 1 && blockIdx.x == 1 && word != 7) gn::pause(1);
}

// __syncthreads orders the writes of one warp with the reads of another.
void within_a_block() {
  gn_u32* word = reinterpret_cast<gn_u32*>(gn::smem());
  if (threadIdx.x == 0) *word = 7;
  __syncthreads();
  if (*word != 7) gn::pause(1);
}

// One warp publishes data for another.
void publish(bool with_release) {
  gn_u32* data = reinterpret_cast<gn_u32*>(gn::smem());
  gn_u32* flag = data + 1;
  if (threadIdx.x == 0) st_relaxed_cta(flag, 0);
  __syncthreads();
  if (threadIdx.x == 0) {
    *data = 7;
    if (with_release)
      st_release_cta(flag, 1);
    else
      st_relaxed_cta(flag, 1);
  } else if (threadIdx.x == 32) {
    while (!ld_acquire_cta(flag)) gn::pause(1);
    if (*data != 7) gn::pause(1);
  }
}

void write_smem(unsigned bytes) {
  if (threadIdx.x == 0) gn::smem()[bytes] = 1;
}

struct Program {
  const char* name;
  void (*lane)();
};
const Program PROGRAMS[] = {
    {"barrier", [] { hand_over(true); }},
    {"shuffle_for_barrier", [] { hand_over(false); }},
    {"both_halves", [] { halves(true); }},
    {"separate_halves", [] { halves(false); }},
    {"within_a_block", [] { within_a_block(); }},
    {"across_blocks", [] { across_blocks(); }},
    {"release", [] { publish(true); }},
    {"relaxed_publish", [] { publish(false); }},
    {"smem_inside", [] { write_smem(63); }},
    {"smem_overrun", [] { write_smem(64); }},
};

}  // namespace

int main(int argc, char** argv) {
  for (const Program& p : PROGRAMS) {
    if (argc != 2 || strcmp(p.name, argv[1]) != 0) continue;
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      simt::Options o;
      o.seed = seed;
      simt::launch(2, 64, o, p.lane, 64);
    }
    return 0;
  }
  fprintf(stderr, "usage: planted NAME\n");
  return 2;
}
