// SPDX-License-Identifier: Apache-2.0 OR MIT
// Requests that no thread waits for: the channel keeps them (parked). A warp that polls with a table of
// callbacks advances each of them as far as it goes. It calls back the ended ones and parks the others again.
//
//   park      a thread leaves its request with the channel
//   advance   the lanes of a mask each adopt a parked request for one step
//
// A parked request is a thread's with its registers in memory: the same code cuts, sends, retries and gives
// it up.
#pragma once
#include "gnor/io.cuh"

namespace gn {

// What a request needs between two steps; in channel::parked_addr under the number of the request's slot.
struct parked {
  io x;
  volume* v;
  gn_u64 user;
  gn_u32 deadline;  // now_ticks
  gn_u32 callback;
};
static_assert(sizeof(io) == 40 && sizeof(parked) == PARKED_BYTES, "");

GN_DEV parked& parked_of(const channel& c, gn_u32 head) { return ((parked*)c.parked_addr)[head]; }

// Leaves the request of each lane of `mask` that has one staged or sent with the channel.
template <class S>
GN_DEV void park(channel& c, gn_u32 mask, bool mine, const parked& p) {
  if (mine) parked_of(c, p.x.head) = p;
  __syncwarp(mask);
  in_turns<S>(mask, mine, [&] {
    S::or_acqrel(&c.parked_bits[p.x.head / 32], 1u << (p.x.head & 31u));  // pairs with the exchange in adopt
  });
  if constexpr (S::ALONE) ring_again<S>(c, mask);  // perhaps this warp does not come again
}

// Takes a parked request for each lane of `mask`; NO_SLOT if there are too few. The lane owns the request
// until it parks it again.
template <class S>
GN_DEV gn_u32 adopt(channel& c, gn_u32 mask, gn_u32 w) {
  gn_u32 bits = 0, leader = lowest(mask), lanes = (gn_u32)__popc(mask),
         rank = (gn_u32)__popc(mask & lt_mask());
  if (lane_id() == leader && S::ld(&c.parked_bits[w])) {
    bits = S::exch_acquire(&c.parked_bits[w], 0u);
    gn_u32 mine = some_of(bits, lanes);
    if (bits & ~mine) S::or_acqrel(&c.parked_bits[w], bits & ~mine);
    bits = mine;
  }
  bits = __shfl_sync(mask, bits, (int)leader);
  __syncwarp(mask);  // the leader's acquire reaches the others
  return rank < (gn_u32)__popc(bits) ? w * 32 + nth_bit(bits, rank) : (gn_u32)NO_SLOT;
}

#if defined(GN_SIMT_HOST)
// Threads in a callback, so that one that waits is found: a thread's place has its channel's address in it.
inline gn_u64 callers[1 << 12];
GN_DEV gn_u64* caller() { return &callers[(blockIdx.x * blockDim.x + threadIdx.x) % (1 << 12)]; }
GN_DEV void enter_callback(const channel& c) { mem::st_relaxed_cta(caller(), (gn_u64)&c); }
GN_DEV void leave_callback() { mem::st_relaxed_cta(caller(), (gn_u64)0); }
GN_DEV void may_wait(const channel& c) {
  if (mem::ld_relaxed_cta(caller()) == (gn_u64)&c) simt::misuse("a callback waits");
}
#else
GN_DEV void enter_callback(const channel&) {}
GN_DEV void leave_callback() {}
GN_DEV void may_wait(const channel&) {}
#endif

// Advances every parked request by one step, and calls `ended(user, callback, x)` for each that has ended,
// lane by lane. The lanes call it together. Lanes without a request use the volume `any`.
template <class S, class F>
GN_DEV void advance(channel& c, volume& any, const lane_group& lanes, F ended_) {
  gn_u32 mask = lanes.mask;
  for (gn_u32 w = 0; w < SLOTS / 32; ++w) {
    gn_u32 head = adopt<S>(c, mask, w);
    bool mine = head != NO_SLOT;
    if (!__any_sync(mask, mine)) continue;
    parked p;
    if (mine) p = parked_of(c, head);
    volume& v = mine ? *p.v : any;
    io_stage<S>(c, v, mine, p.x, lanes);
    io_commit<S>(c, mask, p.x);
    bool ended = io_finished<S>(c, v, mask, mine, p.x);
    bool late = mine && !ended && ticks_passed(p.deadline);
    io_abandon<S>(c, v, mask, late, p.x);
    ended |= late;
    park<S>(c, mask, mine && !ended, p);
    in_turns<S>(mask, ended, [&] {
      enter_callback(c);
      ended_(p.user, p.callback, p.x);
      leave_callback();
    });
    __syncwarp(mask);
  }
}

}  // namespace gn
