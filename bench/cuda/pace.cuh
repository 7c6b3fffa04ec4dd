// SPDX-License-Identifier: Apache-2.0 OR MIT The schedule of a client with a limited rate (--rate-iops):
// start n is due at `begin` plus n intervals. Threads take the starts in order and wait for theirs. A start
// that is due while all threads have requests in flight is taken late. Its latency counts from the time at
// which it was due. So a stall of the array shows in the latencies of all requests that it delays, and not
// only of those requests in flight.
#pragma once
#include "bench.h"

namespace gn { namespace bench {

// Fraction bits of an interval in nanoseconds; and starts whose directions are shuffled together.
enum : gn_u32 { INTERVAL_BITS = 16, WINDOW = 64 };

// Shared memory of a client's block.
struct schedule {
  gn_u64 begin;  // when start 0 is due, by the device's clock
  gn_u64 taken;  // starts that threads have taken
};

// All threads of the block call it, once.
GN_DEV void schedule_init(schedule& s) {
  if (threadIdx.x == 0) {
    s.begin = now_ns();
    s.taken = 0;
  }
  __syncthreads();
}

// Whether start n is a read. `read_share` of 2^32 starts are reads, and any number of starts has its share,
// up to one. The order within a window is random. Otherwise threads that take every k-th start would only
// read, or only write.
GN_DEV bool start_reads(const args& a, gn_u64 n) {
  gn_u32 shuffled = (gn_u32)n ^ (gn_u32)(mix64(a.seed ^ n / WINDOW) % WINDOW);
  return (a.read_share + (gn_u32)(shuffled * (gn_u32)a.read_share)) >> 32;
}

// The next start of the client: when it is due, and its direction.
GN_DEV gn_u64 take_start(const args& a, schedule& s, bool& writes) {
  gn_u64 n = mem::add_relaxed_cta(&s.taken, (gn_u64)1);
  writes = !start_reads(a, n);
  return s.begin + (n * a.interval >> INTERVAL_BITS);
}

}}  // namespace gn::bench
