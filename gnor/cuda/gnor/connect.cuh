// SPDX-License-Identifier: Apache-2.0 OR MIT
// The GPU's part of setting a channel up (paper 4.2): post the receives, send Fabrics Connect on every queue pair.
#pragma once
#include "gnor/io.cuh"

namespace gn {

struct connect_args {
  channel* channel_;
  gn_u64 timeout_ns;
  gn_u32 status[MAX_SSDS];  // out: per SSD, as in request::status
  gn_u32 dw0[MAX_SSDS];     // out
};

// Every receive of one queue pair: one data segment each, posted by moving the doorbell record only.
GN_DEV void post_receives(const channel& c, queue_pair& qp) {
  for (gn_u32 i = 0; i < RQ_ENTRIES; ++i) {
    gn_u64 address = qp.recv_addr + (gn_u64)i * 16;
    gn_u32 seg[4] = {be32(16u), be32(c.queue_lkey), be32((gn_u32)(address >> 32)), be32((gn_u32)address)};
    mem::st16((gn_u8*)qp.rq_addr + (gn_u64)i * mlx5::DS_BYTES, seg);
  }
  mem::st_relaxed_gpu(&qp.posted, (gn_u32)RQ_ENTRIES);
  mem::st_release_sys((gn_u32*)qp.dbr_addr + mlx5::RCV_DBR, be32((gn_u32)RQ_ENTRIES));  // pairs with deliver_send's acquire
}

// Fabrics Connect for I/O queue `qid` with the 1,024 bytes of data the CPU has prepared (proto/src/fabrics.rs).
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
  w[11] = RQ_ENTRIES - 1;
  gn_u8* to = capsule_of(c, cid);
  for (gn_u32 k = 0; k < 4; ++k) mem::st16(to + 16 * k, w + 4 * k);
}

// One warp connects all SSDs of the channel, 32 at a time.
GN_DEV void connect_all(connect_args& a) {
  channel& c = *a.channel_;
  gn_u64 deadline = now_ns() + a.timeout_ns;
  for (gn_u32 base = 0; base < c.ssds; base += 32) {
    gn_u32 ssd = base + lane_id();
    bool mine = ssd < c.ssds;
    io x;
    x.status = GN_PENDING;
    if (mine) {
      post_receives(c, qp_of(c, ssd));
      io_begin(c, x, lane_id());
      gn_u32 cid = slot_take(c.cid_bits, CMD_SLOTS / 32, lane_id());
      write_connect(c, cid, ssd);
      c.commands[cid].qp = ssd;
      c.commands[cid].req = x.req;
      mem::add_relaxed_gpu(&c.requests[x.req].pending, 1u);
      x.staged = cid;
      x.staged_ssd = ssd;
    }
    bool waiting = mine;
    while (__any_sync(0xffffffffu, waiting)) {
      io_commit(c, 0xffffffffu, x);
      take_completions(c, 0xffffffffu);
      if (!waiting) continue;
      if (x.staged == NO_SLOT && mem::ld_acquire_gpu(&c.requests[x.req].pending) == 1u) {
        a.status[ssd] = mem::ld_relaxed_gpu(&c.requests[x.req].status);
        a.dw0[ssd] = mem::ld_relaxed_gpu(&c.requests[x.req].dw0);
        slot_give(c.req_bits, x.req);
        waiting = false;
      } else if (now_ns() > deadline) {
        io_abandon(c, x, 0);
        a.status[ssd] = GN_TIMED_OUT;
        waiting = false;
      }
    }
  }
}

}  // namespace gn
