// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Grids that live together, what ends a run, and what a run leaves behind.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"
#include "peers.hpp"
#include "simt_capi.h"

namespace {

using gn::mem::add_acqrel_gpu;
using gn::mem::ld_acquire_gpu;
using gn::mem::ld_acquire_sys;
using gn::mem::ld_relaxed_gpu;
using gn::mem::st_relaxed_gpu;
using gn::mem::st_release_gpu;
using gn::mem::st_release_sys;

// A resident agent serves client grids until the last client grid has ended.
struct Service {
  gn_u32 requests, served, stop, clients_left;
  gn_u32 done_calls, agent_done_calls;
};

void agent(void* p) {
  Service& s = *static_cast<Service*>(p);
  for (;;) {
    // before the look at the requests, or the last one could be missed
    gn_u32 stop = ld_acquire_sys(&s.stop);
    gn_u32 served = ld_relaxed_gpu(&s.served);
    if (ld_acquire_gpu(&s.requests) != served) {
      if (gn::lane_id() == 0) add_acqrel_gpu(&s.served, 1u);
    } else if (stop) {
      return;
    }
    gn::pause(100);
  }
}

void client(void* p) {
  Service& s = *static_cast<Service*>(p);
  gn_u32 ticket = add_acqrel_gpu(&s.requests, 1u) + 1;
  while (static_cast<int>(ld_acquire_gpu(&s.served) - ticket) < 0) gn::pause(32);
}

void client_grid_done(void* p) {
  Service& s = *static_cast<Service*>(p);
  ++s.done_calls;
  if (--s.clients_left == 0) __atomic_store_n(&s.stop, 1u, __ATOMIC_RELEASE);
}

void agent_grid_done(void* p) { ++static_cast<Service*>(p)->agent_done_calls; }

void an_agent_grid_ends_after_its_clients() {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Service s{};
    s.clients_left = 2;
    simt::Grid grids[] = {
        {1, 1, 0, agent, &s, agent_grid_done, &s},
        {2, 64, 0, client, &s, client_grid_done, &s},
        {3, 33, 0, client, &s, client_grid_done, &s},
    };
    simt::Options o;
    o.seed = seed;
    o.max_steps = 100000000;
    simt::Stats stats = simt::run(grids, 3, o);
    CHECK(!stats.failed);
    CHECK(s.requests == 2 * 64 + 3 * 33);
    CHECK(s.served == s.requests);
    CHECK(s.done_calls == 2 && s.agent_done_calls == 1);
  }
}

void a_host_step_serves_lanes() {
  struct Mailbox {
    gn_u32 question, answer;
  } m{};
  gn_u32 got = 0, last = 0;
  simt::Region visible{&m, sizeof m};
  simt::Stats s = simt::launch_with_host(
      {1, 1}, {}, {&visible, 1},
      [&] {
        for (gn_u32 i = 1; i <= 100; ++i) {
          st_release_sys(&m.question, i);
          while (ld_acquire_sys(&m.answer) != i) gn::pause(10);
          ++got;
        }
      },
      [&] {
        gn_u32 q = __atomic_load_n(&m.question, __ATOMIC_ACQUIRE);
        if (q == last) return false;
        last = q;
        __atomic_store_n(&m.answer, q, __ATOMIC_RELEASE);
        return true;
      });
  CHECK(!s.failed && got == 100);
}

void shared_memory_is_poisoned_and_per_block() {
  unsigned wrong = 0;
  simt::launch(
      4, 64, {},
      [&] {
        gn_u8* mem = gn::smem();
        if (mem[threadIdx.x] != 0xa5 || mem[threadIdx.x + 64] != 0xa5) ++wrong;
        __syncthreads();
        mem[threadIdx.x] = static_cast<gn_u8>(blockIdx.x);
        __syncthreads();
        if (mem[(threadIdx.x + 1) % 64] != blockIdx.x) ++wrong;
        if (reinterpret_cast<size_t>(mem) % 16) ++wrong;
      },
      128);
  CHECK(wrong == 0);
}

