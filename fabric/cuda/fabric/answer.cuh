// SPDX-License-Identifier: Apache-2.0 OR MIT
// Answers: the data of a read and its response, which the Rust half hands over together. Movers end the parts in any order; the
// responder sends the response when the last one has ended and the modelled time has come, and reports the answer, not its parts.
//
//   parts --mover--> slot: parts ended --last one--> ready bit --responder, when due--> SEND, UP_ANSWERED
#pragma once
#include "fabric/inbound.cuh"

namespace gn { namespace hca {

enum : gn_u32 { PARTS_MASK = 0x3ffu, ANSWER_BAD_KEY = 1u << 10, ANSWER_BAD_SUM = 1u << 11, TOTAL_SHIFT = 12, NO_ANSWER = 0xffffffffu };
// A clock offset that is wrong must not hold an answer for ever. More than the Rust half hands over early.
enum : gn_u64 { ANSWER_MAX_WAIT_NS = 200000 };

struct answer_table {
  answer_slot slot[ANSWER_SLOTS];
  gn_u32 ready[ANSWER_WORDS];  // a bit a slot: its parts have all ended
};

// Position of the `n`-th set bit.
GN_DEV gn_u32 nth_set(gn_u32 mask, gn_u32 n) {
  while (n--) mask &= mask - 1;
  return (gn_u32)__ffs((int)mask) - 1;
}

// Every thread of the block, before and after the roles: slots live longer than a launch.
GN_DEV void answers_restore(const ring_ctx& ring, answer_table& t) {
  for (gn_u32 i = threadIdx.x; i < ANSWER_SLOTS; i += blockDim.x) t.slot[i] = ((const answer_slot*)ring.answers_addr)[i];
  for (gn_u32 i = threadIdx.x; i < ANSWER_WORDS; i += blockDim.x) t.ready[i] = 0;
}
GN_DEV void answers_keep(const ring_ctx& ring, const answer_table& t) {
  for (gn_u32 i = threadIdx.x; i < ANSWER_SLOTS; i += blockDim.x) ((answer_slot*)ring.answers_addr)[i] = t.slot[i];
}

// A part has been copied, or not; one lane. Its bytes, written by the lanes before a __syncwarp, are before the response: the counter
// passes them on from mover to mover and to the responder.
GN_DEV void end_part(answer_table& t, const down_work& d, gn_u32 status) {
  gn_u32 at = (gn_u32)(d.w[5] >> SLOT_SHIFT) % ANSWER_SLOTS, ended = 1;
  answer_slot& x = t.slot[at];
  if (down_op(d) == DOWN_ANSWER) {
    x.qpn = down_qpn(d);
    x.due = d.w[4];
    x.late_after = d.w[6];
    x.response = d.w[7] | (d.w[5] >> 41 & 1u) << 63;
    ended += ((gn_u32)(d.w[5] >> PARTS_SHIFT) & 0x1ffu) << TOTAL_SHIFT;
  }
  if (status != COPY_OK) mem::or_acqrel_cta(&x.word, status == COPY_BAD_SUM ? (gn_u32)ANSWER_BAD_SUM : (gn_u32)ANSWER_BAD_KEY);
  gn_u32 word = mem::add_acqrel_cta(&x.word, ended) + ended;
  if ((word & PARTS_MASK) != word >> TOTAL_SHIFT) return;
  x.ready_at = now_ns();
  mem::or_acqrel_cta(&t.ready[at / 32], 1u << at % 32);  // pairs with the acquire in answer_pass
}

// One slot that is ready for each lane, as far as there are any, beginning with word `first` of the bits; the whole warp.
GN_DEV gn_u32 pick_ready(gn_u32 word, gn_u32 first) {
  gn_u32 rank = lane_id(), slot = NO_ANSWER;
  for (gn_u32 i = 0; i < ANSWER_WORDS; ++i) {
    gn_u32 from = (first + i) % ANSWER_WORDS;
    gn_u32 bits = __shfl_sync(0xffffffffu, word, (int)from), n = (gn_u32)__popc(bits);
    if (slot != NO_ANSWER) continue;
    if (rank < n) slot = from * 32 + nth_set(bits, rank);
    else rank -= n;
  }
  return slot;
}

GN_DEV gn_u32 copy_status(gn_u32 word) {
  if (word & ANSWER_BAD_KEY) return COPY_BAD_KEY;
  return word & ANSWER_BAD_SUM ? (gn_u32)COPY_BAD_SUM : (gn_u32)COPY_OK;
}

// Sends what is ready and due, up to 32 responses; the whole warp. Returns whether anything was ready, due or not. `first` is where to
// begin to look: it goes round, so that each answer has its turn.
GN_DEV bool answer_pass(const agent_args& a, ring_ctx& ring, counts& n, answer_table& t, gn_u32& first) {
  gn_u32 bits = lane_id() < ANSWER_WORDS ? mem::ld_acquire_cta(&t.ready[lane_id()]) : 0u;
  if (!__any_sync(0xffffffffu, bits != 0)) return false;
  __syncwarp();  // the acquires of the lanes reach all of them
  gn_u32 at = pick_ready(bits, first);
  first = (first + 1) % ANSWER_WORDS;
  bool due = false;
  message m;
  gn_u32 word = 0;
  if (at != NO_ANSWER) {
    const answer_slot& x = t.slot[at];
    word = x.word;
    m.op = DOWN_SEND;
    m.qpn = x.qpn;
    m.due = x.due;
    m.late_after = x.late_after;
    m.hi = x.response;
    gn_u64 now = now_ns();
    due = copy_status(word) != COPY_OK || now + PUBLISH_NS >= m.due || now - x.ready_at > ANSWER_MAX_WAIT_NS;
  }
  gn_u32 ended = __ballot_sync(0xffffffffu, due);
  if (!ended) return true;
  // The report's place is taken before the responses are seen, so that it comes before whatever their owners send next.
  gn_u64 position = 0;
  if (lane_id() == 0) position = up_reserve(ring, 1);
  position = __shfl_sync(0xffffffffu, position, 0);
  __syncwarp();
  deliver_together(a, ring, n, m, due && copy_status(word) == COPY_OK);
  up_entry* e = up_slot(ring, position);
  if (lane_id() == 0) up_fill(e, UP_ANSWERED, 0, 0, (gn_u32)__popc(ended), 0, 0, 0);
  if (due) {
    t.slot[at].word = 0;
    mem::and_acqrel_cta(&t.ready[at / 32], ~(1u << at % 32));
    gn_u32 item = at | copy_status(word) << ANSWERED_STATUS_SHIFT;
    mem::st_relaxed_sys((gn_u16*)e->payload + __popc(ended & lt_mask()), (gn_u16)item);
  }
  __syncwarp();
  if (lane_id() == 0) {
    up_publish(e, position);
    n.reports += 1;
  }
  __syncwarp();
  return true;
}

}}  // namespace gn::hca
