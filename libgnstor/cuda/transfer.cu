// SPDX-License-Identifier: Apache-2.0 OR MIT
// The host API's reads and writes run this kernel: the device's initiator is the only one.
#include "transfer.h"

namespace gn {

// The file of an item. For a write it is a copy of the volume whose next sequence is that of the item. So
// every sending of the item uses this sequence.
GN_DEV file file_of_item(const transfer_args& a, gn_u32 i) {
  file f = a.f;
  transfer_item& t = a.items[i];
  if (t.opcode != IO_WRITE) return f;
  if (!t.sequence) t.sequence = mem::add_relaxed_gpu(&f.v->next_sequence, (gn_u64)1);
  volume& own = a.volumes[i];
  own = *f.v;
  own.next_sequence = t.sequence;
  f.v = &own;
  return f;
}

GN_DEV void transfer_body(transfer_args& a, gn_u32 block, gn_u32 blocks) {
  gn_u32 stride = blocks * blockDim.x;
  for (gn_u32 base = block * blockDim.x + (threadIdx.x & ~31u); base < a.count; base += stride) {
    gn_u32 i = base + lane_id();
    bool have = i < a.count;
    io x;
    file f = a.f;
    if (have) {
      f = file_of_item(a, i);
      const transfer_item& t = a.items[i];
      x = io_make(*f.v, t.opcode, {t.vba, t.blocks}, io_memory{t.address, t.key},
                  t.flags | FLAG_ONCE | (t.replica ? (gn_u32)FLAG_PINNED : 0u));
      // Replicas go round, and 12 is a multiple of any number of them.
      x.attempt = t.replica ? (t.replica - 1) % 12 + 1 : 0;
    }
    gn_u32 status = run_warp(f, have, x);
    if (have) {
      a.items[i].status = status;
      a.items[i].dw0 = x.dw0;
      a.items[i].dw1 = x.dw1;
    }
  }
}

// What kernels that have ended left in flight; their callbacks are not known here.
GN_DEV void drain_body(drain_args& a, gn_u32 block, gn_u32) {
  if (block != 0 || warp_in_block() != 0) return;
  gn_u32 left = drain(a.f, a.timeout_ns);
  if (lane_id() == 0) a.left = left;
}

}  // namespace gn

GN_CLIENT(gn_transfer, gn::transfer_args, gn::transfer_body)
GN_CLIENT(gn_drain_channel, gn::drain_args, gn::drain_body)
