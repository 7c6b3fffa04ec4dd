// SPDX-License-Identifier: Apache-2.0 OR MIT
// Batched I/O in the four stages of the paper's figure 7: a request of each thread, sent and taken by warps.
#pragma once
#include "gnstor/file.cuh"

namespace gn {

// The block's bitmap of pending requests (paper figure 7): one bit a thread, one word a warp.
struct batch {
  gn_u32 pending[32];
  gn_u64 deadline[1024];
};

// Bytes of shared memory that a batch takes in a block of `threads`.
GN_DEV gn_u32 batch_bytes(gn_u32 threads) {
  return (gn_u32)sizeof(gn_u32) * 32 + threads * (gn_u32)sizeof(gn_u64);
}

// All threads of the block call it, once.
GN_DEV void batch_init(batch& b) {
  if (threadIdx.x < 32) b.pending[threadIdx.x] = 0;
  __syncthreads();
}

// Whether a lane of this warp has a pending request. All lanes get the same answer.
GN_DEV bool batch_busy(const batch& b) { return mem::ld_relaxed_cta(&b.pending[warp_in_block()]) != 0; }

// Whether this thread's request is pending: it sits out the next batch.
GN_DEV bool batch_pending(const batch& b) {
  return mem::ld_relaxed_cta(&b.pending[warp_in_block()]) >> lane_id() & 1u;
}

// Puts a request into the batch: the thread's bit is set until `dispatch` clears it. Any thread whose bit is
// clear.
template <class S>
GN_DEV void enter(batch& b, const file_of<S>& f) {
  gn_u64 now = now_ns();
  b.deadline[threadIdx.x] = f.timeout_ns < ~now ? now + f.timeout_ns : ~(gn_u64)0;
  mem::or_acqrel_cta(&b.pending[warp_in_block()], 1u << lane_id());
}

// Stage 1: builds the next command of this thread's request. All lanes call it.
template <class S, class X>
GN_DEV void submit(batch& b, const file_of<S>& f, X& x) {
  io_stage<S>(*f.c, *f.v, batch_pending(b), x, {ALL_LANES, thread_number()});
}

// Stage 2: sends what the warp has built, one doorbell an SSD. All lanes call it.
template <class S>
GN_DEV void commit(batch&, const file_of<S>& f, io& x) {
  io_commit<S>(*f.c, ALL_LANES, x);
}

// Stage 3: takes completions of any request. All lanes of `mask` call it. Returns their number.
template <class S>
GN_DEV gn_u32 poll(const file_of<S>& f, gn_u32 mask = ALL_LANES) {
  may_wait(*f.c);
  return take_completions<S>(*f.c, mask);
}

// Stage 4: true once, when this thread's request has ended; its status is x.status. All lanes call it.
template <class S, class X>
GN_DEV bool dispatch(batch& b, const file_of<S>& f, X& x) {
  bool pending = batch_pending(b);
  bool ended = io_finished<S>(*f.c, *f.v, ALL_LANES, pending, x);
  bool late = pending && !ended && now_ns() > b.deadline[threadIdx.x];
  io_abandon<S>(*f.c, *f.v, ALL_LANES, late, x);
  ended |= late;
  if (ended) mem::and_acqrel_cta(&b.pending[warp_in_block()], ~(1u << lane_id()));
  __syncwarp();
  return ended;
}

// Gives up the warp's pending requests, for a kernel that ends before them. The channel owns them from then
// on, and a later poll or drain takes their completions. Such a request ends with GN_TIMED_OUT, and its
// buffer may be given back. All lanes call it.
template <class S, class X>
GN_DEV void leave(batch& b, const file_of<S>& f, X& x) {
  bool pending = batch_pending(b);
  io_abandon<S>(*f.c, *f.v, ALL_LANES, pending, x);
  if (pending) mem::and_acqrel_cta(&b.pending[warp_in_block()], ~(1u << lane_id()));
  if constexpr (S::ALONE) ring_again<S>(*f.c, ALL_LANES);  // perhaps this warp does not come again
  __syncwarp();
}

}  // namespace gn
