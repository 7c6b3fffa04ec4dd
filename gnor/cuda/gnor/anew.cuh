// SPDX-License-Identifier: Apache-2.0 OR MIT
// Queue pairs that are made anew beside a running kernel (docs/decisions/0058). An SSD has two sets of queues
// in its channel. Its gate says which one is in use. When the SSD is back, the CPU fills the other set, has
// the HCA begin anew there, and sends Fabrics Connect in its first block:
//
//   set in use breaks --> CPU: other set, Connect --> SSD answers --> completion: that set is in use
//
// The answer's completion is the hand-over. Before it no thread of the device touches the new set, and behind
// it the CPU does not. All of this is under cq_word's lock, or a warp's alone. The third word of the new
// set's doorbell record says that the completion was taken. Before that the CPU fills no set once more:
// responses of the old one may be unread.
//
// The CPU asks for it only when the HCA has reported all that was in flight in the set in use. So what comes
// behind the answer for the set before are flushed blocks that a slow warp had posted: their commands have
// ended by then.
#pragma once
#include "gnor/append.cuh"

namespace gn {

// The command id of that Connect: no command of the device's has it.
enum : gn_u32 { CID_CONNECT = 0xfffeu, RECORD_TAKEN = 2 };

// Until the blocks below `next` are published: their commands and capsules can be seen, and no warp still
// writes to the set that is left. The warps that have reserved them wait for nothing but each other.
template <class S>
GN_DEV void await_published(const queue_pair& qp, gn_u32 next) {
  while (!S::ALONE && S::ld_acquire(&qp.publish) != next) pause(20);
}

// This set is in use from here on. Connect has used its first block and its first receive. The release of the
// gate hands over the counters, and the release of the error says that the gate is open.
template <class S>
GN_DEV void use_set(channel& c, gn_u32 queue) {
  queue_pair& qp = qp_of(c, ssd_of(c, queue));
  qp.retired = 0;
  qp.rung = 1;
  S::st(&qp.completed, 1u);
  S::st_release(&qp.publish, 1u);
  S::st_release(&qp.gate, gate_of(1, c.depth, 0, 0) | (queue >= c.ssds ? (gn_u64)GATE_SET : 0u));
  S::st_release(&qp.error, 0u);
  mem::st_release_sys(record_of(c, queue) + RECORD_TAKEN, 1u);  // behind the reading of all old responses
}

}  // namespace gn
