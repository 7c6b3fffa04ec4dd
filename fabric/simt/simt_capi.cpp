// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "simt_capi.h"

#include <stdlib.h>
#include <string.h>

#include "simt_run.hpp"

static_assert(GN_SIMT_ARGUMENT == simt::FAIL_ARGUMENT && GN_SIMT_MISUSE == simt::FAIL_MISUSE &&
                  GN_SIMT_DEADLOCK == simt::FAIL_DEADLOCK && GN_SIMT_LIVELOCK == simt::FAIL_LIVELOCK &&
                  GN_SIMT_DEADLINE == simt::FAIL_DEADLINE,
              "the C codes are the C++ ones");
static_assert(sizeof(simt::Stats::message) == GN_SIMT_MESSAGE_BYTES, "messages are copied whole");

namespace {

/// The C++ objects of one call, with one allocation for each kind.
struct Call {
  simt::Grid* grids;
  simt::Region* regions;
  const gn_simt_options* options;
};

bool host_step(void* p) {
  const gn_simt_options* o = static_cast<Call*>(p)->options;
  return o->host_step(o->host_arg) != 0;
}

void return_instead_of_exit(void*, const char*) {}

simt::Options convert(const gn_simt_options& in) {
  simt::Options out;
  out.seed = in.seed;
  out.preempt = in.preempt;
  out.weak = in.weak != 0;
  out.idle_yields = in.idle_yields;
  out.deadline_ns = in.deadline_ns;
  if (in.max_steps) out.max_steps = in.max_steps;
  if (in.stack_bytes) out.stack = in.stack_bytes;
  out.abort_run = return_instead_of_exit;
  return out;
}

template <class T>
T* allocate(size_t n) {
  T* p = static_cast<T*>(calloc(n ? n : 1, sizeof(T)));
  if (!p) abort();
  return p;
}

}  // namespace

void gn_simt_default_options(gn_simt_options* options) {
  memset(options, 0, sizeof *options);
  options->seed = 1;
  options->idle_yields = simt::Options{}.idle_yields;
}

int gn_simt_run(const gn_simt_grid* grids, size_t ngrids, const gn_simt_options* options,
                gn_simt_result* result) {
  gn_simt_options defaults;
  gn_simt_default_options(&defaults);
  if (!options) options = &defaults;

  Call call{allocate<simt::Grid>(ngrids), allocate<simt::Region>(options->nregions), options};
  for (size_t i = 0; i < ngrids; ++i) {
    const gn_simt_grid& g = grids[i];
    call.grids[i] = {g.grid, g.block, g.smem_bytes, g.body, g.arg, g.on_done, g.done_arg};
  }
  for (uint32_t i = 0; i < options->nregions; ++i)
    call.regions[i] = {options->regions[i].lo, options->regions[i].len_bytes};

  simt::Host host{options->host_step ? host_step : nullptr, &call};
  simt::Stats stats =
      simt::run(call.grids, ngrids, convert(*options), {call.regions, options->nregions}, host);
  free(call.grids);
  free(call.regions);

  if (result) {
    memset(result, 0, sizeof *result);
    result->yields = stats.yields;
    result->switches = stats.switches;
    result->os_yields = stats.os_yields;
    result->failure = stats.failure;
    memcpy(result->message, stats.message, sizeof result->message);
  }
  return static_cast<int>(stats.failure);
}

void gn_simt_set_clock(uint64_t (*clock_ns)(void)) {
  simt::clock_ns = clock_ns ? clock_ns : simt::monotonic_ns;
}
