// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Runs beside other threads: peers that the lanes wait for, and runs of other threads.
#pragma once
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"

namespace {

using gn::mem::add_acqrel_gpu;
using gn::mem::exch_acquire_gpu;
using gn::mem::ld_acquire_sys;
using gn::mem::st_release_gpu;
using gn::mem::st_release_sys;

void an_idle_run_offers_its_cpu() {
  simt::Options o = check::returning();
  o.preempt = 0;
  o.deadline_ns = 20000000000u;
  gn_u32 mail[2] = {};
  pthread_t peer;
  pthread_create(
      &peer, nullptr,
      [](void* p) -> void* {
        gn_u32* mail = static_cast<gn_u32*>(p);
        for (gn_u32 i = 1; i <= 50; ++i) {
          while (__atomic_load_n(&mail[0], __ATOMIC_ACQUIRE) != i) sched_yield();
          usleep(100);
          __atomic_store_n(&mail[1], i, __ATOMIC_RELEASE);
        }
        return nullptr;
      },
      mail);
  simt::Stats s = simt::launch(1, 32, o, [&] {
    for (gn_u32 i = 1; i <= 50; ++i) {
      if (gn::lane_id() == 0) st_release_sys(&mail[0], i);
      while (ld_acquire_sys(&mail[1]) < i) gn::pause(100);
      __syncwarp();
    }
  });
  pthread_join(peer, nullptr);
  CHECK(!s.failed);
  CHECK(s.os_yields > 0);
}

/// How often this thread has slept.
long sleeps() {
  rusage used;
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

/// The lanes poll under a lock, as a client that waits for a completion does.
void a_run_that_waits_for_long_sleeps() {
  simt::Options o = check::returning();
  o.preempt = 0;
  o.deadline_ns = 20000000000u;
  gn_u32 answer = 0, lock = 0;
  long before = sleeps();
  pthread_t peer;
  pthread_create(
      &peer, nullptr,
      [](void* p) -> void* {
        usleep(300000);
        __atomic_store_n(static_cast<gn_u32*>(p), 1u, __ATOMIC_RELEASE);
        return nullptr;
      },
      &answer);
  simt::Stats s = simt::launch(1, 32, o, [&] {
    for (bool done = false; !done; gn::pause(100)) {
      if (exch_acquire_gpu(&lock, 1u)) continue;
      done = ld_acquire_sys(&answer);
      st_release_gpu(&lock, 0u);
    }
  });
  long slept = sleeps() - before;
  pthread_join(peer, nullptr);
  CHECK(!s.failed);
  CHECK(slept >= 20);
}

/// The lanes wait for a word that comes after the process was stopped for longer than their deadline.
void a_deadline_stands_still_while_its_process_is_stopped() {
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  gn_u32* words = static_cast<gn_u32*>(shared);
  pid_t child = fork();
  if (!child) {
    simt::Options o = check::returning();
    o.preempt = 0;
    o.deadline_ns = 1500000000u;
    simt::Stats s = simt::launch(1, 32, o, [&] {
      if (gn::lane_id() == 0) st_release_sys(&words[0], 1u);
      while (!ld_acquire_sys(&words[1])) gn::pause(100);
    });
    _exit(s.failed ? 1 : 0);
  }
  while (!__atomic_load_n(&words[0], __ATOMIC_ACQUIRE)) usleep(1000);
  // The run has looked at the clocks by then.
  usleep(300000);
  kill(child, SIGSTOP);
  usleep(2500000);
  kill(child, SIGCONT);
  // The run looks at its deadline before the word comes.
  usleep(300000);
  __atomic_store_n(&words[1], 1u, __ATOMIC_RELEASE);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  munmap(shared, 4096);
}

void several_threads_may_each_have_a_run() {
  pthread_t threads[4];
  static gn_u32 lanes[4];
  for (unsigned i = 0; i < 4; ++i) {
    lanes[i] = 0;
    pthread_create(
        &threads[i], nullptr,
        [](void* p) -> void* {
          gn_u32* count = static_cast<gn_u32*>(p);
          for (uint64_t seed = 1; seed <= 20; ++seed) {
            simt::Options o;
            o.seed = seed;
            simt::launch(2, 64, o, [&] {
              __syncthreads();
              add_acqrel_gpu(count, 1u);
              gn::pause(1);
            });
          }
          return nullptr;
        },
        &lanes[i]);
  }
  for (pthread_t t : threads) pthread_join(t, nullptr);
  for (gn_u32 n : lanes) CHECK(n == 20 * 128);
}

}  // namespace
