// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What the runtime's steps cost, in ns; printed, not judged. preempt = 0, as in production host mode.
#include "check.hpp"

namespace {

constexpr unsigned ROUNDS = 100000;

template <class F>
void measure(const char* what, unsigned lanes, F body) {
  simt::Options o;
  o.preempt = 0;
  uint64_t begin = simt::monotonic_ns();
  simt::Stats s = simt::launch(1, lanes, o, body);
  uint64_t ns = simt::monotonic_ns() - begin;
  printf("%-44s %6.1f ns a lane and step, %.2f switches each\n", what,
         static_cast<double>(ns) / ROUNDS / lanes, static_cast<double>(s.switches) / ROUNDS / lanes);
}

}  // namespace

int main() {
  static gn_u32 word;
  measure("pause, 2 lanes", 2, [] { for (unsigned i = 0; i < ROUNDS; ++i) gn::pause(1); });
  measure("pause, 32 lanes", 32, [] { for (unsigned i = 0; i < ROUNDS; ++i) gn::pause(1); });
  measure("pause, 256 lanes", 256, [] { for (unsigned i = 0; i < ROUNDS; ++i) gn::pause(1); });
  measure("ballot, 32 lanes", 32, [] {
    for (unsigned i = 0; i < ROUNDS; ++i) __ballot_sync(0xffffffffu, i & 1);
  });
  measure("shuffle, 32 lanes", 32, [] {
    for (unsigned i = 0; i < ROUNDS; ++i) __shfl_sync(0xffffffffu, i, 0);
  });
  measure("syncthreads, 256 lanes", 256, [] { for (unsigned i = 0; i < ROUNDS; ++i) __syncthreads(); });
  measure("acquire load, 32 lanes", 32, [] {
    for (unsigned i = 0; i < ROUNDS; ++i) gn::mem::ld_acquire_gpu(&word);
  });
  return 0;
}
