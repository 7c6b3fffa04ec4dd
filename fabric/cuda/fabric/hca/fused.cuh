// SPDX-License-Identifier: Apache-2.0 OR MIT
// Fused responses: the data of a read and its response, which the transport hands over together. Movers end
// the parts in any order. The mover that ends the last part makes the slot ready. The responder delays the
// response until it is due (delayed.cuh) and reports the slot, not its parts.
//
//   parts --mover--> slot: parts ended --last one--> ready --responder, when due--> SEND, UP_FUSED_DONE
#pragma once
#include "fabric/hca/inbound.cuh"

namespace gn { namespace hca {

enum : gn_u32 { PARTS_MASK = 0x3ffu, FUSED_BAD_KEY = 1u << 10, FUSED_BAD_SUM = 1u << 11, TOTAL_SHIFT = 12 };

// Slots of fused responses, followed by the slots of delayed SENDs.
enum : gn_u32 {
  DELAYED_SENDS = 64,
  DELAYED_SLOTS = FUSED_SLOTS + DELAYED_SENDS,
  DELAYED_WORDS = DELAYED_SLOTS / 32,
  SEND_WORD = FUSED_SLOTS / 32,
  NO_DELAYED = 0xffffffffu,
};

struct delayed_table {
  fused_slot slot[DELAYED_SLOTS];
  gn_u64 first_half[DELAYED_SENDS];  // of a SEND's 16 bytes
  // Ring of slot + 1 of the fused responses whose parts have all ended, in the order of their ends.
  gn_u32 ready[FUSED_SLOTS];
  gn_u32 tail;                       // of that ring
  gn_u32 waiting[DELAYED_WORDS];     // the responder's: slots that are ready and not due, a bit each
  up_stage report;                   // the responder's
};

// Thread `me` of `threads`, each of the ring's, before and after the roles: slots live longer than a launch.
// No SEND waits at its end.
GN_DEV void fused_restore(const ring_ctx& ring, delayed_table& t, gn_u32 me, gn_u32 threads) {
  for (gn_u32 i = me; i < FUSED_SLOTS; i += threads) {
    t.slot[i] = ((const fused_slot*)ring.fused_addr)[i];
    t.ready[i] = 0;
  }
  for (gn_u32 i = me; i < DELAYED_SENDS; i += threads) t.slot[FUSED_SLOTS + i].word = 0;
  for (gn_u32 i = me; i < DELAYED_WORDS; i += threads) t.waiting[i] = 0;
  if (me == 0) t.tail = 0;
}
GN_DEV void fused_keep(const ring_ctx& ring, const delayed_table& t, gn_u32 me, gn_u32 threads) {
  for (gn_u32 i = me; i < FUSED_SLOTS; i += threads) ((fused_slot*)ring.fused_addr)[i] = t.slot[i];
}

// Until when a message waits that is due at `due`. A clock offset that is wrong must not delay it for ever.
GN_DEV gn_u64 until_of(gn_u64 due, gn_u64 now) { return due < now + DELAY_MAX_NS ? due : now + DELAY_MAX_NS; }

// A part has been copied, or not; one lane. Its bytes, written by the lanes before a __syncwarp, are before
// the response. The counter passes them on from mover to mover and to the responder.
GN_DEV void end_part(delayed_table& t, const down_work& d, gn_u32 status) {
  gn_u32 at = (gn_u32)(d.w[5] >> SLOT_SHIFT) % FUSED_SLOTS, ended = 1;
  fused_slot& x = t.slot[at];
  if (down_op(d) == DOWN_FUSED) {
    x.qpn = down_qpn(d);
    x.due = d.w[4];
    x.allowance = d.w[6];
    x.response = d.w[7] | (d.w[5] >> 41 & 1u) << 63;
    ended += ((gn_u32)(d.w[5] >> PARTS_SHIFT) & 0x1ffu) << TOTAL_SHIFT;
  }
  if (status != COPY_OK)
    mem::or_acqrel_cta(&x.word, status == COPY_BAD_SUM ? (gn_u32)FUSED_BAD_SUM : (gn_u32)FUSED_BAD_KEY);
  gn_u32 word = mem::add_acqrel_cta(&x.word, ended) + ended;
  if ((word & PARTS_MASK) != word >> TOTAL_SHIFT) return;
  x.until = until_of(x.due, now_ns());
  gn_u32 place = mem::add_relaxed_cta(&t.tail, 1u);  // there are as many places as slots
  mem::st_release_cta(&t.ready[place % FUSED_SLOTS], at + 1);  // pairs with the acquire in take_ready
}

GN_DEV gn_u32 copy_status(gn_u32 word) {
  if (word & FUSED_BAD_KEY) return COPY_BAD_KEY;
  return word & FUSED_BAD_SUM ? (gn_u32)COPY_BAD_SUM : (gn_u32)COPY_OK;
}

}}  // namespace gn::hca
