// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A test is a function; main() runs them and prints "ok NAME" or "FAILED NAME". run.sh counts these lines.
#pragma once
#include <stdio.h>
#include <string.h>

#include "fabric/arch.cuh"

namespace check {

inline bool failed_here = false;
inline int failures = 0;

inline void that(bool good, const char* text, const char* file, int line) {
  if (good) return;
  failed_here = true;
  printf("  %s:%d: not so: %s\n", file, line, text);
}

inline void run(const char* name, void (*test)()) {
  failed_here = false;
  test();
  failures += failed_here;
  printf("%s %s\n", failed_here ? "FAILED" : "ok", name);
  fflush(stdout);
}

/// Options with which a failure is returned in Stats.
inline simt::Options returning() {
  simt::Options o;
  o.abort_run = [](void*, const char*) {};
  return o;
}

inline bool says(const simt::Stats& s, const char* words) {
  if (strstr(s.message, words)) return true;
  printf("  message is: %s\n", s.message);
  return false;
}

}  // namespace check

#define CHECK(condition) check::that(condition, #condition, __FILE__, __LINE__)
#define RUN(test) check::run(#test, test)
