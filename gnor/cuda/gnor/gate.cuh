// SPDX-License-Identifier: Apache-2.0 OR MIT
// The gate of a queue pair: it hands out send blocks in the order in which commands arrive
// (docs/decisions/0036).
//
//   63       62..57  56    55..48    47..32   31..16   15..0
//   +--------+------+-----+---------+--------+--------+--------+
//   | CLOSED |   0  | SET | waiting |  tail  |  limit |  next  |   64 bits: each change is one step
//   +--------+------+-----+---------+--------+--------+--------+
//
//   SET       which of the SSD's two sets of queues is in use (anew.cuh)
//   next      number of the next send block, as on the wire
//   limit     blocks are handed out up to here: their places and their responses' places are free
//   waiting   commands that arrived when next had reached limit; none arrives before them and is sent earlier
//   tail      list entries handed out: the waiting commands have the entries tail - waiting to tail - 1
//
// A command that finds room gets a block and its own warp sends it. Otherwise its command id goes on the
// queue pair's waiting list, and the command counts as sent. The warp that raises `limit` sends it, in its
// turn. The word decides which warp sends a command, so each command is sent once, and no command waits while
// there is room.
#pragma once
#include "gnor/sharing.cuh"

namespace gn {

enum : gn_u64 {
  GATE_CLOSED = 1ull << 63, GATE_SET = 1ull << 56, GATE_BLOCKS = 0xffffffffull, GATE_NEXT = 0xffffull,
};

GN_DEV gn_u32 gate_next(gn_u64 g) { return (gn_u32)g & 0xffffu; }
GN_DEV gn_u32 gate_tail(gn_u64 g) { return (gn_u32)(g >> 32) & 0xffffu; }
GN_DEV gn_u32 gate_waiting(gn_u64 g) { return (gn_u32)(g >> 48) & 0xffu; }
GN_DEV gn_u64 gate_of(gn_u32 next, gn_u32 limit, gn_u32 tail, gn_u32 waiting) {
  return (gn_u64)(waiting << 16 | (tail & 0xffffu)) << 32 | (limit << 16 | (next & 0xffffu));
}

// By how much the 16-bit counter `a` is ahead of `b`.
GN_DEV int ahead_of(gn_u32 a, gn_u32 b) { return (int)((a - b) << 16) >> 16; }

// Blocks that may be handed out now. Negative behind a DUMP, which may go beyond the limit.
GN_DEV int gate_room(gn_u64 g) { return ahead_of((gn_u32)g >> 16, (gn_u32)g); }

// Result for a group of commands. The first `sends` of them have the blocks from `first()` on. With `reserve`
// the others have the waiting list's entries from `entry()` on; with `admit` the commands to send come from
// there. NONE_CLOSED: nothing, because the queue pair is broken. The blocks belong to the set of queues that
// the gate named.
struct reservation {
  gn_u32 numbers = 0, sends = 0;

