// SPDX-License-Identifier: Apache-2.0 OR MIT
// The load generator's kernel compiled for the CPU execution, and the layouts as the C++ compiler sees them.
#include "bench.cu"
#include "layout.h"

namespace gn { namespace bench {

extern "C" const gn_layout_row gn_bench_layout[] = {
    {SIZE(lane_result)},
    {FIELD(lane_result, verified)},
    {FIELD(lane_result, wrong)},
    {FIELD(lane_result, found)},
    {FIELD(lane_result, wanted)},
    {FIELD(lane_result, failed_vba)},
    {SIZE(client)},
    {FIELD(client, buffers)},
    {FIELD(client, generations)},
    {FIELD(client, lanes)},
    {FIELD(client, histograms)},
    {FIELD(client, requests)},
    {FIELD(client, answers)},
    {FIELD(client, key)},
    {SIZE(args)},
    {FIELD(args, stop)},
    {FIELD(args, seed)},
    {FIELD(args, depth)},
    {FIELD(args, units)},
    {FIELD(args, flags)},
    {FIELD(args, replica)},
    {FIELD(args, multiprocessors)},
    {FIELD(args, interval)},
    {FIELD(args, read_share)},
    {SIZE(shared)},
    {"buckets", BUCKETS},
    {nullptr, 0},
};
}}  // namespace gn::bench

// The next start of a client's schedule, for the test of its times and directions.
extern "C" unsigned long long gn_bench_take_start(const gn::bench::args* a, gn::bench::schedule* s,
                                                  unsigned* writes) {
  bool is_write;
  gn_u64 due = gn::bench::take_start(*a, *s, is_write);
  *writes = is_write;
  return due;
}

// Bucket of a latency, for the test that compares it with the host's reading of it.
extern "C" unsigned gn_bench_bucket_of(unsigned long long ns) { return gn::bench::bucket_of(ns); }