void the_same_seed_gives_the_same_schedule() {
  auto order = [](uint64_t seed) {
    gn_u64 hash = 0;
    simt::Options o;
    o.seed = seed;
    simt::launch(2, 64, o, [&] {
      for (int i = 0; i < 5; ++i) {
        gn_u64 before = ld_relaxed_gpu(&hash);
        st_relaxed_gpu(&hash, before * 31 + blockIdx.x * 64 + threadIdx.x);
        gn::pause(1);
      }
    });
    return hash;
  };
  CHECK(order(7) == order(7));
  CHECK(order(7) != order(8));
}

void a_loop_without_pause_gives_way_even_without_preemption() {
  simt::Options o = check::returning();
  o.preempt = 0;
  o.deadline_ns = 10000000000u;
  gn_u32 flag = 0;
  simt::Stats s = simt::launch(1, 64, o, [&] {
    if (threadIdx.x == 63) st_release_sys(&flag, 1);
    while (!ld_acquire_sys(&flag)) {
    }
  });
  CHECK(!s.failed);
}

gn_u64 virtual_now;
uint64_t virtual_clock() { return __atomic_load_n(&virtual_now, __ATOMIC_RELAXED); }

void time_can_be_virtual() {
  simt::clock_ns = virtual_clock;
  virtual_now = 0;
  unsigned early = 0;
  simt::launch_with_host(
      {1, 32}, {}, {},
      [&] {
        while (gn::now_ns() < 1000) gn::pause(100);
        if (virtual_clock() < 1000) ++early;
      },
      [] {
        __atomic_fetch_add(&virtual_now, 1, __ATOMIC_RELAXED);
        return true;
      });
  simt::clock_ns = simt::monotonic_ns;
  CHECK(early == 0 && virtual_now >= 1000 && virtual_now < 100000);
}

// Events that end a run.

void a_deadlock_names_the_waiting_lanes() {
  simt::Stats s = simt::launch(1, 64, check::returning(), [] {
    if (threadIdx.x < 32)
      __syncthreads();
    else if (threadIdx.x < 48)
      __syncwarp(0xffffffffu);
    else
      __syncthreads();   // the other half of this warp waits for these lanes in another place
  });
  CHECK(s.failure == simt::FAIL_DEADLOCK);
  CHECK(check::says(s, "wait in __syncthreads (48 of 64 arrived)"));
  CHECK(check::says(s, "wait in __syncwarp(ffffffff) (arrived 0000ffff, live ffffffff)"));
  CHECK(check::says(s, "runs.cpp"));
}

void a_livelock_uses_up_its_steps() {
  simt::Options o = check::returning();
  o.max_steps = 5000;
  gn_u32 never = 0;
  simt::Stats s = simt::launch(1, 4, o, [&] {
    while (!ld_acquire_gpu(&never)) gn::pause(10);
  });
  CHECK(s.failure == simt::FAIL_LIVELOCK);
}

void a_deadline_ends_a_hang_and_says_where() {
  simt::Options o = check::returning();
  o.deadline_ns = 20000000;
  gn_u32 never = 0;
  uint64_t before = simt::monotonic_ns();
  simt::Stats paused = simt::launch(2, 40, o, [&] {
    while (!ld_acquire_gpu(&never)) gn::pause(10);
  });
  CHECK(paused.failure == simt::FAIL_DEADLINE);
  CHECK(check::says(paused, "deadline of 20 ms"));
  CHECK(check::says(paused, "block 1 warp 0 lanes"));
  simt::Stats voting = simt::launch(1, 64, o, [&] {
    while (!__any_sync(0xffffffffu, 0)) {
    }
  });
  CHECK(voting.failure == simt::FAIL_DEADLINE);
  CHECK(simt::monotonic_ns() - before < 5000000000u);
}

