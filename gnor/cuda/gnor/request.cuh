// SPDX-License-Identifier: Apache-2.0 OR MIT
// A request: its bytes, its parts, and the capsule of a command. Nothing here touches a queue.
#pragma once
#include "gnor/append.cuh"
#include "gnor/buffer.cuh"
#include "gnor/slots.cuh"

namespace gn {

// IO_FLUSH has no range: its `vba` is the number of the SSD to flush, its `blocks` is 1.
enum : gn_u32 { IO_FLUSH = 0, IO_WRITE = 1, IO_READ = 2, NVME_FABRICS = 0x7f };
enum : gn_u32 {
  FLAG_FUA = 1,
  FLAG_PINNED = 2,  // of a read: from the replica that `attempt` names or not at all
  FLAG_ONCE = 4,    // the request does not wait for another map: it fails with the refusal
};
enum : gn_u32 { IO_NONE = NO_SLOT & 0xffu, WAITS = 15, COMES_IN_SHIFT = 3, REPLICA_MASK = 7 };
static_assert((gn_u32)SLOTS < (gn_u32)IO_NONE && MAX_SSDS <= 64 && GN_MAX_BLOCKS < 65536, "the fields of io");
enum : int { SAME_LOAD = 4 };  // commands
// the controllers' MDTS: 1 MiB
enum : gn_u32 { COMMAND_MAX_SHIFT = 8, COMMAND_MAX_BLOCKS = 1u << COMMAND_MAX_SHIFT };
enum : gn_u32 { NVME_FLAGS_SGL = 0x40, SGL_KEYED = 0x40, CDW12_FUA = 1u << 30 };
// Time in one register: 65,536 ns a tick. Deadlines are at most some 19 hours away. A thread that first looks
// at a parked request so long after its deadline still sees that it has passed.
enum : gn_u32 { TICK_SHIFT = 16, MOST_TICKS = 1u << 30 };
GN_DEV gn_u32 now_ticks() { return (gn_u32)(now_ns() >> TICK_SHIFT); }
GN_DEV gn_u32 ticks_after(gn_u64 ns) {
  return now_ticks() + (ns >> TICK_SHIFT < MOST_TICKS ? (gn_u32)(ns >> TICK_SHIFT) + 1 : (gn_u32)MOST_TICKS);
}
GN_DEV bool ticks_passed(gn_u32 deadline) { return (int)(now_ticks() - deadline) > 0; }

// The request of one thread. It is in registers: seven of them if the kernel does not read `dw0` and `dw1`. A
// new object is no request: a lane without one passes it to functions that a warp calls together.
struct io {
  gn_u64 address;      // registered memory, or a buffer's name (buffer.cuh)
  gn_u32 key;
  gn_u32 vba;
  gn_u32 blocks : 16;
  gn_u32 sent : 16;    // blocks whose commands are all staged
  gn_u32 queued : 1;   // it waits for its first slot, and has a ticket
  // of a read: 0 = any replica, k = the k-th serving one. Of a write: the next replica of the part at `sent`.
  // Its top bit: each part goes to one SSD more, that comes in. The map by which the request began says so.
  // WAITS: it was refused because of its map, and starts over with another one
  gn_u32 attempt : 4;
  gn_u32 opcode : 2;
  gn_u32 flags : 3;
  gn_u32 head : 8;     // the request's slot, or IO_NONE
  gn_u32 cid : 8;      // command staged and not yet sent, or IO_NONE
  gn_u32 ssd : 6;      //   where it goes
  gn_u32 status;       // GN_PENDING until a request has ended
  union {
    gn_u32 dw0;
    gn_u32 ticket;     // while it is queued (slots.cuh)
  };
  gn_u32 dw1;

