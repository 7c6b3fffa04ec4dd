// SPDX-License-Identifier: Apache-2.0 OR MIT
// The HCA's requester half: one warp sees doorbells, fetches up to 32 work requests a pass, checks and executes them.
//
//   doorbell page --kick--> doorbell record --producer index--> WQE ring --decode, check keys--> up ring
#pragma once
#include "fabric/keys.cuh"
#include "fabric/mlx5.h"
#include "fabric/up.cuh"

namespace gn { namespace hca {

enum : gn_u32 { SEND_MAX_BYTES = 64 };  // the up ring carries one command capsule

// A work request as one lane sees it. `blocks` is its length in 64-byte blocks.
struct work {
  gn_u32 kind;      // UP_*
  gn_u32 status;    // syndrome when kind is UP_WQE_ERROR
  gn_u32 index;     // of its first block
  gn_u32 blocks;
  gn_u32 segments;  // 16-byte segments, the control segment included
  gn_u32 flags;
  gn_u32 bytes;
  gn_u32 lkey, rkey;
  gn_u64 laddr, raddr;
};

// Segment `s` of the work request at `index`, following the ring's wrap inside it.
GN_DEV void load_segment(const qp_ctx& qp, gn_u32 index, gn_u32 s, gn_u32 out[4]) {
  gn_u64 block = (index + s / 4) & qp.sq_mask;
  mem::ld16_stream((const void*)(qp.sq_addr + block * mlx5::WQEBB + (s % 4) * mlx5::DS_BYTES), out);
}

GN_DEV void fail(work& w, gn_u32 syndrome) {
  w.kind = UP_WQE_ERROR;
  w.status = syndrome;
}

// Checks a SEND's data segments and adds up its length. Inline data is in the work request itself and needs no key.
GN_DEV void check_send(const agent_args& a, const qp_ctx& qp, work& w) {
  gn_u32 seg[4];
  for (gn_u32 s = 1; s < w.segments;) {
    load_segment(qp, w.index, s, seg);
    gn_u32 count = be32(seg[0]);
    if (count & mlx5::INLINE_FLAG) {
      w.bytes += count & mlx5::BYTE_COUNT_MASK;
      s += ((count & mlx5::BYTE_COUNT_MASK) + 4 + 15) / 16;
    } else {
      gn_u32 bytes = count & mlx5::BYTE_COUNT_MASK;
      gn_u64 addr = (gn_u64)be32(seg[2]) << 32 | be32(seg[3]);
      if (!key_opens(a, qp.pd, be32(seg[1]), addr, bytes, 0)) return fail(w, mlx5::SYND_LOCAL_PROT);
      w.bytes += bytes;
      s += 1;
    }
    if (w.bytes > SEND_MAX_BYTES) return fail(w, mlx5::SYND_LOCAL_LENGTH);
    if (s > w.segments) return fail(w, mlx5::SYND_LOCAL_QP_OP);
  }
  w.kind = UP_SEND;
}

// An RDMA WRITE or READ of one data segment.
GN_DEV void check_rdma(const agent_args& a, const qp_ctx& qp, work& w, gn_u32 kind) {
  if (w.segments != 3) return fail(w, mlx5::SYND_LOCAL_QP_OP);
  gn_u32 seg[4];
  load_segment(qp, w.index, 1, seg);
  w.raddr = (gn_u64)be32(seg[0]) << 32 | be32(seg[1]);
  w.rkey = be32(seg[2]);
  load_segment(qp, w.index, 2, seg);
  w.bytes = be32(seg[0]) & mlx5::BYTE_COUNT_MASK;
  w.lkey = be32(seg[1]);
  w.laddr = (gn_u64)be32(seg[2]) << 32 | be32(seg[3]);
  gn_u32 need = kind == UP_READ ? (gn_u32)ACCESS_LOCAL_WRITE : 0u;
  if (!key_opens(a, qp.pd, w.lkey, w.laddr, w.bytes, need)) return fail(w, mlx5::SYND_LOCAL_PROT);
  w.kind = kind;
}

// Decodes and checks the work request whose first block is `index`.
GN_DEV work decode(const agent_args& a, const qp_ctx& qp, gn_u32 index) {
  work w = {};
  gn_u32 ctrl[4];
  w.index = index & 0xffffu;
  load_segment(qp, w.index, 0, ctrl);
  gn_u32 head = be32(ctrl[0]), who = be32(ctrl[1]);
  gn_u32 mode = (be32(ctrl[2]) & 0xffu) & 0x0cu;
  w.segments = who & 0x3fu;
  w.blocks = w.segments ? (w.segments + 3) / 4 : 1;
  w.flags = mode == mlx5::CE_CQ_UPDATE ? (gn_u32)UP_SIGNALLED : 0u;
  if (w.segments == 0 || who >> 8 != qp.qpn || (head >> 8 & 0xffffu) != w.index) {
    fail(w, mlx5::SYND_LOCAL_QP_OP);
    return w;
  }
  switch (head & 0xffu) {
    case mlx5::OP_SEND: check_send(a, qp, w); break;
    case mlx5::OP_RDMA_WRITE: check_rdma(a, qp, w, UP_WRITE); break;
    case mlx5::OP_RDMA_READ: check_rdma(a, qp, w, UP_READ); break;
    case mlx5::OP_NOP: w.kind = UP_NOP; break;
    default: fail(w, mlx5::SYND_LOCAL_QP_OP); break;
  }
  return w;
}

GN_DEV void copy_small(gn_u8* to, const gn_u8* from, gn_u32 bytes) {
  if ((((gn_u64)to | (gn_u64)from) & 15) == 0 && (bytes & 15) == 0) {
    for (gn_u32 i = 0; i < bytes; i += 16) {
      gn_u32 v[4];
      mem::ld16_stream(from + i, v);
      mem::st16(to + i, v);
    }
  } else {
    for (gn_u32 i = 0; i < bytes; ++i) to[i] = mem::ld_relaxed_sys(from + i);
  }
}

// Gathers a checked SEND into the up entry.
GN_DEV void gather(const qp_ctx& qp, const work& w, up_entry* e) {
  gn_u8* to = (gn_u8*)e->payload;
  gn_u32 seg[4];
  for (gn_u32 s = 1; s < w.segments;) {
    load_segment(qp, w.index, s, seg);
    gn_u32 count = be32(seg[0]), bytes = count & mlx5::BYTE_COUNT_MASK;
    if (count & mlx5::INLINE_FLAG) {
      // The bytes start behind the 4-byte length and may wrap at the ring's end, block by block.
      for (gn_u32 i = 0; i < bytes; ++i) {
        gn_u32 at = s * 16 + 4 + i;
        gn_u64 block = (w.index + at / mlx5::WQEBB) & qp.sq_mask;
        to[i] = mem::ld_relaxed_sys((const gn_u8*)(qp.sq_addr + block * mlx5::WQEBB + at % mlx5::WQEBB));
      }
      s += (bytes + 4 + 15) / 16;
    } else {
      copy_small(to, (const gn_u8*)((gn_u64)be32(seg[2]) << 32 | be32(seg[3])), bytes);
      s += 1;
    }
    to += bytes;
  }
}

GN_DEV void publish_work(const qp_ctx& qp, const work& w, ring_ctx& ring, gn_u64 position) {
  up_entry* e = up_slot(ring, position);
  up_fill(e, w.kind, qp.qpn, w.index, w.flags, w.status, w.bytes, 0);
  if (w.kind == UP_SEND) gather(qp, w, e);
  if (w.kind == UP_WRITE || w.kind == UP_READ) {
    e->arg[0] = w.raddr;
    e->arg[1] = w.laddr;
    e->payload[0] = (gn_u64)w.rkey << 32 | w.lkey;
  }
  up_publish(e, position);
}

// The producer index: the newer of the doorbell record and, in the convention that carries one, the doorbell itself. It never
// goes backwards: repeated and reordered kicks are normal.
GN_DEV gn_u32 producer_index(const qp_ctx& qp, gn_u64 kick) {
  gn_u32 pi = be32(mem::ld_acquire_sys((const gn_u32*)qp.dbr_addr + mlx5::SND_DBR)) & 0xffffu;
  gn_u32 first = be32((gn_u32)kick);
  if ((first & 0xffu) == 0 && mlx5::newer16(first >> 8 & 0xffffu, pi)) pi = first >> 8 & 0xffffu;
  return pi;
}

// Executes everything posted to one queue pair; the whole warp takes part.
GN_DEV void serve_queue(const agent_args& a, ring_ctx& ring, gn_u32 q) {
  qp_ctx& qp = a.qps[q];
  gn_u32 lane = lane_id();
  gn_u64 kick = mem::ld_acquire_sys((const gn_u64*)(qp.uar_addr + mlx5::UAR_DB0));  // pairs with the doorbell store
  gn_u32 pi = producer_index(qp, kick);
  kick = __shfl_sync(0xffffffffu, kick, 0);
  pi = __shfl_sync(0xffffffffu, pi, 0);
  gn_u32 head = qp.sq_head;
  __syncwarp();
  if (lane == 0) qp.last_kick = kick;
  gn_u32 left = (pi - head) & 0xffffu;
  if (left > 0x8000u) left = 0;  // an old kick
  while (left) {
    bool mine = lane < left;
    // Read once: nothing is sent behind a request that is flushed.
    bool error_state = __shfl_sync(0xffffffffu, mem::ld_relaxed_gpu(&qp.state), 0) == QP_ERROR;
    work w = {};
    w.blocks = 1;
    if (mine) w = decode(a, qp, head + lane);
    // Behind a request of several blocks the other lanes looked at the wrong blocks: take only up to it.
    gn_u32 wide = __ballot_sync(0xffffffffu, mine && w.blocks > 1);
    gn_u32 count = wide ? (gn_u32)__ffs((int)wide) : (left < 32 ? left : 32u);
    gn_u32 last_blocks = __shfl_sync(0xffffffffu, w.blocks, (int)(count - 1));
    gn_u32 advance = count - 1 + last_blocks;
    mine = lane < count;
    if (left > qp.sq_mask + 1) {  // more than fits: the queue's owner is broken
      advance = left;
      count = 1;
      mine = lane == 0;
      fail(w, mlx5::SYND_LOCAL_QP_OP);
    } else if (advance > left) {  // the last one is longer than what was posted; those before it are good
      advance = left;
      if (lane == count - 1) fail(w, mlx5::SYND_LOCAL_QP_OP);
    }
    gn_u32 bad = __ballot_sync(0xffffffffu, mine && w.kind == UP_WQE_ERROR);
    gn_u32 first_bad = bad ? (gn_u32)__ffs((int)bad) - 1 : 32;
    if (error_state || lane > first_bad) w.kind = UP_WQE_FLUSH;
    gn_u64 first = 0;
    if (lane == 0) {
      if (bad) mem::st_relaxed_gpu(&qp.state, (gn_u32)QP_ERROR);
      first = up_reserve(ring, count);
    }
    first = __shfl_sync(0xffffffffu, first, 0);
    __syncwarp();
    if (mine) publish_work(qp, w, ring, first + lane);
    head = (head + advance) & 0xffffu;
    left -= advance;
    __syncwarp();
  }
  if (lane == 0) qp.sq_head = head;
  __syncwarp();
}

// Looks once at the doorbells of the queue pairs that are front end `me`'s of `front_ends`; the whole warp. Returns whether there was
// work.
GN_DEV bool frontend_pass(const agent_args& a, ring_ctx& ring, gn_u32 me, gn_u32 front_ends) {
  bool worked = false;
  for (gn_u32 base = me; base < a.qp_count; base += 32 * front_ends) {
    gn_u32 q = base + lane_id() * front_ends;
    bool kicked = false;
    if (q < a.qp_count) {
      const qp_ctx& qp = a.qps[q];
      if (mem::ld_relaxed_gpu(&qp.state) != QP_FREE && qp.ring == blockIdx.x)
        kicked = mem::ld_relaxed_sys((const gn_u64*)(qp.uar_addr + mlx5::UAR_DB0)) != qp.last_kick;
    }
    for (gn_u32 todo = __ballot_sync(0xffffffffu, kicked); todo; todo &= todo - 1) {
      serve_queue(a, ring, base + ((gn_u32)__ffs((int)todo) - 1) * front_ends);
      worked = true;
    }
  }
  return worked;
}

}}  // namespace gn::hca
