// SPDX-License-Identifier: Apache-2.0 OR MIT
// A request from one thread. It is cut at chunk borders and where a piece of its buffer ends. A read has a
// command for each part, a write for each part and replica.
//
//   io_stage        takes a slot, builds the next command's capsule; nothing is sent
//   io_commit       a warp's lanes append what they staged: one doorbell per SSD
//   take_completions, io_finished
//
// The lanes of `mask` call these together; one lane alone is a mask of its own. No thread waits while it
// holds something staged. Where no other slot is free, a request's own slot carries its commands one after
// the other. So a thread that waits for a slot waits for completions, and helps to take them.
#pragma once
#include "gnor/append.cuh"
#include "gnor/complete.cuh"
#include "gnor/place.cuh"
#include "gnor/request.cuh"

namespace gn {

// Reasons in DW0 after which a read is tried elsewhere (proto/src/status.rs). This SSD is not to serve it, or
// what is wrong is wrong with this copy.
enum : gn_u32 {
  // of an SSD that is back and has not got the volume's newest entry yet
  REFUSED_NOT_A_READER = 2,
  REFUSED_WRONG_TARGET = 8, REFUSED_STALE_MAP = 9, REFUSED_MAP_BEHIND = 10,
  REFUSED_NOT_HERE_YET = 11, REFUSED_ASK_THE_FIRST = 12, REFUSED_NOT_SERVING = 13,
  COPY_OF_ANOTHER_BLOCK = 17, COPY_DAMAGED = 18, COPY_UNREADABLE = 40, COPY_UNUSABLE = 42,
  REFUSED_GROUP_WAITS = 43, REFUSED_NEEDS_SALVAGE = 48,
};
enum : gn_u64 {
  ELSEWHERE = 1ull << REFUSED_NOT_A_READER | 1ull << REFUSED_NOT_HERE_YET | 1ull << REFUSED_ASK_THE_FIRST |
      1ull << REFUSED_NOT_SERVING | 1ull << COPY_OF_ANOTHER_BLOCK | 1ull << COPY_DAMAGED |
      1ull << COPY_UNREADABLE | 1ull << COPY_UNUSABLE | 1ull << REFUSED_NEEDS_SALVAGE,
};

// Reasons that may disappear with another map, or with the same one a little later.
enum : gn_u64 {
  LATER = 1ull << REFUSED_WRONG_TARGET | 1ull << REFUSED_STALE_MAP | 1ull << REFUSED_MAP_BEHIND |
      1ull << REFUSED_NOT_HERE_YET | 1ull << REFUSED_ASK_THE_FIRST | 1ull << REFUSED_NOT_SERVING |
      1ull << REFUSED_GROUP_WAITS | 1ull << REFUSED_NEEDS_SALVAGE,
};
enum : gn_u32 {
  MAP_MOVED_ON = 0x0702,  // the SSDs' own status for an old map (proto/src/status.rs)
  TRY_AGAIN_TICKS = 64,   // some 4 ms
};

template <class S>
GN_DEV gn_u32 queue_error(const channel& c, gn_u32 ssd) {
  return ssd == PLACE_NONE ? 0u : S::ld_acquire(&qp_of(c, ssd).error);
}

// How much of an SSD's queue pair is taken, compared with others of the channel.
template <class S>
GN_DEV gn_u32 load_of(const channel& c, gn_u32 ssd) {
  const queue_pair& qp = qp_of(c, ssd);
  gn_u64 g = S::ld(&qp.gate);
  return (gate_next(g) + gate_waiting(g) - S::ld(&qp.completed)) & 0xffffu;
}

// The replica to which a read goes first. Of two, drawn in turn by `hint`, it is the one with less load ("any
// replica by load", protocol rule 7). Neighbouring lanes see the same load, so a small difference does not
// count.
template <class S>
GN_DEV gn_u32 idle_place(const channel& c, const volume& v, gn_u32 table, gn_u32 vba, gn_u32 hint) {
  const read_places row = read_places_of(v, table, vba);
  gn_u32 one = read_place(row, 0, hint), other = read_place(row, 0, hint + 1);
  if (one == other) return one;
  return (int)(load_of<S>(c, one) - load_of<S>(c, other)) > SAME_LOAD ? other : one;
}

// Where a write of replica `k` goes. Behind the replicas is the SSD that comes in for one of them.
GN_DEV gn_u32 next_write_place(const volume& v, gn_u32 table, gn_u32 vba, gn_u32 k) {
  return k < v.replicas ? write_place(v, table, vba, k) : incoming_place(v, table, vba);
}

// Where a command goes: the SSD, the error of its queue pair, and whether it stands in for one that is
// broken.
struct destination {
  gn_u32 ssd = PLACE_NONE, error = 0;
  bool elsewhere = false;
};

// Destination of a request's next command. For a read it is one that works, if there is one.
template <class S, class X>
GN_DEV destination io_place(const channel& c, const volume& v, const X& x, gn_u32 table, gn_u32 hint) {
  gn_u32 vba = x.vba + x.sent;
  destination to;
  to.ssd = opcode_of(x) == IO_FLUSH   ? vba
           : opcode_of(x) == IO_WRITE ? next_write_place(v, table, vba, x.attempt & REPLICA_MASK)
           : x.attempt == 0           ? idle_place<S>(c, v, table, vba, hint)
                                      : read_place(v, table, vba, x.attempt, hint);
  to.error = queue_error<S>(c, to.ssd);
  if (!to.error || opcode_of(x) != IO_READ || (x.flags & FLAG_PINNED)) return to;
  for (gn_u32 k = 1; k <= v.replicas; ++k) {
    gn_u32 other = read_place(v, table, vba, k, 0);
    if (other == PLACE_NONE || queue_error<S>(c, other)) continue;
    to.ssd = other, to.error = 0, to.elsewhere = true;
    break;
  }
  return to;
}

// Whether all commands that the request has sent have ended. Then its own slot can carry the next one.
template <class S, class X>
GN_DEV bool own_slot_is_free(const channel& c, const volume& v, const X& x) {
  return (S::ld_acquire(&c.slots[x.head].done) & ~(gn_u32)REQ_FAILED) == io_issued(v, x);
}

// Whether a request that waits for another map must go on waiting. It also tries again without another map:
// an SSD may have been behind, and a refusal does not name the epoch of the command.
template <class S, class X>
GN_DEV bool io_goes_on_waiting(const channel& c, const volume& v, X& x) {
  const slot& r = c.slots[x.head];
  if (epoch_of(v) == r.pool_bytes && !ticks_passed(S::ld(&r.dw1))) return true;
  x.attempt = 0;
  return false;
}

// Stages the next command of each lane whose request is `active`, not completely sent, and has nothing
// staged. A lane without a slot for it still has nothing staged afterwards: poll, then try again. With QUEUES
// a request without a slot gets its first one in its turn. Without QUEUES it only gets a slot for which no
// other request waits, and the request may be dropped.
template <class S, bool QUEUES = true, class X>
GN_DEV void io_stage(channel& c, volume& v, bool active, X& x, const lane_group& lanes) {
  gn_u32 mask = lanes.mask;
  bool wants = active && !io_ended(x) && x.cid == IO_NONE && !io_all_sent(x);
  if (wants && x.attempt == WAITS) wants = !io_goes_on_waiting<S>(c, v, x);
  destination to;
  bool write = opcode_of(x) == IO_WRITE;
  // A write's commands belong to one map. The table is read after the word that names it (this pairs with the
  // order of the host's stores). A read with a half-old row is refused, and tried again.
  gn_u64 map = write ? mem::ld_acquire_sys(&v.map) : 0;
  gn_u32 table = write ? (gn_u32)(map >> 32) & 0xffffu : table_of(v);
  if (wants) to = io_place<S>(c, v, x, table, lanes.hint);
  bool sends = wants && to.ssd != PLACE_NONE && !to.error;
  bool begins = wants && x.head == IO_NONE, starts = write && x.sent == 0 && x.attempt == 0;
  // A missing replica gets no command. A write may lack replicas, but not all of them.
  bool lacks_all = !write || (wants && to.ssd == PLACE_NONE && !has_replica(v, table, x.vba + x.sent));
  // Another map than the one of its first command: nothing more is sent, and it starts over.
  bool moved_on = write && wants && !starts && (gn_u32)map != c.slots[x.head].pool_bytes;
  // Or than the one that named the table before it was read: it may have been filled anew meanwhile.
  moved_on |= write && wants && epoch_of(v) != (gn_u32)map;
  if (moved_on) sends = false;
  slot_wish wish = begins && QUEUES  ? (x.queued ? HAS_TICKET : WANTS_TICKET)
                   : begins || sends ? WANTS_SPARE
                                     : WANTS_NONE;
  gn_u32 cid = slots_take<S>(c, lanes, wish, x.ticket);
  if (begins) x.head = cid & 0xffu, x.queued = QUEUES && cid == NO_SLOT;  // IO_NONE of NO_SLOT
  else if (sends && cid == NO_SLOT && own_slot_is_free<S>(c, v, x)) cid = x.head;
  bool goes = wants && x.head != IO_NONE && (!sends || cid != NO_SLOT);
  gn_u32 moved = __ballot_sync(mask, goes && to.elsewhere);
  if (moved && lane_id() == lowest(mask)) S::add(&c.retries, (gn_u32)__popc(moved));
  if (!goes) return;
  slot& r = c.slots[x.head];
  gn_u32 n = io_part(v, x);
  // Draws all sequences of the request at once: one for each part, the same for its replicas. A request that
  // starts over has them already.
  if (write && begins)
    r.pool_addr = mem::add_relaxed_gpu(&v.next_sequence, (gn_u64)io_parts(v, x, x.blocks));
  if (starts) r.pool_bytes = (gn_u32)map;
  if (sends) {
    gn_u64 sequence = write ? r.pool_addr + io_parts(v, x, x.sent) : 0;
    write_capsule(c, v, x, {cid, write ? (gn_u32)map : epoch_of(v), n, sequence});
    x.cid = cid;
    x.ssd = to.ssd;
  } else {
    gn_u32 missing = lacks_all ? (gn_u32)GN_NO_REPLICA : 0u;
    gn_u32 status = moved_on   ? (gn_u32)MAP_MOVED_ON
                    : to.error ? GN_QP_BROKEN | (to.error & 0xffffu)
                               : missing;
    gn_u32 reason = moved_on ? (gn_u32)REFUSED_STALE_MAP : 0u;
    S::add(&r.done, 1u | (status ? note_failure<S>(r, {status, reason}) : 0u));
  }
  if (!write) {
    x.sent += n;
    return;
  }
  // Each part goes to as many SSDs as the map says by which the request began, so that they can be counted.
  gn_u32 more = starts ? (gn_u32)(map >> 48) : x.attempt >> COMES_IN_SHIFT;
  gn_u32 next = (x.attempt & REPLICA_MASK) + 1;
  if (next == v.replicas + more) x.sent += n, next = 0;
  x.attempt = more << COMES_IN_SHIFT | next;
}

// Sends what the lanes of `mask` have staged.
template <class S>
GN_DEV void io_commit(channel& c, gn_u32 mask, io& x) {
  typename S::visit inside(c);
  gn_u32 cid = x.cid, ssd = x.ssd;
  bool have = x.cid != IO_NONE;
  if (append<S>(c, mask, have, {cid, ssd, x.head})) x.cid = IO_NONE;
  if (!__any_sync(mask, x.cid != IO_NONE)) return;
  // If the queue pair was made anew meanwhile, the command staged for the old one ends with that error, too.
  gn_u32 error = x.cid != IO_NONE ? queue_error<S>(c, ssd) | QP_BROKEN : 0u;
  // not abandoned yet
  in_turns<S>(mask, error != 0,
              [&] { end_command<S>(c, cid, x.head, {GN_QP_BROKEN | (error & 0xffffu)}); });
  if (error) x.cid = IO_NONE;
}

// Whether a read that failed so may be served by another replica.
template <class X>
GN_DEV bool try_elsewhere(const volume& v, const X& x, gn_u32 status) {
  if (opcode_of(x) != IO_READ || x.attempt >= v.replicas || (x.flags & FLAG_PINNED)) return false;
  if (status & GN_QP_BROKEN) return true;
  gn_u32 reason = x.dw0 & 0xffu;
  return status < GN_PENDING && reason < 64 && (ELSEWHERE >> reason & 1u);
}

// Whether a request that failed so waits for another map.
template <class X>
GN_DEV bool waits_for_map(const volume& v, const X& x, gn_u32 status) {
  if (opcode_of(x) == IO_FLUSH || (x.flags & (FLAG_ONCE | FLAG_PINNED))) return false;
  if (status & GN_QP_BROKEN) return v.follows & FOLLOWS_BROKEN;
  if (status & GN_NO_REPLICA) return v.follows & FOLLOWS_REFUSALS;
  gn_u32 reason = x.dw0 & 0xffu;
  return (v.follows & FOLLOWS_REFUSALS) && status < GN_PENDING && reason < 64 && (LATER >> reason & 1u);
}

// Returns true if a lane's `active` request has ended. Then its status is in `x` and its slot is free again.
// A read that another replica may serve starts over there.
template <class S, class X>
GN_DEV bool io_finished(channel& c, const volume& v, gn_u32 mask, bool active, X& x) {
  bool ended = active && io_ended(x), gives = false, again = false;
  gn_u32 head = x.head;
  if (active && !ended && head != IO_NONE && x.cid == IO_NONE && io_all_sent(x)) {
    slot& r = c.slots[head];
    gn_u32 done = S::ld_acquire(&r.done), status = 0;  // pairs with the release in take_completions
    if ((done & ~(gn_u32)REQ_FAILED) == io_issued(v, x)) {
      x.dw0 = x.dw1 = 0;
      if (done & REQ_FAILED) {
        status = S::ld(&r.status);
        x.dw0 = S::ld(&r.dw0);
        x.dw1 = S::ld(&r.dw1);
      }
      slot_reset<S>(r, done);
      again = status && try_elsewhere(v, x, status);
      if (again) {
        x.attempt += 1;
        x.sent = 0;
      } else if (status && waits_for_map(v, x, status)) {
        x.attempt = WAITS;
        x.sent = 0;
        if (opcode_of(x) != IO_WRITE) r.pool_bytes = epoch_of(v);
        S::st(&r.dw0, status);
        S::st(&r.dw1, now_ticks() + TRY_AGAIN_TICKS);
      } else {
        x.status = status;
        x.head = IO_NONE;
        ended = gives = true;
      }
    }
  }
  gn_u32 retried = __ballot_sync(mask, again);
  if (retried && lane_id() == lowest(mask)) S::add(&c.retries, (gn_u32)__popc(retried));
  slots_give<S>(c, mask, gives, head);
  return ended;
}

// Status of a request that is given up. It also says whether an agent serves the HCA's queues.
GN_DEV gn_u32 timed_out(const channel& c) {
  bool served = !c.port_addr || mem::ld_relaxed_sys((const gn_u32*)c.port_addr) != 0;
  return served ? (gn_u32)GN_TIMED_OUT : GN_TIMED_OUT | GN_NO_AGENT;
}

// The lanes with `gives_up` set give up. The channel keeps the request's slots and commands until its
// completions have come. Until then the pool does not hand out memory of its buffer (protocol rule 9).
template <class S, class X>
GN_DEV void io_abandon(channel& c, const volume& v, gn_u32 mask, bool gives_up, X& x) {
  gives_up = gives_up && !io_ended(x);
  if (!__any_sync(mask, gives_up)) return;
  bool queued = gives_up && x.queued;
  tickets_give<S>(c, mask, queued);
  if (queued) x.queued = x.dw0 = 0;
  in_turns<S>(mask, gives_up, [&] {
    bool pooled = x.blocks && (has_pieces(x) || pool_owns(c.data, x.address)), staged = x.cid != IO_NONE;
    gn_u32 cid = x.cid, head = x.head;
    x.status = timed_out(c);
    x.cid = x.head = IO_NONE;
    if (head == IO_NONE) return;  // nothing of it is on its way
    slot& r = c.slots[head];
    if (x.attempt == WAITS) x.status = S::ld(&r.dw0), pooled = false, x.attempt = 0;  // nor of this request
    r.pool_addr = !pooled ? 0 : has_pieces(x) ? keep_buffer(c, head, x.address) : x.address;
    r.pool_bytes = x.blocks * GN_BLOCK;
    hold_data<S>(c, r, POOL_HELD);
    if (staged && cid != head) slot_give<S>(c, cid);
    gn_u32 left = REQ_ABANDONED - io_issued(v, x) + staged;  // what is staged will not be sent
    gn_u32 done = S::add_acqrel(&r.done, left) + left;       // pairs with the add of the last command's end
    if (!last_of_abandoned(done)) return;
    orphan<S>(c, head);
    free_orphans<S>(c);
  });
}

}  // namespace gn
