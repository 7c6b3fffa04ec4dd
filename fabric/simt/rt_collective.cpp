// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Warp collectives and __syncthreads. Lanes arrive in any order; the last one computes all results. Only the
// two barriers order memory: for ThreadSanitizer votes and shuffles synchronise nothing, as on a GPU.
#include "rt.hpp"

namespace simt {
namespace rt {

const char* op_name(Op op) {
  switch (op) {
    case OP_NONE: return "nothing";
    case OP_SYNCWARP: return "__syncwarp";
    case OP_BALLOT: return "__ballot_sync";
    case OP_ANY: return "__any_sync";
    case OP_ALL: return "__all_sync";
    case OP_MATCH_ANY: return "__match_any_sync";
    case OP_SHFL: return "__shfl_sync";
    case OP_SHFL_UP: return "__shfl_up_sync";
    case OP_SHFL_DOWN: return "__shfl_down_sync";
    case OP_SHFL_XOR: return "__shfl_xor_sync";
    case OP_REDUCE_ADD: return "__reduce_add_sync";
    case OP_REDUCE_MIN: return "__reduce_min_sync";
    case OP_REDUCE_MAX: return "__reduce_max_sync";
    case OP_REDUCE_AND: return "__reduce_and_sync";
    case OP_REDUCE_OR: return "__reduce_or_sync";
    case OP_REDUCE_XOR: return "__reduce_xor_sync";
    case OP_SYNCTHREADS: return "__syncthreads";
  }
  return "?";
}

template <class F>
static void for_each_bit(unsigned mask, F f) {
  for (; mask; mask &= mask - 1) f(static_cast<unsigned>(__builtin_ctz(mask)));
}

static unsigned vote(const Group& g) {
  unsigned yes = 0;
  for_each_bit(g.arrived, [&](unsigned i) { yes |= (g.value[i] != 0 ? 1u : 0u) << i; });
  return yes;
}

static unsigned lanes_with_value(const Group& g, unsigned long long value) {
  unsigned same = 0;
  for_each_bit(g.arrived, [&](unsigned i) { same |= (g.value[i] == value ? 1u : 0u) << i; });
  return same;
}

static unsigned reduce(const Group& g) {
  unsigned result = static_cast<unsigned>(g.value[__builtin_ctz(g.arrived)]);
  for_each_bit(g.arrived & (g.arrived - 1), [&](unsigned i) {
    unsigned v = static_cast<unsigned>(g.value[i]);
    switch (g.op) {
      case OP_REDUCE_ADD: result += v; break;
      case OP_REDUCE_MIN: result = v < result ? v : result; break;
      case OP_REDUCE_MAX: result = v > result ? v : result; break;
      case OP_REDUCE_AND: result &= v; break;
      case OP_REDUCE_OR: result |= v; break;
      default: result ^= v; break;
    }
  });
  return result;
}

/// A lane whose source would be outside the warp keeps its own value, as in CUDA.
static unsigned shuffle_source(Op op, unsigned lane, int arg) {
  int source = static_cast<int>(lane);
  switch (op) {
    case OP_SHFL: source = arg & 31; break;
    case OP_SHFL_UP: source -= arg; break;
    case OP_SHFL_DOWN: source += arg; break;
    default: source ^= arg; break;
  }
  return source < 0 || source > 31 ? lane : static_cast<unsigned>(source);
}

static void set_results(Sim& s, Warp& w, Group& g, Lane* computing) {
  unsigned common = 0;   // the result of operations that give all lanes the same
  switch (g.op) {
    case OP_BALLOT: common = vote(g); break;
    case OP_ANY: common = vote(g) != 0; break;
    case OP_ALL: common = vote(g) == g.arrived; break;
    case OP_REDUCE_ADD: case OP_REDUCE_MIN: case OP_REDUCE_MAX:
    case OP_REDUCE_AND: case OP_REDUCE_OR: case OP_REDUCE_XOR: common = reduce(g); break;
    default: break;
  }
  for_each_bit(g.arrived, [&](unsigned i) {
    Lane& l = w.lanes[i];
    switch (g.op) {
      case OP_SHFL: case OP_SHFL_UP: case OP_SHFL_DOWN: case OP_SHFL_XOR: {
        unsigned source = shuffle_source(g.op, i, g.arg[i]);
        if (!(g.arrived >> source & 1))
          fail_lane(s, computing, FAIL_MISUSE,
                    "%s(%08x) at %s:%d: lane %u reads lane %u, which takes no part", op_name(g.op), g.mask,
                    g.place.file, g.place.line, i, source);
        l.result = g.value[source];
        break;
      }
      case OP_MATCH_ANY: l.result = lanes_with_value(g, g.value[i]); break;
      case OP_SYNCWARP: drain_all(&l); break;
      default: l.result = common; break;
    }
  });
}

static void tell_arrived(Lane* l) { tsan_release(&l->arrived_order); }

static void tell_left(Lane* l) {
  if (l->passed_by) tsan_acquire(l->passed_by);
  l->passed_by = nullptr;
}

/// `visit(f)` calls f for each lane of the barrier that `computing` completes.
template <class Visit>
static void pass_order(Lane* computing, Visit visit) {
  visit([](Lane* l) { tsan_acquire(&l->arrived_order); });
  char* passed = &computing->passed_order[computing->passed_turn++ & 1];
  tsan_release(passed);
  visit([=](Lane* l) { l->passed_by = passed; });
}

/// Completes a collective. `computing` arrived last; or it takes no part, and its end was the last thing that
/// the group waited for.
static void complete(Sim& s, Warp& w, Group& g, Lane* computing) {
  set_results(s, w, g, computing);
  if (g.op == OP_SYNCWARP) {
    pass_order(computing, [&](auto f) { for_each_bit(g.arrived, [&](unsigned i) { f(&w.lanes[i]); }); });
  }
  for_each_bit(g.arrived, [&](unsigned i) {
    if (&w.lanes[i] != computing) make_runnable(s, &w.lanes[i]);
  });
  g.arrived = 0;
  w.waiting &= ~(1u << (&g - w.groups));
}

static void complete_barrier(Sim& s, Block& b, Lane* computing) {
  auto participants = [&](auto f) {
    for (unsigned i = 0; i < b.nlanes; ++i)
      if (!b.lanes[i].ended) f(&b.lanes[i]);
  };
  participants([](Lane* l) { drain_all(l); });
  pass_order(computing, participants);
  participants([&](Lane* l) {
    if (l != computing) make_runnable(s, l);
  });
  b.arrived = 0;
}

void leave_collectives(Sim& s, Lane* ended) {
  Warp& w = *ended->warp;
  Block& b = *w.block;
  w.live &= ~ended->bit;
  --b.live;
  for_each_bit(w.waiting, [&](unsigned i) {
    Group& g = w.groups[i];
    if (g.arrived == (g.mask & w.live)) complete(s, w, g, ended);
  });
  if (b.arrived && b.arrived == b.live) complete_barrier(s, b, ended);
}

/// The group with exactly this mask, or a new one. In the same warp groups of other masks may wait for lanes
/// that have yet to arrive. They do not wait for the caller while it waits for them.
static Group& find_group(Lane* l, Op op, unsigned mask) {
  Sim& s = *l->sim;
  Warp& w = *l->warp;
  Group* found = nullptr;
  for_each_bit(w.waiting, [&](unsigned i) {
    Group& g = w.groups[i];
    bool same = g.mask == mask;
    bool crossed = !same && (g.mask & l->bit) && (g.arrived & mask);
    if (crossed || (same && g.op != op))
      fail_lane(s, l, FAIL_MISUSE,
                "lanes of one warp disagree: %s(%08x) here, but lanes %08x wait in %s(%08x) at %s:%d",
                op_name(op), mask, g.arrived, op_name(g.op), g.mask, g.place.file, g.place.line);
    if (same) found = &g;
  });
  if (found) return *found;

  unsigned slot = static_cast<unsigned>(__builtin_ctz(~w.waiting));
  w.waiting |= 1u << slot;
  Group& g = w.groups[slot];
  g.op = op;
  g.mask = mask;
  g.place = l->seen;
  return g;
}

}  // namespace rt

using namespace rt;

unsigned long long collective(Op op, unsigned mask, unsigned long long value, int arg, Place here) {
  Lane* l = current();
  Sim& s = *l->sim;
  Warp& w = *l->warp;
  l->seen = here;
  if (!(mask & l->bit))
    fail_lane(s, l, FAIL_MISUSE, "%s(%08x): the caller is not in its own mask", op_name(op), mask);

  Group& g = find_group(l, op, mask);
  g.arrived |= l->bit;
  unsigned lane = static_cast<unsigned>(__builtin_ctz(l->bit));
  g.value[lane] = value;
  g.arg[lane] = arg;

  if (op == OP_SYNCWARP) tell_arrived(l);
  if (g.arrived == (mask & w.live)) {
    complete(s, w, g, l);
    if (s.options.preempt) give_way(s, l);
  } else {
    wait_for_group(s, l, &g);
  }
  tell_left(l);
  return l->result;
}

void block_barrier(Place here) {
  Lane* l = current();
  Sim& s = *l->sim;
  Block& b = *l->warp->block;
  Group& g = b.barrier;
  l->seen = here;
  g.op = OP_SYNCTHREADS;
  g.mask = ~0u;
  ++b.arrived;
  tell_arrived(l);
  if (b.arrived == b.live) {
    complete_barrier(s, b, l);
    if (s.options.preempt) give_way(s, l);
  } else {
    wait_for_group(s, l, &g);
  }
  tell_left(l);
}

}  // namespace simt
