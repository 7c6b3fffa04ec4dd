// SPDX-License-Identifier: Apache-2.0 OR MIT
// The responder's queue of delayed messages: SENDs and fused responses that arrive before they are due. Each
// has a slot, and a bit while it waits. They delay neither later messages nor each other.
//
//   SEND --delay_sends--+
//                       +--> slot, waiting bit --delayed_pass, soon before it is due--> deliver_together
//   ready slot ---------+
#pragma once
#include "fabric/hca/fused.cuh"

namespace gn { namespace hca {

// State that the responder's warp keeps in its registers.
struct delay_turn {
  gn_u32 head = 0;                // of the ring of ready slots
  gn_u32 first = 0;               // the next look at waiting slots begins at this word; it goes round
  gn_u64 next_due = ~0ull;        // no waiting slot is due earlier
};

// Position of the `n`-th set bit.
GN_DEV gn_u32 nth_set(gn_u32 mask, gn_u32 n) {
  while (n--) mask &= mask - 1;
  return (gn_u32)__ffs((int)mask) - 1;
}

// Takes the slots at the head of the ring, one for each lane while there are any. The whole warp calls it.
GN_DEV gn_u32 take_ready(delayed_table& t, delay_turn& turn) {
  gn_u32* place = &t.ready[(turn.head + lane_id()) % FUSED_SLOTS];
  gn_u32 seen = mem::ld_acquire_cta(place);
  gn_u32 missing = ~__ballot_sync(0xffffffffu, seen != 0);
  gn_u32 count = missing ? (gn_u32)__ffs((int)missing) - 1 : 32u;
  bool mine = lane_id() < count;
  if (mine) mem::st_relaxed_cta(place, 0u);
  turn.head += count;
  return mine ? seen - 1 : (gn_u32)NO_DELAYED;
}

// Takes a waiting slot for each lane without one, while there are any. The whole warp calls it. It takes all
// of the first word that has a bit; the next call begins after that word.
GN_DEV gn_u32 take_waiting(delayed_table& t, delay_turn& turn, gn_u32 slot) {
  gn_u32 word = lane_id() < DELAYED_WORDS ? t.waiting[lane_id()] : 0u;
  gn_u32 rank = (gn_u32)__popc(__ballot_sync(0xffffffffu, slot == NO_DELAYED) & lt_mask());
  gn_u32 begin = turn.first;
  bool taken = slot == NO_DELAYED, seeks = taken, is_first = true;
#pragma unroll 1
  for (gn_u32 i = 0; i < DELAYED_WORDS; ++i) {
    gn_u32 from = begin + i < DELAYED_WORDS ? begin + i : begin + i - DELAYED_WORDS;
    gn_u32 bits = __shfl_sync(0xffffffffu, word, (int)from), n = (gn_u32)__popc(bits);
    if (bits && is_first) is_first = false, turn.first = from + 1 < DELAYED_WORDS ? from + 1 : 0;
    if (!seeks) continue;
    if (rank < n) slot = from * 32 + nth_set(bits, rank), seeks = false;
    else rank -= n;
  }
  // If every lane has a slot, more may wait than were checked.
  turn.next_due = __all_sync(0xffffffffu, slot != NO_DELAYED) ? 0 : ~0ull;
  if (taken && slot != NO_DELAYED) mem::and_acqrel_cta(&t.waiting[slot / 32], ~(1u << slot % 32));
  __syncwarp();
  return slot;
}

// Marks the slots of the lanes with `waits` as waiting; the whole warp.
GN_DEV void mark_waiting(delayed_table& t, delay_turn& turn, gn_u32 slot, bool waits, gn_u64 until) {
  if (waits) mem::or_acqrel_cta(&t.waiting[slot / 32], 1u << slot % 32);
  gn_u64 soonest = waits ? until : ~0ull;
  for (gn_u32 step = 16; step; step /= 2) {
    gn_u64 other = __shfl_xor_sync(0xffffffffu, soonest, (int)step);
    if (other < soonest) soonest = other;
  }
  if (soonest < turn.next_due) turn.next_due = soonest;
  __syncwarp();
}

// Delivers what is ready and due next, up to 32 messages, if that is soon; the whole warp. Returns whether
// there was anything, due or not.
GN_DEV bool delayed_pass(const responder& me, delayed_table& t, delay_turn& turn) {
  gn_u32 at = take_ready(t, turn);
  bool any = __any_sync(0xffffffffu, at != NO_DELAYED);
  if (!any && turn.next_due == ~0ull) return false;
  if (__shfl_sync(0xffffffffu, now_ns(), 0) + LOOK_NS >= turn.next_due) at = take_waiting(t, turn, at);
  else if (!any) return true;
  __syncwarp();
  gn_u32 in = NOT_SOON;
  message m;
  gn_u32 word = 0;
  gn_u64 until = 0;
  bool here = at != NO_DELAYED, is_fused = at < FUSED_SLOTS;
  if (here) {
    const fused_slot& x = t.slot[at];
    word = x.word;
    m.op = DOWN_SEND;
    m.qpn = x.qpn;
    m.due = x.due;
    m.allowance = x.allowance;
    if (!is_fused) m.lo = t.first_half[at - FUSED_SLOTS];
    m.hi = x.response;
    until = x.until;
    in = copy_status(word) != COPY_OK ? 0u : due_in(until, now_ns());
  }
  bool due = goes_next(in);
  if (__any_sync(0xffffffffu, here && !due)) mark_waiting(t, turn, at, here && !due, until);
  if (!__any_sync(0xffffffffu, due)) return true;
  report r;
  r.listed = due && is_fused;
  r.item = at | copy_status(word) << FUSED_STATUS_SHIFT;
  if (__any_sync(0xffffffffu, r.listed)) r.stage = &t.report;
  if (due) t.slot[at].word = 0;
  __syncwarp();
  deliver_together(me, m, due && copy_status(word) == COPY_OK, r);
  return true;
}

// SENDs that wait, a bit for each slot.
GN_DEV gn_u64 sends_waiting(const delayed_table& t) {
  return (gn_u64)t.waiting[SEND_WORD + 1] << 32 | t.waiting[SEND_WORD];
}
static_assert(DELAYED_SENDS == 64, "two words");

// Delays the lanes' messages that are SENDs and not about to be due; the whole warp. There is a slot for
// each.
GN_DEV void delay_sends(delayed_table& t, delay_turn& turn, const down_work& d, bool& mine) {
  gn_u64 now = now_ns();
  message m = message_of(d);
  bool waits = mine && m.op == DOWN_SEND && now + WAY_NS + TOGETHER_NS < m.due;
  gn_u32 lanes = __ballot_sync(0xffffffffu, waits);
  if (!lanes) return;
  gn_u32 rank = (gn_u32)__popc(lanes & lt_mask());
  gn_u32 low = ~t.waiting[SEND_WORD], high = ~t.waiting[SEND_WORD + 1], first = (gn_u32)__popc(low),
         place = 0;
  __syncwarp();  // all lanes have seen which slots are free
  gn_u64 until = until_of(m.due, now);
  if (waits) {
    place = rank < first ? nth_set(low, rank) : 32 + nth_set(high, rank - first);
    fused_slot& x = t.slot[FUSED_SLOTS + place];
    x.qpn = m.qpn;
    x.due = m.due;
    x.allowance = m.allowance;
    x.until = until;
    x.response = m.hi;
    t.first_half[place] = m.lo;
  }
  mark_waiting(t, turn, FUSED_SLOTS + place, waits, until);
  mine = mine && !waits;
}

}}  // namespace gn::hca
