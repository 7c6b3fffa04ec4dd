// SPDX-License-Identifier: Apache-2.0 OR MIT
// Requests that end in a callback; any warp that polls calls it.
//
//   GN_DEV void filled(const gn::file& f, gn_u64 user, gn_u32 status, gn_u32 dw0) { ... }
//   __device__ gn::callback<> table[] = {filled};
//   gn::submit_async(f, gn::read_request(f, vba, 1, buffer, f.pool_key()), 0, user);
//   gn::poll(f, gn::callbacks<>{table, 1});    // any warp, now or later, in any kernel of this module
//
// A callback may submit and free; it does not wait (no poll, no blocking read). A request whose kernel has
// ended goes on belonging to the channel, which a later poll, or a drain, takes along.
#pragma once
#include "gnstor/batch.cuh"

namespace gn {

template <class S = by_device>
using callback = void (*)(const file_of<S>& f, gn_u64 user, gn_u32 status, gn_u32 dw0);

// Callbacks by index, as addresses in the poller's own module.
template <class S = by_device>
struct callbacks {
  const callback<S>* table;
  gn_u32 count;
};

// Hands a request to the channel. GN_PENDING: the channel has it and will call `callbacks.table[index]` once
// with `user`, also if the file's deadline passes (GN_TIMED_OUT). With any other result nothing was done.
// GN_BUSY: poll, then try again. The lanes of `mask` call it together, by default a thread alone. A lane
// without `have` only takes part.
template <class S>
GN_DEV gn_u32 submit_async(const file_of<S>& f, const io& request, gn_u32 index, gn_u64 user, bool have,
                           gn_u32 mask) {
  parked p;
  p.x = request;
  p.v = f.v;
  p.user = user;
  p.deadline = ticks_after(f.timeout_ns);
  p.callback = index;
  // A poller, perhaps in another block or kernel, reads the buffer's description.
  bool hidden = have && has_pieces(request) && !is_global(&buffer_of(request.address));
  have = have && !io_ended(request) && !hidden;
  io_stage<S, false>(*f.c, *f.v, have, p.x, {mask, thread_number()});
  bool taken = have && p.x.head != IO_NONE;
  io_commit<S>(*f.c, mask, p.x);
  park<S>(*f.c, mask, taken, p);
  if (hidden) return GN_BAD_REQUEST;
  return taken ? (gn_u32)GN_PENDING : have ? (gn_u32)GN_BUSY : request.status;
}
template <class S>
GN_DEV gn_u32 submit_async(const file_of<S>& f, const io& request, gn_u32 index, gn_u64 user) {
  return submit_async(f, request, index, user, true, 1u << lane_id());
}

// Takes completions, advances parked requests and calls the callbacks of ended ones. The lanes of `mask` call
// it. Returns the number of completions.
template <class S>
GN_DEV gn_u32 poll(const file_of<S>& f, const callbacks<S>& back, gn_u32 mask = ALL_LANES) {
  gn_u32 taken = poll(f, mask);
  advance<S>(*f.c, *f.v, {mask, thread_number()}, [&](gn_u64 user, gn_u32 index, const io& x) {
    if (index < back.count) back.table[index](f, user, x.status, x.dw0);
    else mem::add_relaxed_gpu(&f.c->uncalled, 1u);
  });
  return taken;
}

// Polls until no request of the channel is left or the time is over: returns how many slots are still taken.
// Callbacks that `back` does not have are not called, and counted (channel::uncalled). No thread may submit
// meanwhile. The lanes of `mask`.
template <class S>
GN_DEV gn_u32 drain(const file_of<S>& f, gn_u64 timeout_ns, const callbacks<S>& back = {nullptr, 0},
                    gn_u32 mask = ALL_LANES) {
  gn_u32 deadline = ticks_after(timeout_ns);
  for (;;) {
    poll(f, back, mask);
    gn_u32 left = 0;
    for (gn_u32 w = 0; w < SLOTS / 32; ++w) left += (gn_u32)__popc(S::ld(&f.c->slot_bits[w]));
    left = __shfl_sync(mask, left, (int)lowest(mask));
    if (left == 0 || __any_sync(mask, ticks_passed(deadline))) return left;
  }
}

}  // namespace gn
