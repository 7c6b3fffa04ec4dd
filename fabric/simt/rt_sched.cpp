// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Which lane runs next. A lane runs until it waits in a collective, pauses, or reaches an access at which the
// seed says "switch"; then any runnable lane follows. Lanes switch to each other directly. The scheduler's
// own stack is used when no lane can run, when a lane ended, and for the host's turn.
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "rt.hpp"

namespace simt {

__thread Ids* cur = nullptr;

// The transport's clock, too: its offset to this one stays right while the machine is suspended.
uint64_t monotonic_ns() {
  timespec t;
  clock_gettime(CLOCK_BOOTTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}
uint64_t (*clock_ns)() = monotonic_ns;

namespace rt {

/// Throughput order, for runs that do not explore (preempt = 0). A warp is kept together until all its lanes
/// wait or pause. A collective then costs one switch a lane. A random choice among n lanes would need some n
/// log n to bring the last one. A lane that paused does not run again before every other warp had its turn. A
/// warp that never pauses gives way all the same.
static Lane* next_in_turn(Sim& s, const Lane* self, bool paused) {
  constexpr unsigned TURN_SWITCHES = 32 * WARP;
  unsigned warp = self->index / WARP * WARP, lane = self->index % WARP;
  if (++s.turn_switches < TURN_SWITCHES) {
    for (unsigned k = 1; k < WARP; ++k) {
      if (paused && lane + k >= WARP) break;
      Lane* l = &s.lanes[warp + (lane + k) % WARP];
      if (l->run_slot != NOT_RUNNABLE) return l;
    }
  }
  s.turn_switches = 0;
  for (unsigned i = 0; i < s.nlanes; ++i) {
    Lane* l = &s.lanes[(warp + WARP + i) % s.nlanes];
    if (l->run_slot != NOT_RUNNABLE) return l;
  }
  return nullptr;  // the callers have made sure that a lane can run
}

static Lane* next_lane(Sim& s, const Lane* self, bool paused) {
  return s.options.preempt ? pick(s) : next_in_turn(s, self, paused);
}

Lane* pick(Sim& s) { return &s.lanes[s.runnable[random_below(s, s.nrunnable)]]; }

void make_runnable(Sim& s, Lane* l) {
  l->run_slot = s.nrunnable;
  s.runnable[s.nrunnable++] = l->index;
}

static void stop_running(Sim& s, Lane* l) {
  unsigned moved = s.runnable[--s.nrunnable];
  s.runnable[l->run_slot] = moved;
  s.lanes[moved].run_slot = l->run_slot;
  l->run_slot = NOT_RUNNABLE;
}

void enter_lane(Sim& s, Lane* to) {
  cur = to;
  ++s.stats.switches;
  s.slice = SLICE_ACCESSES;
  tsan_switch(to->tsan_fiber);
  asan_leave(&s.asan_fake_stack, to->stack, s.options.stack);
  gn_simt_switch(&s.sp, to->sp);
  asan_arrive(s.asan_fake_stack);
  cur = nullptr;
}

/// `for_good`: this lane will not be continued.
static void to_scheduler(Sim& s, Lane* from, bool for_good) {
  tsan_switch(s.tsan_fiber);
  asan_leave(for_good ? nullptr : &from->asan_fake_stack, s.stack, s.stack_len);
  gn_simt_switch(&from->sp, s.sp);
  asan_arrive(from->asan_fake_stack);
}

static void hop(Sim& s, Lane* from, Lane* to) {
  s.slice = SLICE_ACCESSES;
  if (from == to) return;
  cur = to;
  ++s.stats.switches;
  tsan_switch(to->tsan_fiber);
  asan_leave(&from->asan_fake_stack, to->stack, s.options.stack);
  gn_simt_switch(&from->sp, to->sp);
  asan_arrive(from->asan_fake_stack);
}

static uint64_t thread_cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

/// Moves the deadline by the time for which the process was stopped: its lanes, and the peers that they wait
/// for, could not run. The thread's own naps are far shorter than STOPPED_NS, and a lane that computes takes
/// processor time.
static void forgive_stop(Sim& s, uint64_t now) {
  constexpr uint64_t SAMPLE_NS = 100000000, STOPPED_NS = 1000000000;
  if (now - s.sampled_ns < SAMPLE_NS) return;
  uint64_t cpu = thread_cpu_ns(), passed = now - s.sampled_ns, ran = cpu - s.sampled_cpu_ns;
  if (s.sampled_ns && passed > ran + STOPPED_NS) s.deadline_at_ns += passed - ran;
  s.sampled_ns = now;
  s.sampled_cpu_ns = cpu;
}

static void check_deadline(Sim& s, Lane* self) {
  if (--s.until_housekeeping) return;
  s.until_housekeeping = HOUSEKEEPING_SWITCHES;
  if (!s.deadline_at_ns) return;
  uint64_t now = monotonic_ns();
  forgive_stop(s, now);
  if (now > s.deadline_at_ns)
    fail_lane(s, self, FAIL_DEADLINE, "deadline of %llu ms exceeded",
              static_cast<unsigned long long>(s.options.deadline_ns / 1000000));
}

void give_way(Sim& s, Lane* self) {
  if (++s.stats.yields > s.options.max_steps)
    fail_lane(s, self, FAIL_LIVELOCK, "step budget used up (livelock?)");
  check_deadline(s, self);
  if (s.options.weak) drain_something(s);
  if (s.host.step && random_below(s, HOST_TURN_ODDS) == 0)
    to_scheduler(s, self, false);
  else
    hop(s, self, next_lane(s, self, true));
}

void wait_for_group(Sim& s, Lane* self, Group* group) {
  check_deadline(s, self);
  self->waits_in = group;
  stop_running(s, self);
  if (s.nrunnable)
    hop(s, self, next_lane(s, self, false));
  else
    to_scheduler(s, self, false);
  self->waits_in = nullptr;
}

/// Offers the CPU. Lanes that tell their peers nothing for a while wait for an answer. The thread then sleeps
/// between two looks, as a transport's thread does. A wait of seconds would otherwise take a core, also from
/// the peer that it waits for.
static void offer_cpu(Sim& s) {
  constexpr uint64_t AWAKE_NS = 1000000, LONG_NS = 4000000;
  constexpr long NAP_NS = 50000, LONG_NAP_NS = 200000;
  if (s.told_peers) s.quiet_since_ns = 0;
  s.told_peers = false;
  uint64_t now = monotonic_ns();
  if (!s.quiet_since_ns) s.quiet_since_ns = now;
  uint64_t quiet = now - s.quiet_since_ns;
  ++s.stats.os_yields;
  s.naps = quiet >= AWAKE_NS;
  if (!s.naps) {
    sched_yield();
    return;
  }
  timespec nap{0, quiet < LONG_NS ? NAP_NS : LONG_NAP_NS};
  nanosleep(&nap, nullptr);
}

/// The peers of a run without a host step are OS threads. When the lanes find nothing to do, the peers need
/// the CPU more than the lanes do. On a machine with few CPUs they would otherwise wait for the end of the
/// time slice.
static void be_polite(Sim& s) {
  // Lanes that poll under a lock write without progress, hence the second, far rarer reason. Lanes that wait
  // for long need no other reason.
  constexpr unsigned BUSY_FACTOR = 16;
  unsigned most = s.naps ? s.idle_limit : BUSY_FACTOR * s.idle_limit;
  ++s.idle_pauses;
  ++s.pauses_since_os_yield;
  if (s.idle_pauses < s.idle_limit && s.pauses_since_os_yield < most) return;
  s.idle_pauses = s.pauses_since_os_yield = 0;
  offer_cpu(s);
}

void lane_entry() {
  Lane* l = current();
  Sim& s = *l->sim;
  const void* old_stack = nullptr;
  size_t old_len = 0;
  asan_arrive(nullptr, &old_stack, &old_len);
  if (!s.stack) {   // the first lane is entered from the scheduler
    s.stack = old_stack;
    s.stack_len = old_len;
  }
  GridState* grid = l->warp->block->grid;
  tsan_acquire(&s.start_order);
  grid->spec->body(grid->spec->arg);

  // Weak mode: the last stores stay hidden for a while, then a kernel's end makes them visible.
  for (unsigned tries = 0; tries < 8 && l->buffer && l->buffer->count; ++tries) give_way(s, l);
  drain_all(l);
  tsan_release(&s.end_order);
  tsan_release(&grid->end_order);

  l->ended = true;
  stop_running(s, l);
  leave_collectives(s, l);
  --s.live;
  if (--grid->live == 0) s.just_ended = grid;
  to_scheduler(s, l, true);
  abort();
}

void abandon_lane(Sim& s, Lane* l) {
  tsan_release(&s.fail_order);
  to_scheduler(s, l, true);
  abort();
}

}  // namespace rt

using rt::Lane;
using rt::Sim;

void pause(Place here) {
  Lane* l = rt::current();
  if (!l) return;
  Sim& s = *l->sim;
  l->seen = here;
  if (s.idle_limit) rt::be_polite(s);
  rt::give_way(s, l);
}

static void maybe_preempt(Sim& s, Lane* l) {
  unsigned preempt = s.options.preempt;
  if (preempt == 1 || --s.slice == 0 || (preempt && rt::random_below(s, preempt) == 0)) rt::give_way(s, l);
}

void point(const void* p, Scope scope, Access access, Place here) {
  Lane* l = rt::current();
  if (!l) return;
  Sim& s = *l->sim;
  l->seen = here;
  for (size_t i = 0; i < s.visible.count; ++i) {
    size_t offset =
        static_cast<size_t>(static_cast<const char*>(p) - static_cast<const char*>(s.visible.regions[i].lo));
    if (offset >= s.visible.regions[i].len) continue;
    if (scope != Scope::sys)
      rt::fail_lane(s, l, FAIL_MISUSE, "access of %s scope to host-visible memory",
                    scope == Scope::gpu ? "gpu" : "cta");
    if (access == Access::rmw)
      rt::fail_lane(s, l, FAIL_MISUSE,
                    "read-modify-write of host-visible memory (over PCIe not atomic with the CPU)");
  }
  if (access != Access::load) {
    s.idle_pauses = 0;
    s.told_peers |= scope == Scope::sys;
  }
  maybe_preempt(s, l);
}

void clock_point(Place here) {
  Lane* l = rt::current();
  if (!l) return;
  l->seen = here;
  maybe_preempt(*l->sim, l);
}

void misuse(const char* what, const char* file, int line) {
  Lane* l = rt::current();
  if (!l) abort();
  l->seen = {file, line};
  rt::fail_lane(*l->sim, l, FAIL_MISUSE, "%s", what);
}

bool coin() {
  Lane* l = rt::current();
  return l && l->sim->options.preempt && (rt::random_bits(*l->sim) >> 40 & 1);
}

}  // namespace simt
