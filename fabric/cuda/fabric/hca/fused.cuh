// SPDX-License-Identifier: Apache-2.0 OR MIT
// Answers: the data of a read and its response, which the Rust half hands over together. Movers end the parts in any order; the
// responder sends the response when the last one has ended and the modelled time has come, and reports the answer, not its parts.
//
//   parts --mover--> slot: parts ended --last one--> ready bit --responder, when due--> SEND, UP_FUSED_DONE
#pragma once
#include "fabric/hca/inbound.cuh"

namespace gn { namespace hca {

enum : gn_u32 { PARTS_MASK = 0x3ffu, FUSED_BAD_KEY = 1u << 10, FUSED_BAD_SUM = 1u << 11, TOTAL_SHIFT = 12, NO_FUSED = 0xffffffffu };
// A clock offset that is wrong must not hold an answer for ever. More than the Rust half hands over early.
enum : gn_u64 { DELAY_MAX_NS = 200000 };

struct fused_table {
  fused_slot slot[FUSED_SLOTS];
  gn_u32 ready[FUSED_SLOTS];     // a ring: slot + 1 of those whose parts have all ended, in the order in which they did
  gn_u32 tail;                    // of that ring
  gn_u32 waiting[FUSED_WORDS];   // the responder's: slots that are ready and not due, a bit each
  up_stage report;                // the responder's
};

// What the responder's warp keeps in its registers.
struct fused_turn {
  gn_u32 head = 0;                // of the ring of ready slots
  gn_u32 first = 0;               // the next look at waiting slots begins here; it goes round
  gn_u64 next_due = ~0ull;        // of the waiting slots
};

// Position of the `n`-th set bit.
GN_DEV gn_u32 nth_set(gn_u32 mask, gn_u32 n) {
  while (n--) mask &= mask - 1;
  return (gn_u32)__ffs((int)mask) - 1;
}

// Thread `me` of `threads`, each of the ring's, before and after the roles: slots live longer than a launch.
GN_DEV void fused_restore(const ring_ctx& ring, fused_table& t, gn_u32 me, gn_u32 threads) {
  for (gn_u32 i = me; i < FUSED_SLOTS; i += threads) {
    t.slot[i] = ((const fused_slot*)ring.fused_addr)[i];
    t.ready[i] = 0;
  }
  for (gn_u32 i = me; i < FUSED_WORDS; i += threads) t.waiting[i] = 0;
  if (me == 0) t.tail = 0;
}
GN_DEV void fused_keep(const ring_ctx& ring, const fused_table& t, gn_u32 me, gn_u32 threads) {
  for (gn_u32 i = me; i < FUSED_SLOTS; i += threads) ((fused_slot*)ring.fused_addr)[i] = t.slot[i];
}

// A part has been copied, or not; one lane. Its bytes, written by the lanes before a __syncwarp, are before the response: the counter
// passes them on from mover to mover and to the responder.
GN_DEV void end_part(fused_table& t, const down_work& d, gn_u32 status) {
  gn_u32 at = (gn_u32)(d.w[5] >> SLOT_SHIFT) % FUSED_SLOTS, ended = 1;
  fused_slot& x = t.slot[at];
  if (down_op(d) == DOWN_FUSED) {
    x.qpn = down_qpn(d);
    x.due = d.w[4];
    x.allowance = d.w[6];
    x.response = d.w[7] | (d.w[5] >> 41 & 1u) << 63;
    ended += ((gn_u32)(d.w[5] >> PARTS_SHIFT) & 0x1ffu) << TOTAL_SHIFT;
  }
  if (status != COPY_OK) mem::or_acqrel_cta(&x.word, status == COPY_BAD_SUM ? (gn_u32)FUSED_BAD_SUM : (gn_u32)FUSED_BAD_KEY);
  gn_u32 word = mem::add_acqrel_cta(&x.word, ended) + ended;
  if ((word & PARTS_MASK) != word >> TOTAL_SHIFT) return;
  x.ready_at = now_ns();
  gn_u32 place = mem::add_relaxed_cta(&t.tail, 1u);  // there are as many places as slots
  mem::st_release_cta(&t.ready[place % FUSED_SLOTS], at + 1);  // pairs with the acquire in take_ready
}

// The slots at the head of the ring, one a lane, as far as they are there; the whole warp.
GN_DEV gn_u32 take_ready(fused_table& t, fused_turn& turn) {
  gn_u32* place = &t.ready[(turn.head + lane_id()) % FUSED_SLOTS];
  gn_u32 seen = mem::ld_acquire_cta(place);
  gn_u32 missing = ~__ballot_sync(0xffffffffu, seen != 0);
  gn_u32 count = missing ? (gn_u32)__ffs((int)missing) - 1 : 32u;
  bool mine = lane_id() < count;
  if (mine) mem::st_relaxed_cta(place, 0u);
  turn.head += count;
  return mine ? seen - 1 : (gn_u32)NO_FUSED;
}

// One slot that waits for each lane, as far as there are any; the whole warp.
GN_DEV gn_u32 take_waiting(fused_table& t, fused_turn& turn) {
  gn_u32 word = lane_id() < FUSED_WORDS ? t.waiting[lane_id()] : 0u;
  gn_u32 rank = lane_id(), slot = NO_FUSED;
  for (gn_u32 i = 0; i < FUSED_WORDS; ++i) {
    gn_u32 from = (turn.first + i) % FUSED_WORDS;
    gn_u32 bits = __shfl_sync(0xffffffffu, word, (int)from), n = (gn_u32)__popc(bits);
    if (slot != NO_FUSED) continue;
    if (rank < n) slot = from * 32 + nth_set(bits, rank);
    else rank -= n;
  }
  turn.first = (turn.first + 1) % FUSED_WORDS;
  turn.next_due = ~0ull;
  if (slot != NO_FUSED) mem::and_acqrel_cta(&t.waiting[slot / 32], ~(1u << slot % 32));
  __syncwarp();
  return slot;
}

GN_DEV gn_u32 copy_status(gn_u32 word) {
  if (word & FUSED_BAD_KEY) return COPY_BAD_KEY;
  return word & FUSED_BAD_SUM ? (gn_u32)COPY_BAD_SUM : (gn_u32)COPY_OK;
}

// Marks the lanes' slots that are not due as waiting.
GN_DEV void still_waits(fused_table& t, fused_turn& turn, gn_u32 slot, bool back, gn_u64 due) {
  if (back) mem::or_acqrel_cta(&t.waiting[slot / 32], 1u << slot % 32);
  gn_u64 soonest = back ? due : ~0ull;
  for (gn_u32 step = 16; step; step /= 2) {
    gn_u64 other = __shfl_xor_sync(0xffffffffu, soonest, (int)step);
    if (other < soonest) soonest = other;
  }
  if (soonest < turn.next_due) turn.next_due = soonest;
  __syncwarp();
}

// Sends what is ready and due, up to 32 responses; the whole warp. Returns whether there was anything, due or not.
GN_DEV bool fused_pass(const agent_args& a, ring_ctx& ring, counts& n, fused_table& t, fused_turn& turn) {
  gn_u32 at = take_ready(t, turn);
  bool any = __any_sync(0xffffffffu, at != NO_FUSED);
  if (!any && turn.next_due == ~0ull) return false;
  if (!any) {
    if (__shfl_sync(0xffffffffu, now_ns(), 0) + FUSED_LOOK_NS < turn.next_due) return true;
    at = take_waiting(t, turn);
  }
  __syncwarp();
  gn_u32 in = NOT_SOON;
  message m;
  gn_u32 word = 0;
  gn_u64 until = 0;
  if (at != NO_FUSED) {
    const fused_slot& x = t.slot[at];
    word = x.word;
    m.op = DOWN_SEND;
    m.qpn = x.qpn;
    m.due = x.due;
    m.allowance = x.allowance;
    m.hi = x.response;
    until = x.due < x.ready_at + DELAY_MAX_NS ? x.due : x.ready_at + DELAY_MAX_NS;
    in = copy_status(word) != COPY_OK ? 0u : due_in(until, now_ns(), FUSED_LOOK_NS);
  }
  bool due = goes_next(in);
  if (__any_sync(0xffffffffu, at != NO_FUSED && !due)) still_waits(t, turn, at, at != NO_FUSED && !due, until);
  // More wait than were looked at.
  if (!any && __all_sync(0xffffffffu, at != NO_FUSED)) turn.next_due = 0;
  if (!__any_sync(0xffffffffu, due)) return true;
  report r;
  r.stage = &t.report;
  r.listed = due;
  r.item = at | copy_status(word) << FUSED_STATUS_SHIFT;
  if (due) t.slot[at].word = 0;
  __syncwarp();
  deliver_together(a, ring, n, m, due && copy_status(word) == COPY_OK, r);
  return true;
}

}}  // namespace gn::hca
