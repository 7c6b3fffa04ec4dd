// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What went wrong, and where every lane is. The text is put together in the scheduler's context, after the
// failing lane has been left for good.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rt.hpp"

namespace simt::rt {

namespace {

constexpr size_t REPORT_BYTES = 16 << 10;
constexpr int EXIT_DEADLOCK = 71, EXIT_OTHER = 70;

struct Text {
  char* at;
  size_t left;   // the NUL included

  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(at, left, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : static_cast<size_t>(n) < left ? static_cast<size_t>(n) : left - 1;
    at += used;
    left -= used;
  }
};

bool same_place(const Lane& a, const Lane& b) {
  return a.waits_in == b.waits_in && a.seen.file == b.seen.file && a.seen.line == b.seen.line;
}

/// Writes one line for all lanes of the warp that are at the same place.
void describe_warp(Text& text, const Sim& s, const Warp& w) {
  unsigned todo = w.live;
  while (todo) {
    const Lane& first = w.lanes[__builtin_ctz(todo)];
    unsigned here = 0;
    for (unsigned i = 0; i < WARP; ++i)
      if (todo >> i & 1 && same_place(first, w.lanes[i])) here |= 1u << i;
    todo &= ~here;

    text.add("  grid %zu block %u warp %u lanes %08x ", static_cast<size_t>(w.block->grid - s.grids),
             first.block.x, first.thread.x / WARP, here);
    const Group* g = first.waits_in;
    if (!g)
      text.add("last seen");
    else if (g->op == OP_SYNCTHREADS)
      text.add("wait in __syncthreads (%u of %u arrived)", w.block->arrived, w.block->live);
    else
      text.add("wait in %s(%08x) (arrived %08x, live %08x)", op_name(g->op), g->mask, g->arrived, w.live);
    if (first.seen.file)
      text.add(" at %s:%d\n", first.seen.file, first.seen.line);
    else
      text.add(" before its first step\n");
  }
}

}  // namespace

static void note_failure(Sim& s, Failure failure, const char* format, va_list args) {
  s.stats.failed = true;
  s.stats.failure = failure;
  vsnprintf(s.what, sizeof s.what, format, args);
}

void fail_run(Sim& s, Failure failure, const char* format, ...) {
  va_list args;
  va_start(args, format);
  note_failure(s, failure, format, args);
  va_end(args);
}

void fail_lane(Sim& s, Lane* l, Failure failure, const char* format, ...) {
  va_list args;
  va_start(args, format);
  note_failure(s, failure, format, args);
  va_end(args);

  size_t used = strlen(s.what);
  snprintf(s.what + used, sizeof s.what - used, "; grid %zu block %u thread %u at %s:%d",
           static_cast<size_t>(l->warp->block->grid - s.grids), l->block.x, l->thread.x,
           l->seen.file ? l->seen.file : "its start", l->seen.line);
  abandon_lane(s, l);
}

void report_failure(Sim& s) {
  tsan_acquire(&s.fail_order);
  char* report = static_cast<char*>(malloc(REPORT_BYTES));
  if (!report) abort();
  Text text{report, REPORT_BYTES};
  text.add("simt: %s; seed %llu\n", s.what, static_cast<unsigned long long>(s.options.seed));
  for (unsigned i = 0; i < s.nlanes / WARP; ++i) describe_warp(text, s, s.warps[i]);
  snprintf(s.stats.message, sizeof s.stats.message, "%.*s", static_cast<int>(sizeof s.stats.message - 1),
           report);

  if (s.options.on_fail) s.options.on_fail(report);
  if (s.options.abort_run) {
    s.options.abort_run(s.options.abort_arg, report);
    free(report);
    return;
  }
  fputs(report, stderr);
  fflush(stderr);
  _exit(s.stats.failure == FAIL_DEADLOCK ? EXIT_DEADLOCK : EXIT_OTHER);
}

}  // namespace simt::rt
