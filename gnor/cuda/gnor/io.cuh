// SPDX-License-Identifier: Apache-2.0 OR MIT
// A request from one thread: split at chunk borders, one command per piece (read) or per piece and replica (write).
//
//   io_begin        takes a request slot
//   io_stage        builds the next command's capsule; nothing is sent
//   io_commit       a warp's lanes append what they staged: one doorbell per SSD
//   take_completions, io_finished
//
// No thread waits while it holds something staged, and a command id is held only by what is on its way: so those who wait for one
// are waiting for completions, which they help to take.
#pragma once
#include "gnor/append.cuh"
#include "gnor/complete.cuh"
#include "gnor/place.cuh"

namespace gn {

// IO_FLUSH has no range: its `vba` is the number of the SSD to flush, its `blocks` is 1.
enum : gn_u32 { IO_FLUSH = 0, IO_WRITE = 1, IO_READ = 2, NVME_FABRICS = 0x7f };
enum : gn_u32 { FLAG_FUA = 1 };
enum : gn_u32 { COMMAND_MAX_BLOCKS = 256 };  // the controllers' MDTS: 1 MiB
enum : gn_u32 { NVME_FLAGS_SGL = 0x40, SGL_KEYED = 0x40, CDW12_FUA = 1u << 30 };
// Reasons in DW0 after which a read is tried elsewhere; proto/src/status.rs.
enum : gn_u32 { REFUSED_NOT_HERE_YET = 11, REFUSED_ASK_THE_FIRST = 12, REFUSED_NOT_SERVING = 13 };

// One thread's request; lives in its registers. As it is made it is no request: a lane that has none passes it to the functions that
// a warp calls together.
struct io {
  gn_u64 address = 0;       // registered memory
  gn_u64 sequence = 0;      // of the piece being written, the same for all its replicas; 0 until it has one
  gn_u32 key = 0;
  gn_u32 vba = 0, blocks = 0;
  gn_u32 sent = 0;          // blocks whose commands are all staged
  gn_u32 replica = 0;       // next replica of the piece at `sent`
  gn_u32 attempt = 0;       // of a read
  gn_u32 req = NO_SLOT;     // request slot
  gn_u32 staged = NO_SLOT;  // command staged and not yet sent
  gn_u32 staged_ssd = 0;
  gn_u32 status = GN_OK;    // GN_PENDING until a request has ended
  gn_u32 dw0 = 0, dw1 = 0;
  gn_u8 opcode = 0, flags = 0;
};

// Describes a request; checks what can be checked without the array.
GN_DEV io io_make(const volume& v, gn_u32 opcode, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key, gn_u32 flags) {
  io x;
  x.opcode = (gn_u8)opcode;
  x.flags = (gn_u8)flags;
  x.vba = (gn_u32)vba;
  x.blocks = blocks;
  x.address = address;
  x.key = key;
  x.status = GN_PENDING;
  if (opcode == IO_FLUSH) return x;
  if (blocks == 0 || blocks > GN_MAX_BLOCKS || (address & 15)) x.status = GN_BAD_REQUEST;
  else if (vba >= v.capacity_blocks || blocks > v.capacity_blocks - vba) x.status = GN_OUT_OF_RANGE;
  else if (opcode == IO_WRITE && !v.writer) x.status = GN_READ_ONLY;
  return x;
}

GN_DEV bool io_ended(const io& x) { return x.status != GN_PENDING; }
GN_DEV bool io_all_sent(const io& x) { return x.sent == x.blocks; }

GN_DEV bool io_begin(channel& c, io& x, gn_u32 hint) {
  x.req = slot_take(c.req_bits, REQ_SLOTS / 32, hint);
  if (x.req == NO_SLOT) return false;
  request& r = c.requests[x.req];
  mem::st_relaxed_gpu(&r.status, 0u);
  mem::st_relaxed_gpu(&r.pending, 1u);  // the owner's own, dropped when everything is sent
  r.pool_addr = 0;
  return true;
}

// The 64-byte capsule of a read, write or flush (proto/src/nvme.rs).
GN_DEV void write_capsule(channel& c, const volume& v, const io& x, gn_u32 cid, gn_u32 vba, gn_u32 n, gn_u64 data) {
  gn_u32 w[16] = {};
  w[0] = cid << 16 | NVME_FLAGS_SGL << 8 | x.opcode;
  w[1] = 1;  // NSID
  w[9] = SGL_KEYED << 24;
  if (x.opcode != IO_FLUSH) {
    w[2] = v.map_epoch;
    w[3] = v.lease_epoch;
    w[6] = (gn_u32)data;
    w[7] = (gn_u32)(data >> 32);
    w[8] = (n * GN_BLOCK & 0xffffffu) | x.key << 24;
    w[9] |= x.key >> 8;
    w[10] = vba;
    w[11] = (gn_u32)v.vid << 16 | v.client;
    w[12] = (n - 1) | (x.flags & FLAG_FUA ? (gn_u32)CDW12_FUA : 0u);
    w[14] = (gn_u32)x.sequence;
    w[15] = (gn_u32)(x.sequence >> 32);
  }
  gn_u8* to = capsule_of(c, cid);
  for (gn_u32 k = 0; k < 4; ++k) mem::st16(to + 16 * k, w + 4 * k);
}

// Stages the next command of a request that is not all sent. False where no slot is free: poll, then try again.
GN_DEV bool io_stage(channel& c, volume& v, io& x, gn_u32 hint) {
  if (io_ended(x) || x.staged != NO_SLOT || io_all_sent(x)) return true;
  if (x.req == NO_SLOT && !io_begin(c, x, hint)) return false;
  gn_u32 vba = x.vba + x.sent, chunk = 1u << v.chunk_shift;
  gn_u32 n = chunk - (vba & (chunk - 1));
  if (n > x.blocks - x.sent) n = x.blocks - x.sent;
  if (n > COMMAND_MAX_BLOCKS) n = COMMAND_MAX_BLOCKS;
  bool write = x.opcode == IO_WRITE;
  gn_u32 ssd = x.opcode == IO_FLUSH ? vba : write ? write_place(v, vba, x.replica) : read_place(v, vba, x.attempt, hint);
  bool last = !write || x.replica + 1 == v.replicas;
  if (write && x.sequence == 0) x.sequence = mem::add_relaxed_gpu(&v.next_sequence, (gn_u64)1);
  if (ssd != PLACE_NONE) {
    gn_u32 broken = mem::ld_acquire_gpu(&qp_of(c, ssd).error);
    gn_u32 cid = broken ? (gn_u32)NO_SLOT : slot_take(c.cid_bits, CMD_SLOTS / 32, hint);
    if (cid == NO_SLOT && !broken) return false;
    request& r = c.requests[x.req];
    if (broken) {
      mem::cas_relaxed_gpu(&r.status, 0u, GN_QP_BROKEN | (broken & 0xffffu));
    } else {
      write_capsule(c, v, x, cid, vba, n, x.address + (gn_u64)x.sent * GN_BLOCK);
      command& cmd = c.commands[cid];
      cmd.qp = ssd;
      cmd.req = x.req;
      mem::st_relaxed_gpu(&cmd.state, (gn_u32)CMD_STAGED);
      mem::add_relaxed_gpu(&r.pending, 1u);
      x.staged = cid;
      x.staged_ssd = ssd;
    }
  } else if (!write || x.replica == 0) {
    mem::cas_relaxed_gpu(&c.requests[x.req].status, 0u, (gn_u32)GN_NO_REPLICA);
  }
  if (last) {
    x.sent += n;
    x.replica = 0;
    x.sequence = 0;
  } else {
    x.replica += 1;
  }
  return true;
}

// Sends what the lanes of `mask` have staged; they call it together.
GN_DEV void io_commit(channel& c, gn_u32 mask, io& x) {
  if (append(c, mask, x.staged, x.staged_ssd)) x.staged = NO_SLOT;
  if (x.staged != NO_SLOT) {
    gn_u32 broken = mem::ld_acquire_gpu(&qp_of(c, x.staged_ssd).error);
    if (broken) {  // it will never have room again
      finish(c, x.staged, GN_QP_BROKEN | (broken & 0xffffu), 0, 0);
      x.staged = NO_SLOT;
    }
  }
}

// Whether the request has ended; if so its status is in `x` and its slot is free again. A read that was sent to a replica
// which may not serve it starts over elsewhere.
GN_DEV bool io_finished(channel& c, const volume& v, io& x) {
  if (io_ended(x)) return true;
  if (x.req == NO_SLOT || x.staged != NO_SLOT || !io_all_sent(x)) return false;
  request& r = c.requests[x.req];
  if (mem::ld_acquire_gpu(&r.pending) != 1u) return false;  // pairs with the release in end_command
  gn_u32 status = mem::ld_relaxed_gpu(&r.status);
  x.dw0 = mem::ld_relaxed_gpu(&r.dw0);
  x.dw1 = mem::ld_relaxed_gpu(&r.dw1);
  gn_u32 reason = x.dw0 & 0xffu;
  slot_give(c.req_bits, x.req);
  x.req = NO_SLOT;
  bool elsewhere = x.opcode == IO_READ && status && status < GN_PENDING &&
                   (reason == REFUSED_NOT_HERE_YET || reason == REFUSED_ASK_THE_FIRST || reason == REFUSED_NOT_SERVING);
  if (elsewhere && x.attempt < v.replicas) {
    x.attempt += 1;
    x.sent = 0;
    mem::add_relaxed_gpu(&c.retries, (gn_u64)1);
    return false;
  }
  x.status = status;
  return true;
}

// Gives up: the request's slot, its commands and its buffer stay with the channel until their completions have come (protocol rule 9).
GN_DEV void io_abandon(channel& c, io& x, gn_u32 bytes) {
  if (io_ended(x)) return;
  x.status = GN_TIMED_OUT;
  if (x.staged != NO_SLOT) {
    finish(c, x.staged, GN_TIMED_OUT, 0, 0);
    x.staged = NO_SLOT;
  }
  bool pooled = pool_owns(c.data, x.address);
  if (x.req == NO_SLOT) {  // nothing of it is on its way
    if (pooled) pool_free(c.data, x.address, bytes);
    return;
  }
  request& r = c.requests[x.req];
  r.pool_addr = pooled ? x.address : 0;
  r.pool_bytes = bytes;
  mem::or_acqrel_gpu(&r.pending, (gn_u32)REQ_ABANDONED);
  end_command(c, x.req, 0, 0, 0);  // the owner's reference; if it was the last, the slot and the buffer are returned now
  x.req = NO_SLOT;
}

}  // namespace gn
