// SPDX-License-Identifier: Apache-2.0 OR MIT
// Where writes to GPU memory are not ordered, a completion may be seen before what it speaks of. Neither the
// response nor the data of a read is there yet. They are when the queue pair has executed a DUMP that was
// posted behind the completion (docs/hca-checklist.md). Then responses are counted when their completions
// come, and looked at when a DUMP behind them has ended:
//
//   completion --arrived--> DUMP covers all arrived ... its completion --landed--> read response, end request
//
// One DUMP of a queue pair is under way at a time; what arrives meanwhile goes with the next. All of this is
// under cq_word's lock, or a warp's alone, but for the count of those posted, which `publish` keeps in its
// order. Such a channel's queue pairs are not made anew beside a kernel: its first sets of queues are in use.
#pragma once
#include "fabric/mlx5.h"
#include "gnor/append.cuh"

namespace gn {

// What a lane has read from the completion queue.
struct completion {
  gn_u32 queue = 0xffffffffu;
  gn_u32 opcode = 0, counter = 0;
  // a response that is an error: the answer to the Connect of a queue pair that is made anew
  bool is_response = false, is_ack = false, is_error = false;
};

// Writes the work request. It reads one byte of the queues' memory, and sends it nowhere.
GN_DEV void write_dump(const channel& c, gn_u32 ssd, gn_u32 index) {
  gn_u8* block = (gn_u8*)queue_of(c, ssd) + SQ_AT + (gn_u64)((index & (c.depth - 1)) * mlx5::WQEBB);
  gn_u64 address = (gn_u64)record_of(c, ssd);
  gn_u32 ctrl[4] = {be32((index & 0xffffu) << 8 | mlx5::OP_DUMP), be32((c.first_qpn + ssd) << 8 | 2u),
                    be32((gn_u32)mlx5::CE_CQ_UPDATE), 0};
  gn_u32 data[4] = {be32(1u), be32(c.queue_lkey), be32((gn_u32)(address >> 32)), be32((gn_u32)address)};
  mem::st16(block, ctrl);
  mem::st16(block + 16, data);
}

// A send block for a DUMP. It takes no receive, so it may be sent when a command may not: after as many
// commands as there are receives. SENDs retire whether their responses have been read or not.
template <class S>
GN_DEV bool reserve_dump(const channel& c, queue_pair& qp, gn_u32& at) {
  return reserve_ahead<S>(qp, qp.retired + c.depth, at);
}

// The responses among these completions are taken off the lanes; a DUMP's says that what it covers has
// landed. The lanes of `mask` together.
template <class S>
GN_DEV void hold_responses(const channel& c, gn_u32 mask, completion& x, bool& mine) {
  gn_u32 group = __match_any_sync(mask, x.is_response ? x.queue : 0xffffffffu);
  if (x.is_response && lane_id() == lowest(group)) dumps_of(c, x.queue).arrived += (gn_u32)__popc(group);
  mine = mine && !x.is_response;
  x.is_response = false;
  if (x.is_ack) {
    dumps& d = dumps_of(c, x.queue);
    // in this order: other lanes have acknowledgements of commands
    if (x.counter == (d.at & 0xffffu) && d.landed != d.covers) {
      d.landed = d.covers;
      // the DUMP's block is freed as a command's is
      S::st(&qp_of(c, x.queue).completed,
            S::ld(&qp_of(c, x.queue).completed) + 1);
    }
  }
  __syncwarp(mask);
}

// Replaces the lanes' completions by responses of one queue pair that have landed. Returns false if there are
// none. The lanes of `mask` call it together.
template <class S>
GN_DEV bool take_landed(const channel& c, gn_u32 mask, completion& x) {
  gn_u32 lanes = (gn_u32)__popc(mask), rank = (gn_u32)__popc(mask & lt_mask());
  x = completion();
  __syncwarp(mask);
  for (gn_u32 base = 0; base < c.ssds; base += lanes) {
    gn_u32 ssd = base + rank;
    bool has =
        ssd < c.ssds && dumps_of(c, ssd).taken != dumps_of(c, ssd).landed && !S::ld(&qp_of(c, ssd).error);
    gn_u32 all = __ballot_sync(mask, has);
    if (!all) continue;
    ssd = __shfl_sync(mask, ssd, (int)lowest(all));
    dumps& d = dumps_of(c, ssd);
    gn_u32 at = d.taken, n = d.landed - at < lanes ? d.landed - at : lanes;
    __syncwarp(mask);  // all have read it
    if (rank == 0) d.taken = at + n;
    if (rank < n) x.queue = ssd, x.opcode = mlx5::CQE_RESP_SEND, x.counter = at + rank;
    x.is_response = rank < n;
    __syncwarp(mask);
    return true;
  }
  return false;
}

// Posts a DUMP for each queue pair with responses that none covers. If the queue has no room, it tries again
// after the next completion. The lanes of `mask` call it together.
template <class S>
GN_DEV void post_dumps(channel& c, gn_u32 mask) {
  for (gn_u32 ssd = (gn_u32)__popc(mask & lt_mask()); ssd < c.ssds; ssd += (gn_u32)__popc(mask)) {
    dumps& d = dumps_of(c, ssd);
    queue_pair& qp = qp_of(c, ssd);
    gn_u32 at = 0;
    if (d.arrived == d.covers || d.covers != d.landed || S::ld(&qp.error) || !reserve_dump<S>(c, qp, at))
      continue;
    d.at = at;
    d.covers = d.arrived;
    write_dump(c, ssd, at);
    publish<S, true>(c, ssd, 0, at, 1);
  }
  __syncwarp(mask);
}

}  // namespace gn