  GN_DEV gn_u32 first() const { return numbers & 0xffffu; }
  GN_DEV gn_u32 entry() const { return numbers >> 16 & 0x7fffu; }
  GN_DEV gn_u32 set() const { return numbers >> 31; }
};
enum : gn_u32 { NONE_CLOSED = 0xffffffffu };
GN_DEV gn_u32 set_of(gn_u64 g) { return (gn_u32)(g >> 56) & 1u; }
GN_DEV gn_u32 numbers_of(gn_u64 g, gn_u32 entry) {
  return gate_next(g) | (entry & 0x7fffu) << 16 | set_of(g) << 31;
}

// Blocks, or places on the waiting list, for `n` commands that arrive together. Never waits.
template <class S>
GN_DEV reservation reserve(queue_pair& qp, gn_u32 n) {
  reservation r;
  for (;;) {
    gn_u64 g = S::ld_acquire(&qp.gate);  // pairs with the compare-and-swap in admit
    if (g & GATE_CLOSED) return {0, NONE_CLOSED};
    // While commands wait there is no room: admit hands room to them in the step that makes it.
    int room = gate_room(g);
    r.sends = room <= 0 ? 0u : (gn_u32)room < n ? (gn_u32)room : n;
    r.numbers = numbers_of(g, gate_tail(g));
    gn_u32 waits = n - r.sends;
    gn_u64 after =
        gate_of(r.first() + r.sends, (gn_u32)g >> 16, gate_tail(g) + waits, gate_waiting(g) + waits) |
        (g & GATE_SET);
    if (S::cas(&qp.gate, g, after) == g) return r;
  }
}

// Waiting commands that may be sent now: blocks from `first` on for the `sends` commands at the entries from
// `entry` on. The caller sends them. Under cq_word's lock, or by a warp alone, as `limit` has one writer.
template <class S>
GN_DEV reservation admit(queue_pair& qp, gn_u32 limit) {
  reservation r;
  for (;;) {
    gn_u64 g = S::ld(&qp.gate);
    if (g & GATE_CLOSED) return {};
    int room = ahead_of(limit, gate_next(g));
    gn_u32 waiting = gate_waiting(g);
    r.sends = room <= 0 ? 0u : (gn_u32)room < waiting ? (gn_u32)room : waiting;
    r.numbers = numbers_of(g, gate_tail(g) - waiting);
    gn_u64 after =
        gate_of(r.first() + r.sends, limit, gate_tail(g), waiting - r.sends) | (g & GATE_SET);
    if (S::cas_acqrel(&qp.gate, g, after) == g) return r;  // pairs with the acquire in reserve
  }
}

// The next block, if it is before `limit`, which may be another than the gate's. It passes the waiting
// commands.
template <class S>
GN_DEV bool reserve_ahead(queue_pair& qp, gn_u32 limit, gn_u32& at) {
  for (;;) {
    gn_u64 g = S::ld(&qp.gate);
    at = gate_next(g);
    if ((g & GATE_CLOSED) || ahead_of(limit, at) <= 0) return false;
    if (S::cas(&qp.gate, g, (g & ~(gn_u64)GATE_NEXT) | ((at + 1) & 0xffffu)) == g) return true;
  }
}

// Closes the gate of this set of queues for ever. Returns what it was: its waiting commands are the caller's
// to end.
template <class S>
GN_DEV gn_u64 close_gate(queue_pair& qp) {
  for (;;) {
    gn_u64 g = S::ld(&qp.gate);
    gn_u64 after = (g & (GATE_BLOCKS | GATE_SET)) | GATE_CLOSED;
    // pairs with the acquire in reserve: the error is set
    if (S::cas_acqrel(&qp.gate, g, after) == g) return g;
  }
}

// Entry number `entry` of a queue pair's waiting list: a command id plus one, 0 while it is empty. No more
// commands than slots wait, so an entry is empty again before its number returns.
GN_DEV gn_u8* waiting_entry(const channel& c, gn_u32 ssd, gn_u32 entry) {
  return (gn_u8*)c.waiting_addr + (ssd * SLOTS + entry % SLOTS);
}
static_assert(SLOTS < 256, "a command id plus one is a byte, as is the number of waiting commands");

template <class S>
GN_DEV void put_waiting(const channel& c, gn_u32 ssd, gn_u32 entry, gn_u32 cid) {
  // pairs with take_waiting: capsule and state
  S::st_release(waiting_entry(c, ssd, entry), (gn_u8)(cid + 1));
}

// The command id at an entry. The lane that reserved the entry fills it next and waits for nothing before
// that.
template <class S>
GN_DEV gn_u32 take_waiting(const channel& c, gn_u32 ssd, gn_u32 entry) {
  gn_u8* at = waiting_entry(c, ssd, entry);
  gn_u32 filled = S::ld_acquire(at);
  while (!filled) {
    pause(20);
    filled = S::ld_acquire(at);
  }
  S::st(at, (gn_u8)0);
  return filled - 1;
}

}  // namespace gn
