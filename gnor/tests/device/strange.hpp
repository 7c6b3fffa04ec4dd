// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// An SSD whose responses name commands that are not in flight on their queue. The peer holds all answers back
// until every lane waits. So it knows which slots are in flight, and none is reused meanwhile.
#pragma once
#include "anew.hpp"

namespace harness {

constexpr gn_u32 STRANGE_EACH = 4;

inline gn_u32 state_of(const Peer& p, gn_u32 cid) {
  return __atomic_load_n(&p.r.c.slots[cid].state, __ATOMIC_RELAXED);
}
inline bool is_in_flight(gn_u32 state, gn_u32 q) { return (state & 0xffffu) == (CMD_IN_FLIGHT | q << 8); }

/// States and ends of all slots, and which are taken: `SLOTS` words, as many again, and the bits.
inline std::vector<gn_u32> look_at_slots(const Peer& p) {
  std::vector<gn_u32> all;
  for (gn_u32 cid = 0; cid < SLOTS; ++cid) all.push_back(state_of(p, cid));
  for (const slot& s : p.r.c.slots) all.push_back(__atomic_load_n(&s.done, __ATOMIC_RELAXED));
  for (const gn_u32& w : p.r.c.slot_bits) all.push_back(__atomic_load_n(&w, __ATOMIC_RELAXED));
  return all;
}

/// Finds a slot for which `is` holds, from a random place on; SLOTS if there is none.
template <class F>
gn_u32 find_slot(Peer& p, F is) {
  gn_u32 from = p.rng.below(SLOTS);
  for (gn_u32 k = 0; k < SLOTS; ++k)
    if (is((from + k) % SLOTS)) return (from + k) % SLOTS;
  return SLOTS;
}

/// Commands of the first SSD are not answered, so that strange responses find receives. Their queue pair
/// breaks later.
inline bool forget_commands(Peer& p, gn_u32 but) {
  std::vector<gn_u32> some;
  for (const auto& job : p.jobs)
    if (job.second->q == 0 && job.second->cid != but && some.size() < STRANGE_EACH) some.push_back(job.first);
  if (some.size() < STRANGE_EACH) return false;
  for (gn_u32 id : some) p.jobs.erase(id);
  return true;
}

inline void push_strange(Peer& p, gn_u32 cid) {
  p.push_response(0, cid, p.rng.one_of(2) ? 0x182 : 0, p.rng.next());
  ++p.r.strange;
}

/// Sends all strange responses. Returns whether there were slots for them.
inline bool send_strange(Peer& p) {
  Peer::Strange& x = p.strange;
  // Another command of its request is in flight, so the request goes on, and the slot stays its own.
  gn_u32 own = find_slot(p, [&](gn_u32 cid) {
    if (!is_in_flight(state_of(p, cid), 0) || state_of(p, cid) >> 16 != cid) return false;
    for (gn_u32 other = 0; other < SLOTS; ++other)
      if (other != cid && state_of(p, other) && state_of(p, other) >> 16 == cid) return true;
    return false;
  });
  gn_u32 beside = find_slot(p, [&](gn_u32 cid) { return cid != own && is_in_flight(state_of(p, cid), 0); });
  gn_u32 others = find_slot(p, [&](gn_u32 cid) {
    return is_in_flight(state_of(p, cid), 1) || is_in_flight(state_of(p, cid), 2);
  });
  gn_u32 idle = find_slot(p, [&](gn_u32 cid) { return state_of(p, cid) == CMD_FREE; });
  if (own == SLOTS || beside == SLOTS || others == SLOTS || idle == SLOTS || !forget_commands(p, own))
    return false;
  x.before = look_at_slots(p);
  x.own = own;
  push_strange(p, idle);
  push_strange(p, others);
  push_strange(p, SLOTS * (1 + p.rng.below(400)) + beside);
  auto job = p.jobs.begin();
  while (job->second->q != 0 || job->second->cid != own) ++job;
  p.tell_head(0, job->second->number);
  p.jobs.erase(job);
  p.push_response(0, own, 0, 0);
  // In the same pass of the client, or in a later one.
  x.again_at = p.step + p.r.cfg.seed / 2 % 2 * 500;
  return true;
}

inline gn_u32 strange_counted(const Peer& p) {
  return __atomic_load_n(&p.r.c.protocol_errors, __ATOMIC_RELAXED);
}

/// Checks that only the honest response has ended a command.
inline void check_strange(Peer& p) {
  Peer::Strange& x = p.strange;
  x.before[x.own] = CMD_FREE;
  x.before[SLOTS + x.own] += 1;
  if (look_at_slots(p) != x.before) ++p.harmed;
  if (strange_counted(p) != p.r.strange) ++p.miscounted;
}

/// Whether answers are held back.
inline bool step_strange(Peer& p) {
  Peer::Strange& x = p.strange;
  switch (x.state) {
    case Peer::Strange::HOLDS: {
      if (p.step <= p.open_until) return false;
      bool all_wait = p.step - p.last_arrival > 3000 && p.backlog.empty() && !p.jobs.empty();
      for (const auto& job : p.jobs) all_wait &= job.second->started && !job.second->copies;
      if (all_wait && send_strange(p)) x.state = Peer::Strange::ONCE;
      else if (all_wait) p.open_until = p.step + 300;
      break;
    }
    case Peer::Strange::ONCE:
      if (p.step < x.again_at) break;
      push_strange(p, x.own);
      x.again_at = p.step;
      x.state = Peer::Strange::TWICE;
      break;
    case Peer::Strange::TWICE:
      // The client may be slow. It counts the last response before it ends the pass.
      if (strange_counted(p) < p.r.strange && p.step < x.again_at + 30000) x.at = p.step + 2000;
      if (p.step < x.at) break;
      check_strange(p);
      // Until then all commands are answered again, also the first SSD's other ones.
      p.anew[0].at = p.step + 500;
      x.state = Peer::Strange::OVER;
      break;
    case Peer::Strange::OVER: return false;
  }
  return true;
}

}  // namespace harness