  GN_DEV io()
      : address(0), key(0), vba(0), blocks(0), sent(0), queued(0), attempt(0), opcode(0), flags(0),
        head(IO_NONE), cid(IO_NONE), ssd(0), status(GN_OK), dw0(0), dw1(0) {}
};

// A request that is known at compile time to be a read into contiguous memory. Code for other requests is
// left out.
struct read_io : io {};

GN_DEV gn_u32 opcode_of(const io& x) { return x.opcode; }
GN_DEV constexpr gn_u32 opcode_of(const read_io&) { return IO_READ; }
GN_DEV bool has_pieces(const io& x) { return in_pieces(x.address); }
GN_DEV constexpr bool has_pieces(const read_io&) { return false; }

// The blocks of a request, in its volume.
struct io_range {
  gn_u64 vba;
  gn_u32 blocks;
};

// The data of a request: registered memory, or the pages of a buffer from page `first` on.
struct io_memory {
  gn_u64 address;
  gn_u32 key;
};
struct io_pages {
  const buffer& b;
  gn_u32 first, key;
};

// Describes a request; checks what can be checked without the array.
template <class X = io>
GN_DEV X io_make(const volume& v, gn_u32 opcode, const io_range& at, const io_memory& data, gn_u32 flags) {
  gn_u64 vba = at.vba, address = data.address;
  gn_u32 blocks = at.blocks;
  X x;
  x.opcode = opcode;
  x.flags = flags;
  x.vba = (gn_u32)vba;
  x.blocks = blocks;
  x.address = address;
  x.key = data.key;
  x.status = GN_PENDING;
  if (opcode == IO_FLUSH) return x;
  if (blocks == 0 || blocks > GN_MAX_BLOCKS || (address & 15)) x.status = GN_BAD_REQUEST;
  else if (vba >= v.capacity_blocks || blocks > v.capacity_blocks - vba) x.status = GN_OUT_OF_RANGE;
  else if (opcode == IO_WRITE && !v.writer) x.status = GN_READ_ONLY;
  return x;
}
GN_DEV io io_make(const volume& v, gn_u32 opcode, const io_range& at, const io_pages& data, gn_u32 flags) {
  io x = io_make(v, opcode, at, io_memory{0, data.key}, flags);
  bool fits = data.first < data.b.pages && at.blocks <= data.b.pages - data.first;
  if (x.status == GN_PENDING && !fits) x.status = GN_BAD_REQUEST;
  x.address = name_of(data.b, data.first);
  return x;
}

GN_DEV bool io_ended(const io& x) { return x.status != GN_PENDING; }
GN_DEV bool io_all_sent(const io& x) { return x.sent == x.blocks; }

// log2 of the blocks between the borders at which a volume's requests are cut.
GN_DEV gn_u32 chunk_shift(const volume& v) {
  return v.chunk_shift < COMMAND_MAX_SHIFT ? v.chunk_shift : (gn_u32)COMMAND_MAX_SHIFT;
}

// Parts of a request's first `n` blocks.
template <class X>
GN_DEV gn_u32 io_parts(const volume& v, const X& x, gn_u32 n) {
  gn_u32 shift = chunk_shift(v);
  return has_pieces(x) ? parts_of(buffer_of(x.address), first_of(x.address), x.vba, shift, n)
         : n           ? ((x.vba + n - 1) >> shift) - (x.vba >> shift) + 1
                       : 0;
}

// Number of commands of a request so far. Its slot's `done` reaches this number when all of them have ended.
// A command that succeeds moves data by one RDMA operation.
template <class X>
GN_DEV gn_u32 io_issued(const volume& v, const X& x) {
  gn_u32 parts = io_parts(v, x, x.sent);
  gn_u32 each = v.replicas + (x.attempt >> COMES_IN_SHIFT);
  return opcode_of(x) == IO_WRITE ? parts * each + (x.attempt & REPLICA_MASK) : parts;
}

// Blocks of the command at `sent`.
template <class X>
GN_DEV gn_u32 io_part(const volume& v, const X& x) {
  gn_u32 n = 1u << chunk_shift(v), rest = x.blocks - x.sent;
  n -= (x.vba + x.sent) & (n - 1);
  if (has_pieces(x)) {
    gn_u32 piece = to_end_of_piece(buffer_of(x.address), first_of(x.address) + x.sent);
    if (n > piece) n = piece;
  }
  return n > rest ? rest : n;
}

// Place of the request's data.
template <class X>
GN_DEV gn_u64 io_data(const X& x) {
  return has_pieces(x) ? buffer_of(x.address).at((first_of(x.address) + x.sent) * GN_BLOCK)
                       : x.address + (gn_u64)x.sent * GN_BLOCK;
}

// A request's command for the blocks at `sent`.
struct command {
  gn_u32 cid, epoch, blocks;
  gn_u64 sequence;
};

// The 64-byte capsule of a read, write or flush (proto/src/nvme.rs), 16 bytes after 16: fewer registers at
// once.
template <class X>
GN_DEV void write_capsule(channel& c, const volume& v, const X& x, const command& k) {
  gn_u8* to = capsule_of(c, k.cid);
  bool io = opcode_of(x) != IO_FLUSH;
  gn_u64 data = io_data(x);
  gn_u32 first[4] = {k.cid << 16 | NVME_FLAGS_SGL << 8 | opcode_of(x), 1 /* NSID */, io ? k.epoch : 0,
                     io ? v.lease_epoch : 0};
  mem::st16(to, first);
  gn_u32 second[4] = {0, 0, io ? (gn_u32)data : 0, io ? (gn_u32)(data >> 32) : 0};
  mem::st16(to + 16, second);
  gn_u32 third[4] = {io ? (k.blocks * GN_BLOCK & 0xffffffu) | x.key << 24 : 0,
                     SGL_KEYED << 24 | (io ? x.key >> 8 : 0), io ? x.vba + x.sent : 0,
                     io ? (gn_u32)v.vid << 16 | v.client : 0};
  mem::st16(to + 32, third);
  gn_u32 last[4] = {io ? (k.blocks - 1) | (x.flags & FLAG_FUA ? (gn_u32)CDW12_FUA : 0u) : 0, 0,
                    (gn_u32)k.sequence, (gn_u32)(k.sequence >> 32)};
  mem::st16(to + 48, last);
}

}  // namespace gn
