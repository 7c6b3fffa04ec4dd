// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The runtime's own data. Build all rt_*.cpp WITHOUT sanitizers, and use no std:: templates in them. An
// instrumented copy of a template could be linked in, and then the scheduler itself would be reported as
// racing.
#pragma once
#include "rt_switch.hpp"
#include "simt_hooks.hpp"
#include "simt_run.hpp"

namespace simt::rt {

struct Lane;
struct Sim;

/// Lanes of one warp that wait for each other, found by their mask. Each group in use holds a lane at least,
/// and a lane is in one collective at a time. So 32 groups a warp are enough for any divergence.
struct Group {
  Op op;
  unsigned mask, arrived;
  Place place;
  unsigned long long value[WARP];
  int arg[WARP];
};

struct GridState {
  const Grid* spec;
  unsigned live;   // lanes
  char end_order;  // ThreadSanitizer: what its lanes did is before on_done
};

struct Block {
  GridState* grid;
  Lane* lanes;          // nlanes of them, padded to whole warps
  unsigned nlanes;
  unsigned live, arrived;
  unsigned char* smem;
  Group barrier;        // __syncthreads; value and arg unused
};

struct Warp {
  Block* block;
  Lane* lanes;
  unsigned live;        // mask of the lanes that have not ended
  unsigned waiting;     // mask of the groups in use
  Group groups[WARP];
};

struct BufferedStore {
  void* p;
  unsigned size;
  int order;
  unsigned epoch;       // fences this lane had passed: a store never overtakes one of an earlier epoch
  unsigned long long value;
};

struct StoreBuffer {
  static constexpr unsigned CAPACITY = 16;
  unsigned count, epoch;
  BufferedStore store[CAPACITY];   // oldest first
};

struct alignas(64) Lane : Ids {
  void* sp;
  Sim* sim;
  Warp* warp;
  unsigned long long result;       // of the collective that completed last
  unsigned index;                  // in Sim::lanes
  unsigned bit;                    // 1 << lane in warp
  unsigned run_slot;               // in Sim::runnable, NOT_RUNNABLE while it waits
  bool ended;
  Place seen;                      // where it was last
  Group* waits_in;
  char* stack;
  StoreBuffer* buffer;             // null unless weak
  void* tsan_fiber;
  void* asan_fake_stack;

  // ThreadSanitizer's view of a barrier. Each lane releases what it did to its own object. The lane that
  // completes the barrier acquires them all and passes the sum on. No other lane writes an object, so none
  // ever holds more than its lane knew. Two for the sum, by turns: a late leaver must not acquire its lane's
  // next barrier.
  char arrived_order, passed_order[2];
  unsigned passed_turn;
  char* passed_by;                 // what to acquire on leaving
};
constexpr unsigned NOT_RUNNABLE = ~0u;

struct Sim {
  Options options;
  Visible visible;
  Host host;

  Lane* lanes;
  unsigned nlanes;                 // padded to whole warps
  unsigned* runnable;
  unsigned nrunnable, live;
  Warp* warps;
  Block* blocks;
  unsigned nblocks;
  GridState* grids;
  size_t ngrids;
  GridState* just_ended;           // its on_done is due

  uint64_t rng;
  Stats stats;
  unsigned slice;                  // accesses left until the lane has to let others run
  unsigned until_housekeeping;     // switches
  unsigned turn_switches;          // since the warp that runs got its turn
  unsigned idle_limit, idle_pauses, pauses_since_os_yield;
  bool told_peers;                 // a lane stored with system scope since the last offer of the CPU
  bool naps;                       // the last offer was a sleep
  uint64_t quiet_since_ns;         // the first offer of the CPU since the lanes told something; 0 = none
  uint64_t deadline_at_ns;         // 0 = none
  uint64_t sampled_ns, sampled_cpu_ns;   // when the thread's processor time was read last, and that time

  void* sp;                        // of the scheduler, while a lane runs
  const void* stack;               // of the scheduler, for AddressSanitizer
  size_t stack_len;
  void* tsan_fiber;
  void* asan_fake_stack;
  char start_order, end_order, fail_order;

  char what[512];                  // the failure, before the lanes are described
};

// A lane that only reads, or preempt = 0, still gives way after so many accesses: loops without pause() end
// too.
constexpr unsigned SLICE_ACCESSES = 1024;
constexpr unsigned HOUSEKEEPING_SWITCHES = 256;
// With a host step, one yield in so many goes through the scheduler instead of straight to a lane.
constexpr unsigned HOST_TURN_ODDS = 16;

inline Lane* current() { return static_cast<Lane*>(cur); }

inline uint64_t random_bits(Sim& s) {
  s.rng ^= s.rng << 13;
  s.rng ^= s.rng >> 7;
  s.rng ^= s.rng << 17;
  return s.rng;
}
inline unsigned random_below(Sim& s, unsigned n) {
  return static_cast<unsigned>(((random_bits(s) >> 32) * n) >> 32);
}

// rt_sched.cpp
void make_runnable(Sim&, Lane*);
void enter_lane(Sim&, Lane*);                // scheduler -> lane
void wait_for_group(Sim&, Lane* self, Group*);
void give_way(Sim&, Lane* self);             // to any runnable lane
Lane* pick(Sim&);
void lane_entry();
[[noreturn]] void abandon_lane(Sim&, Lane*);   // back to the scheduler, never to return

// rt_collective.cpp
void leave_collectives(Sim&, Lane* ended);   // exited lanes need not arrive

// rt_weak.cpp
void drain_all(Lane*);
void drain_something(Sim&);                  // one buffered store of a random lane becomes visible

// rt_report.cpp
// The note goes into Sim; fail_lane then leaves the lane for good, and report_failure follows in run().
[[noreturn]] __attribute__((format(printf, 4, 5))) void fail_lane(Sim&, Lane*, Failure, const char* format,
                                                                  ...);
__attribute__((format(printf, 3, 4))) void fail_run(Sim&, Failure, const char* format, ...);
void report_failure(Sim&);                   // callbacks, or the process's end
const char* op_name(Op);

}  // namespace simt::rt
