// SPDX-License-Identifier: Apache-2.0 OR MIT
// The GPU's part of setting a channel up (paper 4.2): write the receives, send Fabrics Connect on every queue
// pair.
#pragma once
#include "gnor/io.cuh"

namespace gn {

struct connect_args {
  channel* channel_;
  gn_u64 timeout_ns;
  gn_u32 status[MAX_SSDS];  // out: per SSD, as in io::status
  gn_u32 dw0[MAX_SSDS];     // out
};

// Every receive of an SSD's first set of queues: one data segment each, written once. From then on a receive
// is posted by moving the doorbell record, which `publish` does with the command that it is for.
GN_DEV void write_receives(const channel& c, gn_u32 ssd) {
  gn_u64 receives = queue_of(c, ssd) + SQ_AT + (gn_u64)(c.depth * RQ_AT_EACH),
         responses = queue_of(c, ssd) + SQ_AT + (gn_u64)(c.depth * RECV_AT_EACH);
  for (gn_u32 i = 0; i < c.depth; ++i) {
    gn_u64 address = responses + (gn_u64)i * 16;
    gn_u32 seg[4] = {be32(16u), be32(c.queue_lkey), be32((gn_u32)(address >> 32)), be32((gn_u32)address)};
    mem::st16((gn_u8*)receives + (gn_u64)i * mlx5::DS_BYTES, seg);
  }
  queue_pair& qp = qp_of(c, ssd);
  mem::st_release_gpu(&qp.gate, gate_of(gate_next(qp.gate), qp.completed + c.depth, 0, 0));
}

// Fabrics Connect for I/O queue `qid` with the 1,024 bytes of data the CPU has prepared
// (proto/src/fabrics.rs).
GN_DEV void write_connect(channel& c, gn_u32 cid, gn_u32 ssd) {
  gn_u64 data = c.connect_addr + (gn_u64)ssd * 1024;
  gn_u32 w[16] = {};
  w[0] = cid << 16 | NVME_FLAGS_SGL << 8 | NVME_FABRICS;
  w[1] = 1;  // FCTYPE Connect
  w[6] = (gn_u32)data;
  w[7] = (gn_u32)(data >> 32);
  w[8] = 1024u | c.queue_lkey << 24;
  w[9] = c.queue_lkey >> 8 | SGL_KEYED << 24;
  w[10] = c.qid << 16;
  w[11] = NVME_ENTRIES_EACH * c.depth - 1;  // as the CPU has asked for them, counted from 0
  gn_u8* to = capsule_of(c, cid);
  for (gn_u32 k = 0; k < 4; ++k) mem::st16(to + 16 * k, w + 4 * k);
}

// One warp connects all SSDs of the channel, 32 at a time.
GN_DEV void connect_all(connect_args& a) {
  using S = by_device;
  constexpr gn_u32 ALL = 0xffffffffu;
  channel& c = *a.channel_;
  volume none = {};  // Connect has no volume, and is not cut
  gn_u64 deadline = now_ns() + a.timeout_ns;
  for (gn_u32 base = 0; base < c.ssds; base += 32) {
    gn_u32 ssd = base + lane_id();
    bool waiting = ssd < c.ssds;
    if (waiting) write_receives(c, ssd);
    gn_u32 ticket = 0;
    // A new channel has slots for all SSDs.
    gn_u32 cid = slots_take<S>(c, {ALL, 0}, waiting ? WANTS_TICKET : WANTS_NONE, ticket);
    io x;
    if (waiting) {
      write_connect(c, cid, ssd);
      x.status = GN_PENDING;
      x.blocks = x.sent = 1;
      x.head = cid;
      x.cid = cid;
      x.ssd = ssd;
    }
    while (__any_sync(ALL, waiting)) {
      io_commit<S>(c, ALL, x);
      take_completions<S>(c, ALL);
      bool ended = io_finished<S>(c, none, ALL, waiting, x);
      io_abandon<S>(c, none, ALL, waiting && !ended && now_ns() > deadline, x);
      if (!waiting || !io_ended(x)) continue;
      a.status[ssd] = x.status;
      a.dw0[ssd] = x.dw0;
      waiting = false;
    }
  }
}

}  // namespace gn
