// SPDX-License-Identifier: Apache-2.0 OR MIT
// Slots: a bitmap in the channel, handed out in the order in which requests arrive (docs/decisions/0037).
//
//   tickets    slots asked for. A request draws one ticket, for its first slot
//   returned   slots given back: ticket `t` may take a bit of the bitmap when t is below returned + SLOTS
//
// A further slot, for another command of a request that has one, is taken only while no ticket waits. A
// request that gives up with a ticket counts it as returned. Until that ticket's turn one ticket more may
// take a bit than there are bits. So a holder of an admitted ticket may find none. It keeps its ticket and
// tries again. Both counters only grow, and wrap.
#pragma once
#include "gnor/sharing.cuh"

namespace gn {

enum : gn_u32 { NO_SLOT = 0xffffffffu };

// The lowest `n` bits of `mask`, or all of its bits if it has no more.
GN_DEV gn_u32 some_of(gn_u32 mask, gn_u32 n) {
  return (gn_u32)__popc(mask) <= n ? mask : mask & ((1u << nth_bit(mask, n)) - 1);
}

// Takes up to `n` free bits of one word; one thread calls it. It never waits.
template <class S>
GN_DEV gn_u32 bits_take(gn_u32* word, gn_u32 n) {
  gn_u32 seen = S::ld(word);
  while (~seen) {
    gn_u32 want = some_of(~seen, n);
    gn_u32 old = S::or_acqrel(word, want);  // pairs with the release of slots_give
    if (want & ~old) return want & ~old;
    seen = old;
  }
  return 0;
}

// Number of tickets that may take a slot at once: `n`, or fewer if tickets wait for slots. One thread calls
// it. It never waits.
template <class S>
GN_DEV gn_u32 spare_tickets(channel& c, gn_u32 n) {
  // `returned` is read first and only grows, so the room is not overstated.
  gn_u32 end = S::ld(&c.returned) + SLOTS, seen = S::ld(&c.tickets);
  for (;;) {
    int room = (int)(end - seen);
    if (room <= 0) return 0;
    gn_u32 got = (gn_u32)room < n ? (gn_u32)room : n;
    gn_u32 old = S::cas(&c.tickets, seen, seen + got);
    if (old == seen) return got;
    seen = old;
  }
}

// The lanes that call a function together. `hint` is a number of the caller: other lanes have other ones. So
// not all of them begin to search at one place.
struct lane_group {
  gn_u32 mask, hint;
};

// The slot that a lane asks slots_take for.
enum slot_wish : gn_u32 {
  WANTS_NONE,
  WANTS_TICKET,  // a first slot: draws a ticket
  HAS_TICKET,    // a first slot: has a ticket from an earlier call
  WANTS_SPARE,   // a slot that no ticket waits for
};

// Takes a bit of the bitmap for each lane with `want` set; NO_SLOT if there are too few. A lane with `first`
// takes the bit of its own number, if that is free: this needs no search. The lanes call it together, and one
// of them asks for all.
template <class S>
GN_DEV gn_u32 bits_take_all(channel& c, const lane_group& lanes, bool want, bool first) {
  gn_u32 mask = lanes.mask, slot = NO_SLOT;
  // neighbours begin at one word, other warps at other words
  gn_u32 w = __shfl_sync(mask, lanes.hint / 32, (int)lowest(mask)) % (SLOTS / 32);
  gn_u32 own = __ballot_sync(mask, want && first), got = 0;
  if (own) {
    // pairs with the release of slots_give
    if (lane_id() == lowest(mask)) got = own & ~S::or_acqrel(&c.slot_bits[w], own);
    got = __shfl_sync(mask, got, (int)lowest(mask));
    if (got >> lane_id() & 1u) slot = w * 32 + lane_id();
  }
  gn_u32 todo = __ballot_sync(mask, want && slot == NO_SLOT);
#pragma unroll 1
  for (gn_u32 i = 0; i < SLOTS / 32 && todo; ++i, ++w) {
    w %= SLOTS / 32;
    gn_u32 rank = (gn_u32)__popc(todo & lt_mask());
    if (lane_id() == lowest(mask)) got = bits_take<S>(&c.slot_bits[w], (gn_u32)__popc(todo));
    got = __shfl_sync(mask, got, (int)lowest(mask));
    if (todo >> lane_id() & 1u && rank < (gn_u32)__popc(got)) slot = w * 32 + nth_bit(got, rank);
    todo = __ballot_sync(mask, want && slot == NO_SLOT);
  }
  __syncwarp(mask);  // the asking lane's acquire reaches the others
  return slot;
}

// Takes a slot for each lane that wants one, or NO_SLOT. It never waits: a lane without a slot
// polls and tries again, with the `ticket` that it has then. The lanes call it together. In any case they
// hand over what they have counted, as the next one that counts may be another lane.
template <class S>
GN_DEV gn_u32 slots_take(channel& c, const lane_group& lanes, slot_wish wish, gn_u32& ticket) {
  gn_u32 mask = lanes.mask;
  if (!__any_sync(mask, wish != WANTS_NONE)) {
    if (S::ALONE) __syncwarp(mask);
    return NO_SLOT;
  }
  gn_u32 draws = __ballot_sync(mask, wish == WANTS_TICKET);
  if (draws) {
    gn_u32 first = 0;
    if (lane_id() == lowest(mask)) first = S::add(&c.tickets, (gn_u32)__popc(draws));
    first = __shfl_sync(mask, first, (int)lowest(mask));
    if (wish == WANTS_TICKET) ticket = first + (gn_u32)__popc(draws & lt_mask());
    if (wish == WANTS_TICKET) wish = HAS_TICKET;
  }
  if (wish == HAS_TICKET && (int)(ticket - S::ld(&c.returned) - SLOTS) >= 0) wish = WANTS_NONE;
  gn_u32 spares = __ballot_sync(mask, wish == WANTS_SPARE);
  if (spares) {
    gn_u32 got = 0;
    if (lane_id() == lowest(mask)) got = spare_tickets<S>(c, (gn_u32)__popc(spares));
    got = __shfl_sync(mask, got, (int)lowest(mask));
    if (wish == WANTS_SPARE && (gn_u32)__popc(spares & lt_mask()) >= got) wish = WANTS_NONE;
  }
  gn_u32 slot = bits_take_all<S>(c, lanes, wish != WANTS_NONE, wish == HAS_TICKET);
  gn_u32 missed = __ballot_sync(mask, wish == WANTS_SPARE && slot == NO_SLOT);
  if (missed && lane_id() == lowest(mask)) S::add(&c.returned, (gn_u32)__popc(missed));
  if (S::ALONE) __syncwarp(mask);
  return slot;
}

// Gives back the ticket of each lane of `mask` that has `give` set, and that took no slot with it. The lanes
// call it together.
template <class S>
GN_DEV void tickets_give(channel& c, gn_u32 mask, bool give) {
  gn_u32 all = __ballot_sync(mask, give);
  if (all && lane_id() == lowest(mask)) S::add(&c.returned, (gn_u32)__popc(all));
}

// Gives back the slots `bits` of word `w`. One thread.
template <class S>
GN_DEV void bits_give(channel& c, gn_u32 w, gn_u32 bits) {
  S::and_release(&c.slot_bits[w], ~bits);
  S::add(&c.returned, (gn_u32)__popc(bits));
}
template <class S>
GN_DEV void slot_give(channel& c, gn_u32 slot) {
  bits_give<S>(c, slot / 32, 1u << (slot & 31u));
}

// Gives back the slot of each lane of `mask` that has `give` set; the lanes call it together.
template <class S>
GN_DEV void slots_give(channel& c, gn_u32 mask, bool give, gn_u32 slot) {
  gn_u32 todo = __ballot_sync(mask, give);
  if (!todo) return;
  __syncwarp(mask);  // what the lanes did with their slots is before the release
  while (todo) {
    gn_u32 w = __shfl_sync(mask, slot / 32, (int)lowest(todo));
    bool here = give && slot / 32 == w;
    gn_u32 bits = __reduce_or_sync(mask, here ? 1u << (slot & 31u) : 0u);
    if (lane_id() == lowest(mask)) bits_give<S>(c, w, bits);
    todo &= ~__ballot_sync(mask, here);
  }
  if (S::ALONE) __syncwarp(mask);
}

}  // namespace gn