void an_aborted_run_leaves_the_thread_usable() {
  for (int round = 0; round < 3; ++round) {
    simt::Stats bad = simt::launch(2, 64, check::returning(), [] {
      volatile char on_stack[2000];
      on_stack[threadIdx.x] = 1;
      if (threadIdx.x == 50 && on_stack[50]) __syncwarp(1);
      __syncthreads();
    });
    CHECK(bad.failure == simt::FAIL_MISUSE);
    gn_u32 lanes = 0;
    CHECK(!simt::launch(2, 64, {}, [&] { add_acqrel_gpu(&lanes, 1u); }).failed);
    CHECK(lanes == 128);
  }
}

void impossible_requests_are_refused() {
  simt::Options o = check::returning();
  auto nothing = [] {};
  CHECK(simt::launch(1, 2000, o, nothing).failure == simt::FAIL_ARGUMENT);
  CHECK(simt::launch(0, 32, o, nothing).failure == simt::FAIL_ARGUMENT);
  CHECK(simt::launch(1000, 1024, o, nothing).failure == simt::FAIL_ARGUMENT);
  CHECK(simt::run(nullptr, 0, o).failure == simt::FAIL_ARGUMENT);
}

int exit_code_of(void (*program)()) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    if (!freopen("/dev/null", "w", stderr)) _exit(1);
    program();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void without_a_callback_a_failure_ends_the_process() {
  CHECK(exit_code_of([] { simt::launch(1, 32, {}, [] { __syncwarp(1); }); }) == 70);
  CHECK(exit_code_of([] {
          simt::launch(1, 64, {}, [] {
            if (threadIdx.x < 32)
              __syncthreads();
            else
              __syncwarp(threadIdx.x < 48 ? 0xffffffffu : 0xffff0000u);
            if (threadIdx.x >= 48) __syncthreads();
          });
        }) == 71);
}

void the_c_interface_returns_errors() {
  gn_simt_options options;
  gn_simt_default_options(&options);
  gn_simt_result result;
  gn_u32 lanes = 0;
  gn_simt_grid good{2,      40,      0,      [](void* p) { add_acqrel_gpu(static_cast<gn_u32*>(p), 1u); },
                    &lanes, nullptr, nullptr};
  CHECK(gn_simt_run(&good, 1, &options, &result) == GN_SIMT_OK);
  CHECK(lanes == 80 && result.failure == 0 && result.message[0] == 0);

  gn_u32 never = 0;
  gn_simt_grid hang{1, 32, 0,
                    [](void* p) {
                      while (!ld_acquire_gpu(static_cast<gn_u32*>(p))) gn::pause(1);
                    },
                    &never, nullptr, nullptr};
  options.deadline_ns = 10000000;
  CHECK(gn_simt_run(&hang, 1, &options, &result) == GN_SIMT_DEADLINE);
  CHECK(strstr(result.message, "deadline") != nullptr);
  CHECK(gn_simt_run(nullptr, 0, nullptr, nullptr) == GN_SIMT_ARGUMENT);
}

}  // namespace

int main() {
  RUN(an_agent_grid_ends_after_its_clients);
  RUN(a_host_step_serves_lanes);
  RUN(shared_memory_is_poisoned_and_per_block);
  RUN(the_same_seed_gives_the_same_schedule);
  RUN(a_loop_without_pause_gives_way_even_without_preemption);
  RUN(time_can_be_virtual);
  RUN(a_deadlock_names_the_waiting_lanes);
  RUN(a_livelock_uses_up_its_steps);
  RUN(a_deadline_ends_a_hang_and_says_where);
  RUN(an_aborted_run_leaves_the_thread_usable);
  RUN(impossible_requests_are_refused);
  RUN(without_a_callback_a_failure_ends_the_process);
  RUN(an_idle_run_offers_its_cpu);
  RUN(a_run_that_waits_for_long_sleeps);
  RUN(a_deadline_stands_still_while_its_process_is_stopped);
  RUN(several_threads_may_each_have_a_run);
  RUN(the_c_interface_returns_errors);
  return check::failures != 0;
}
