// SPDX-License-Identifier: Apache-2.0 OR MIT
// Work requests as the HCA reads them: decoded and checked by one lane each, then handed to the transport.
#pragma once
#include "fabric/hca/keys.cuh"
#include "fabric/mlx5.h"
#include "fabric/hca/up.cuh"

namespace gn { namespace hca {

// The up ring carries one command capsule, which is also the size of a target's receives. No message is
// longer than 2 GiB.
enum : gn_u32 { SEND_MAX_BYTES = 64, MESSAGE_MAX_BYTES = 0x80000000u };

// A work request as one lane sees it. `blocks` is its length in 64-byte blocks. Fields that are only passed
// on are read again when needed. Each word here costs a register in every thread of the agent, and more than
// 80 do not fit.
struct work {
  gn_u32 kind;      // UP_*
  gn_u32 status;    // syndrome when kind is UP_WQE_ERROR
  gn_u32 index;     // of its first block
  gn_u32 blocks;
  gn_u32 segments;  // 16-byte segments, the control segment included
  gn_u32 flags;
  gn_u32 bytes;
  gn_u64 laddr;     // of the last data segment that is memory
};

// Segment `s` of the work request at `index`, following the ring's wrap inside it.
GN_DEV void load_segment(const qp_ctx& qp, gn_u32 index, gn_u32 s, gn_u32 out[4]) {
  gn_u64 block = (index + s / 4) & qp.sq_mask;
  mem::ld16_stream((const void*)(qp.sq_addr + block * mlx5::WQEBB + (s % 4) * mlx5::DS_BYTES), out);
}

GN_DEV gn_u64 segment_address(const gn_u32 seg[4]) { return (gn_u64)be32(seg[2]) << 32 | be32(seg[3]); }

GN_DEV void fail(work& w, gn_u32 syndrome) {
  w.kind = UP_WQE_ERROR;
  w.status = syndrome;
}

// Checks one data segment in memory.
GN_DEV bool check_local(const agent_args& a, const qp_ctx& qp, work& w, const gn_u32 seg[4], gn_u32 access) {
  gn_u32 bytes = be32(seg[0]) & mlx5::BYTE_COUNT_MASK;
  if (!key_opens(a, qp.pd, {be32(seg[1]), segment_address(seg), bytes, access})) {
    fail(w, mlx5::SYND_LOCAL_PROT);
    return false;
  }
  w.bytes += bytes;
  return true;
}

// The longest message of a kind of request, and the syndrome of a longer one.
struct length_limit {
  gn_u32 bytes, syndrome;
};

// Checks the data segments from `s` on and adds up their length. Inline data is in the work request itself
// and needs no key.
GN_DEV bool check_data(const agent_args& a, const qp_ctx& qp, work& w, gn_u32 s, const length_limit& most) {
  gn_u32 seg[4];
  while (s < w.segments) {
    load_segment(qp, w.index, s, seg);
    gn_u32 count = be32(seg[0]);
    if (count & mlx5::INLINE_FLAG) {
      w.bytes += count & mlx5::BYTE_COUNT_MASK;
      s += ((count & mlx5::BYTE_COUNT_MASK) + 4 + 15) / 16;
    } else {
      if (!check_local(a, qp, w, seg, 0)) return false;
      w.laddr = segment_address(seg);
      s += 1;
    }
    if (w.bytes > most.bytes) {
      fail(w, most.syndrome);
      return false;
    }
  }
  if (s > w.segments) fail(w, mlx5::SYND_LOCAL_QP_OP);
  return s == w.segments;
}

// A SEND. The peer's receives hold a capsule: it refuses what is longer, and the sender's request is what
// fails.
GN_DEV void check_send(const agent_args& a, const qp_ctx& qp, work& w, gn_u32 kind) {
  if (check_data(a, qp, w, 1, {SEND_MAX_BYTES, mlx5::SYND_REMOTE_INVAL_REQ})) w.kind = kind;
}

// An RDMA WRITE, or a READ, whose data segments must be memory that may be written.
GN_DEV void check_rdma(const agent_args& a, const qp_ctx& qp, work& w, gn_u32 kind) {
  if (w.segments < 3) return fail(w, mlx5::SYND_LOCAL_QP_OP);
  if (kind == UP_WRITE) {
    if (!check_data(a, qp, w, 2, {MESSAGE_MAX_BYTES, mlx5::SYND_LOCAL_LENGTH})) return;
  } else {
    for (gn_u32 s = 2; s < w.segments; ++s) {
      gn_u32 seg[4];
      load_segment(qp, w.index, s, seg);
      if (be32(seg[0]) & mlx5::INLINE_FLAG) return fail(w, mlx5::SYND_LOCAL_QP_OP);
      if (!check_local(a, qp, w, seg, ACCESS_LOCAL_WRITE)) return;
      if (w.bytes > MESSAGE_MAX_BYTES) return fail(w, mlx5::SYND_LOCAL_LENGTH);
    }
  }
  w.kind = kind;
}

// Checks a DUMP, which reads local memory and sends it nowhere.
GN_DEV void check_dump(const agent_args& a, const qp_ctx& qp, work& w) {
  if (w.segments != 2) return fail(w, mlx5::SYND_LOCAL_QP_OP);
  gn_u32 seg[4];
  load_segment(qp, w.index, 1, seg);
  if (be32(seg[0]) & mlx5::INLINE_FLAG) return fail(w, mlx5::SYND_LOCAL_QP_OP);
  if (!check_local(a, qp, w, seg, 0)) return;
  w.laddr = segment_address(seg);
  w.kind = UP_DUMP;
}

// Decodes and checks the work request whose first block is `index`. Leaves the control segment's last word in
// `entry`'s first argument: immediate data, a key to invalidate, or the stamp of a client.
//
// Fence modes make a request wait for earlier ones. The agent executes requests one after the other anyway.
// Only a READ could still be in flight, and every peer here refuses READs. So no mode needs more work.
GN_DEV work decode(const agent_args& a, const qp_ctx& qp, gn_u32 index, gn_u64* entry) {
  work w = {};
  gn_u32 ctrl[4], next[4];
  w.index = index & 0xffffu;
  load_segment(qp, w.index, 0, ctrl);
  load_segment(qp, w.index, 1, next);  // of nearly all: both are on their way at once
  entry[UP_ARG] = be32(ctrl[3]);
  gn_u32 head = be32(ctrl[0]), who = be32(ctrl[1]), opcode = head & 0xffu;
  gn_u32 mode = (be32(ctrl[2]) & 0xffu) & 0x0cu;
  w.segments = who & 0x3fu;
  w.blocks = w.segments ? (w.segments + 3) / 4 : 1;
  w.flags = mode == mlx5::CE_CQ_UPDATE ? (gn_u32)UP_SIGNALLED : 0u;
  if (opcode == mlx5::OP_SEND_IMM || opcode == mlx5::OP_RDMA_WRITE_IMM) w.flags |= UP_IMMEDIATE;
  if (w.segments == 0 || who >> 8 != qp.qpn || (head >> 8 & 0xffffu) != w.index) {
    fail(w, mlx5::SYND_LOCAL_QP_OP);
    return w;
  }
  if (opcode == mlx5::OP_SEND && w.segments == 2 && !(be32(next[0]) & mlx5::INLINE_FLAG)) {
    if (!check_local(a, qp, w, next, 0)) return w;
    w.laddr = segment_address(next);
    w.kind = UP_SEND;
    if (w.bytes > SEND_MAX_BYTES) fail(w, mlx5::SYND_REMOTE_INVAL_REQ);
    return w;
  }
  switch (opcode) {
    case mlx5::OP_SEND:
    case mlx5::OP_SEND_IMM: check_send(a, qp, w, UP_SEND); break;
    case mlx5::OP_SEND_INVAL: check_send(a, qp, w, UP_SEND_INVAL); break;
    case mlx5::OP_RDMA_WRITE:
    case mlx5::OP_RDMA_WRITE_IMM: check_rdma(a, qp, w, UP_WRITE); break;
    case mlx5::OP_RDMA_READ: check_rdma(a, qp, w, UP_READ); break;
    case mlx5::OP_DUMP: check_dump(a, qp, w); break;
    case mlx5::OP_NOP: w.kind = UP_NOP; break;
    case mlx5::OP_LOCAL_INVAL:
      if (w.segments == 1) {
        w.kind = UP_LOCAL_INVAL;
        break;
      }
      fail(w, mlx5::SYND_LOCAL_QP_OP);
      break;
    default: fail(w, mlx5::SYND_LOCAL_QP_OP); break;
  }
  return w;
}

GN_DEV void copy_small(gn_u8* to, const gn_u8* from, gn_u32 bytes) {
  bool aligned = (((gn_u64)to | (gn_u64)from | bytes) & 15) == 0;
  if (aligned && bytes == SEND_MAX_BYTES) {  // a capsule: all of it is on its way at once
    gn_u32 v[SEND_MAX_BYTES / 16][4];
#pragma unroll
    for (gn_u32 i = 0; i < SEND_MAX_BYTES / 16; ++i) mem::ld16_stream(from + i * 16, v[i]);
#pragma unroll
    for (gn_u32 i = 0; i < SEND_MAX_BYTES / 16; ++i) mem::st16(to + i * 16, v[i]);
  } else if (aligned) {
#pragma unroll 1
    for (gn_u32 i = 0; i < bytes; i += 16) {
      gn_u32 v[4];
      mem::ld16_stream(from + i, v);
      mem::st16(to + i, v);
    }
  } else {
#pragma unroll 1
    for (gn_u32 i = 0; i < bytes; ++i) to[i] = mem::ld_relaxed_sys(from + i);
  }
}

// Gathers a checked SEND to `to`.
GN_DEV void gather(const qp_ctx& qp, const work& w, gn_u8* to) {
  gn_u32 seg[4];
  for (gn_u32 s = 1; s < w.segments;) {
    load_segment(qp, w.index, s, seg);
    gn_u32 count = be32(seg[0]), bytes = count & mlx5::BYTE_COUNT_MASK;
    if (count & mlx5::INLINE_FLAG) {
      // The bytes start behind the 4-byte length and may wrap at the ring's end, block by block.
#pragma unroll 1
      for (gn_u32 i = 0; i < bytes; ++i) {
        gn_u32 at = s * 16 + 4 + i;
        gn_u64 block = (w.index + at / mlx5::WQEBB) & qp.sq_mask;
        to[i] = mem::ld_relaxed_sys((const gn_u8*)(qp.sq_addr + block * mlx5::WQEBB + at % mlx5::WQEBB));
      }
      s += (bytes + 4 + 15) / 16;
    } else {
      copy_small(to, (const gn_u8*)segment_address(seg), bytes);
      s += 1;
    }
    to += bytes;
  }
}

// Remote address and key, and the first data segment, if it is memory.
GN_DEV void describe_rdma(const qp_ctx& qp, const work& w, gn_u64* entry) {
  gn_u32 remote[4], local[4];
  load_segment(qp, w.index, 1, remote);
  load_segment(qp, w.index, 2, local);
  bool is_inline = be32(local[0]) & mlx5::INLINE_FLAG;
  entry[UP_PAYLOAD] = (gn_u64)be32(remote[2]) << 32 | (is_inline ? 0u : be32(local[1]));
  entry[UP_PAYLOAD + 1] = entry[UP_ARG];
  entry[UP_ARG] = (gn_u64)be32(remote[0]) << 32 | be32(remote[1]);
  entry[UP_ARG + 1] = is_inline ? 0 : segment_address(local);
}

// Makes the up entry of a work request, whose first argument `decode` has filled in.
GN_DEV void stage_work(const qp_ctx& qp, const work& w, gn_u64* entry) {
  up_fill(entry, {w.kind, qp.qpn, w.index, w.status, w.bytes, w.flags});
  entry[UP_ARG + 1] = 0;
  switch (w.kind) {
    case UP_SEND:
    case UP_SEND_INVAL:
      // One segment of memory, as most have: what was checked is what is read.
      if (w.segments == 2 && w.laddr)
        copy_small((gn_u8*)(entry + UP_PAYLOAD), (const gn_u8*)w.laddr, w.bytes);
      else gather(qp, w, (gn_u8*)(entry + UP_PAYLOAD));
      break;
    case UP_WRITE:
    case UP_READ: describe_rdma(qp, w, entry); break;
    case UP_LOCAL_INVAL: break;
    // One byte is as good as all: no client sees them. The data that a DUMP waits for was ordered before the
    // request was read.
    case UP_DUMP:
      entry[UP_ARG] = w.bytes ? mem::ld_relaxed_sys((const gn_u8*)w.laddr) : 0;
      break;
    default: entry[UP_ARG] = 0; break;
  }
}

}}  // namespace gn::hca
