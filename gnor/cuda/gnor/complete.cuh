// SPDX-License-Identifier: Apache-2.0 OR MIT
// Completions. A warp that sees ready entries takes the completion queue's try-lock and up to 32 entries. No
// warp waits for the lock, and no warp takes it before it has seen a ready entry.
#pragma once
#include "fabric/mlx5.h"
#include "gnor/anew.cuh"
#include "gnor/buffer.cuh"
#include "gnor/dump.cuh"
#include "gnor/slots.cuh"

namespace gn {

// How a command has ended: its status (0 = success), and what its response says besides.
struct outcome {
  gn_u32 status, dw0 = 0, dw1 = 0;
};

// A request keeps its first failure. Returns the value to add to its `done`. If nothing is atomic, one thread
// at a time calls it.
template <class S>
GN_DEV gn_u32 note_failure(slot& r, const outcome& o) {
  if (S::cas(&r.status, 0u, o.status) != 0u) return 0;
  S::st(&r.dw0, o.dw0);
  S::st(&r.dw1, o.dw1);
  return REQ_FAILED;
}

GN_DEV bool last_of_abandoned(gn_u32 done) { return (done & ~(gn_u32)REQ_FAILED) == REQ_ABANDONED; }

// The next owner of a slot finds it as new. By read-modify-writes: a queue pair that breaks may end a command
// of the next owner's before this thread's stores would be seen.
template <class S>
GN_DEV void slot_reset(slot& r, gn_u32 done) {
  if (done & REQ_FAILED) S::cas(&r.status, S::ld(&r.status), 0u);
  S::add(&r.done, 0u - done);
}

// A request that its owner has given up has ended, so its slot is an orphan now. If nothing is atomic, one
// thread at a time calls it.
template <class S>
GN_DEV void orphan(channel& c, gn_u32 head) {
  S::ld_acquire(&c.slots[head].done);  // pairs with io_abandon: what it left in the slot
  S::or_acqrel(&c.orphans[head / 32], 1u << (head & 31u));
}

// A copy of the buffer's description for a request that is given up, because its owner may forget the
// original. The copy is where the request would be if it was parked.
GN_DEV gn_u64 keep_buffer(const channel& c, gn_u32 head, gn_u64 name) {
  static_assert(sizeof(buffer) <= PARKED_BYTES, "");
  buffer& kept = *(buffer*)(c.parked_addr + (gn_u64)head * PARKED_BYTES);
  kept = buffer_of(name);
  return name_of(kept, first_of(name));
}

// Adds `by` to the hold counts of the pool's blocks that an abandoned request's buffer is in.
template <class S>
GN_DEV void hold_data(channel& c, const slot& r, gn_u32 by) {
  if (in_pieces(r.pool_addr))
    pool_hold_buffer<S>(c.data, buffer_of(r.pool_addr), first_of(r.pool_addr), r.pool_bytes / GN_BLOCK, by);
  else if (r.pool_addr) pool_hold<S>(c.data, r.pool_addr, r.pool_bytes, by);
}

// Frees the slots of orphans, and ends their holds on buffers. Their late RDMA writes have landed, and no
// other request had that memory meanwhile. One thread calls it.
template <class S>
GN_DEV void free_orphans(channel& c) {
  for (gn_u32 w = 0; w < SLOTS / 32; ++w) {
    if (S::ld(&c.orphans[w]) == 0) continue;
    for (gn_u32 bits = S::exch_acquire(&c.orphans[w], 0u); bits; bits &= bits - 1) {  // pairs with orphan
      slot& r = c.slots[w * 32 + lowest(bits)];
      hold_data<S>(c, r, 0u - POOL_HELD);
      slot_reset<S>(r, S::ld(&r.done));
      bits_give<S>(c, w, bits & (0u - bits));
    }
  }
}

// A command has ended, and with the last command its request has. One thread calls it; if nothing is atomic,
// one thread at a time. free_orphans follows it.
template <class S>
GN_DEV void end_command(channel& c, gn_u32 cid, gn_u32 head, const outcome& o) {
  slot& r = c.slots[head];
  gn_u32 ended = 1u | (o.status ? note_failure<S>(r, o) : 0u);
  if (cid != head) slot_give<S>(c, cid);
  gn_u32 before = S::add_acqrel(&r.done, ended);  // pairs with the acquire in io_finished
  if (last_of_abandoned(before + ended)) orphan<S>(c, head);
}

// A queue pair has failed: everything in flight on it ends with the cause. The HCA reports the failure only
// after its last transfer for this queue pair has ended. The waiting commands end, too: closing the gate
// empties their list. Every flushed work request leads here again, and finds the gate closed. One lane for
// each queue pair calls it, under the completion queue's lock, after this pass's responses. No other thread
// ends commands of that SSD meanwhile.
//
// With `anew` the completion belongs to the other set of queues, which is in use afterwards.
template <class S>
GN_DEV void break_queue(channel& c, gn_u32 queue, bool anew, gn_u32 opcode, gn_u32 syndrome) {
  gn_u32 set = queue >= c.ssds, q = ssd_of(c, queue);
  queue_pair& qp = qp_of(c, q);
  gn_u64 gate = S::ld(&qp.gate);
  if ((set_of(gate) != set) != anew) {  // late; or an answer that was not asked for
    if (anew) S::add(&c.protocol_errors, 1u);
    return;
  }
  if (!anew && (gate & GATE_CLOSED)) return;
  if (!S::ld(&qp.error)) S::st_release(&qp.error, QP_BROKEN | opcode << 8 | syndrome);
  gate = close_gate<S>(qp);
  // The lanes that filled these entries had set their commands' states before, so the search below finds the
  // commands. The others' warps have published theirs.
#pragma unroll 1
  for (gn_u32 k = 0; k < gate_waiting(gate); ++k)
    take_waiting<S>(c, q, gate_tail(gate) - gate_waiting(gate) + k);
  await_published<S>(qp, gate_next(gate));
  gn_u32 ended = CMD_IN_FLIGHT | queue_number(c, q, set_of(gate)) << 8;
  for (gn_u32 cid = 0; cid < SLOTS; ++cid) {
    gn_u32 state = S::ld(&c.slots[cid].state);
    if ((state & 0xffffu) != ended) continue;
    S::st(&c.slots[cid].state, (gn_u32)CMD_FREE);
    end_command<S>(c, cid, state >> 16, {GN_QP_BROKEN | opcode << 8 | syndrome});
  }
  if (anew) use_set<S>(c, queue);
}

enum : gn_u32 { RING_EVERY = 256 };  // completions
// What a completion does to a set of queues: it has failed, or with FAILS_ANEW is to be in use.
enum : gn_u32 { FAILS_NONE = 0xffffffffu, FAILS_ANEW = 0x100u };

// The last two words of an entry: the queue pair's number, and the number of the receive or work request with
// opcode and owner. A completion without an error tells nothing else. Both are one load, as a load behind an
// acquire costs a trip to the L2.
struct cqe_end {
  gn_u32 qpn, last;
};
GN_DEV cqe_end read_end(const mlx5::cqe64* e) {
  // pairs with the HCA's store of these words, its last
  gn_u64 both = mem::ld_acquire_sys((const gn_u64*)&e->sop_qpn);
  return {be32((gn_u32)both) & 0xffffffu, be32((gn_u32)(both >> 32))};
}

GN_DEV completion completion_of(const channel& c, const cqe_end& e) {
  completion x;
  x.opcode = e.last >> 4 & 0xfu;
  x.counter = e.last >> 16;
  x.queue = e.qpn - c.first_qpn;
  if (x.queue >= 2 * c.ssds) return x;
  x.is_response = x.opcode == mlx5::CQE_RESP_SEND;
  x.is_ack = x.opcode == mlx5::CQE_REQ;
  x.is_error = x.opcode >= mlx5::CQE_SIG_ERR;
  return x;
}

// The response that a completion tells of: DW0, DW1, SQHD, and command id and status.
GN_DEV const gn_u32* response_of(const channel& c, const completion& x) {
  return (const gn_u32*)(queue_of(c, x.queue) + SQ_AT +
                         (gn_u64)(c.depth * RECV_AT_EACH + (x.counter & (c.depth - 1)) * 16));
}

// Counts this pass's acknowledgements and responses of the sets in use. The lanes of `mask` call it together,
// after they have read the responses. The lanes of `group` have the same SSD; one of them counts for all.
template <class S>
GN_DEV void count_in(channel& c, gn_u32 mask, gn_u32 group, const completion& x) {
  bool counts = x.is_response || x.is_ack;
  queue_pair& qp = qp_of(c, counts ? ssd_of(c, x.queue) : 0u);
  counts = counts && set_of(S::ld(&qp.gate)) == (gn_u32)(x.queue >= c.ssds);
  gn_u32 acks = __ballot_sync(mask, counts && x.is_ack) & group,
         responses = __ballot_sync(mask, counts && x.is_response) & group;
  // The newest acknowledgement says that its SEND and all earlier ones are retired.
  gn_u32 newest = __shfl_sync(mask, x.counter, acks ? 31 - __clz((int)acks) : (int)lane_id());
  if (!counts || lane_id() != lowest(acks | responses)) return;
  gn_u32 completed = S::ld(&qp.completed) + (gn_u32)__popc(responses);
  if (acks) qp.retired += (newest + 1 - qp.retired) & 0xffffu;
  S::st(&qp.completed, completed);
}

// Hands out what this pass has freed: blocks, each with the receive of its number. Waiting commands get them
// first. Each lane calls it with the SSD `q` of its completion, behind their counting. Returns to the first
// lane of each `group` with the same SSD what `send_admitted` then sends.
template <class S>
GN_DEV reservation open_gate(channel& c, gn_u32 group, gn_u32 q) {
  if (q >= c.ssds || lane_id() != lowest(group)) return {};
  queue_pair& qp = qp_of(c, q);
  return admit<S>(qp, limit_of(c, qp.retired, S::ld(&qp.completed)));
}

// The entry for lane number `rank` if cq_word is `word`.
GN_DEV const mlx5::cqe64* cqe_at(const channel& c, gn_u32 word, gn_u32 rank) {
  return (const mlx5::cqe64*)c.cq_addr + (((word >> 1) + rank) & ((1u << c.cq_log) - 1));
}

// Whether two lanes with `has` have the same command id, which is below SLOTS. The lanes of `mask` together.
GN_DEV bool have_twins(gn_u32 mask, bool has, gn_u32 cid) {
  gn_u32 different = 0;
#pragma unroll
  for (gn_u32 w = 0; w < SLOTS / 32; ++w)
    different += (gn_u32)__popc(__reduce_or_sync(mask, has && cid / 32 == w ? 1u << (cid & 31u) : 0u));
  return different != (gn_u32)__popc(__ballot_sync(mask, has));
}

// Handles the completions of the lanes of `mask`, at most one each: responses end commands, acknowledgements
// and responses make room. The lanes call it together; those of `group` have the same SSD. Returns whether
// free_orphans must follow.
template <class S>
GN_DEV bool end_responses(channel& c, gn_u32 mask, gn_u32 group, completion& x, bool mine) {
  gn_u32 answer = 0, state = 0;
  if (x.is_response) {
    answer = mem::ld_relaxed_sys(response_of(c, x) + 3);
    if ((answer & 0xffffu) < SLOTS) state = S::ld(&c.slots[answer & 0xffffu].state);
  }
  gn_u32 cid = answer & 0xffffu;
  bool ends = x.is_response && (state & 0xffffu) == (CMD_IN_FLIGHT | x.queue << 8);
  // Of two responses to one command, which only a broken SSD sends, the second names none in flight.
  if (have_twins(mask, ends, cid)) {
    gn_u32 twins = __match_any_sync(mask, ends ? cid : (gn_u32)SLOTS + lane_id());
    ends = ends && lane_id() == lowest(twins);
  }
  // The answer to a Connect is treated as an error, which is handled after all responses.
  x.is_error |= x.is_response && cid == CID_CONNECT;
  gn_u32 strange = (gn_u32)__popc(__ballot_sync(mask, mine && !ends && !x.is_ack && !x.is_error));
  if (strange && lane_id() == lowest(mask)) S::add(&c.protocol_errors, strange);
  if (ends) S::st(&c.slots[cid].state, (gn_u32)CMD_FREE);
  bool failed = ends && answer >> 17;
  if (__any_sync(mask, failed))
    in_turns<S>(mask, failed, [&] {
      const gn_u32* detail = response_of(c, x);
      end_command<S>(c, cid, state >> 16,
                     {answer >> 17, mem::ld_relaxed_sys(detail), mem::ld_relaxed_sys(detail + 1)});
    });
  // The other responses are counted together, by one lane for each request.
  ends = ends && !failed;
  slots_give<S>(c, mask, ends && cid != state >> 16, cid);
  // Two commands of one request have two slots, and one of these is not the request's own.
  gn_u32 peers = 1u << lane_id(), done = 0;
  if (__any_sync(mask, ends && cid != state >> 16))
    peers = __match_any_sync(mask, ends ? state >> 16 : 0xffffffffu);
  __syncwarp(mask);  // what the lanes did above, their reading of responses too, is before everything below
  if (ends && lane_id() == lowest(peers)) {
    gn_u32 n = (gn_u32)__popc(peers);
    done = S::add_acqrel(&c.slots[state >> 16].done, n) + n;  // pairs with the acquire in io_finished
  }
  count_in<S>(c, mask, group, x);
  in_turns<S>(mask, last_of_abandoned(done), [&] { orphan<S>(c, state >> 16); });
  return __any_sync(mask, failed || x.is_error || last_of_abandoned(done));
}

// Locks the completion queue, if it is still at `word`. Returns whether it does: another warp may have taken
// the entries behind that word. The lanes of `mask` together.
template <class S>
GN_DEV bool lock_at(channel& c, gn_u32 mask, gn_u32 word) {
  gn_u32 leader = lowest(mask), got = 0;
  if (lane_id() == leader) {
    gn_u32 old = S::exch_acquire(&c.cq_word, CQ_LOCKED);  // pairs with the release of take_completions
    got = old == word;
    // another warp has taken these: restore the word
    if (!got && old != CQ_LOCKED) S::st_release(&c.cq_word, old);
  }
  got = __shfl_sync(mask, got, (int)leader);
  __syncwarp(mask);
  return got;
}

// The entry of lane number `rank` at `word` of the completion queue, and the entry's last word.
struct entry_taken {
  gn_u32 word, rank, last;
};

// Handles what completions say of their queues (`fails`): an error, or the answer to the Connect of a set
// made anew. The lanes of `mask` together.
template <class S>
GN_DEV void break_queues(channel& c, gn_u32 mask, const completion& x, gn_u32 fails, const entry_taken& e) {
  gn_u32 todo = __ballot_sync(mask, fails != FAILS_NONE);
  if (!todo) return;
  // One after the other, in the queue's order, because a set may break and be made anew in one pass. The
  // lanes have counted their completions before.
  __syncwarp(mask);
#pragma unroll 1
  for (gn_u32 done = 0; todo; todo &= ~done) {
    bool first = lane_id() == lowest(todo);
    if (first) {
      gn_u32 opcode = fails & FAILS_ANEW ? (gn_u32)mlx5::CQE_REQ_ERR : e.last >> 4 & 0xfu,
             syndrome = fails & FAILS_ANEW ? (gn_u32)mlx5::SYND_FLUSH
                                           : be32(cqe_at(c, e.word, e.rank)->timestamp[1]) & 0xffu;
      gn_u32 queue = fails & ~(gn_u32)FAILS_ANEW;
      if (!(fails & FAILS_ANEW) || mem::ld_relaxed_sys(response_of(c, x) + 3) >> 17 == 0)
        break_queue<S>(c, queue, fails & FAILS_ANEW, opcode, syndrome);
      else mem::st_release_sys(record_of(c, queue) + RECORD_TAKEN, 1u);  // refused: the CPU sees why
    }
    __syncwarp(mask);
    done = todo & (0u - todo);
  }
}

// Takes ready completions with the lanes of `mask` (they call it together); returns how many.
template <class S>
GN_DEV gn_u32 take_completions(channel& c, gn_u32 mask) {
  typename S::visit inside(c);
  gn_u32 leader = lowest(mask), rank = (gn_u32)__popc(mask & lt_mask()), word = 0;
  if (lane_id() == leader) word = S::ld(&c.cq_word);
  word = __shfl_sync(mask, word, (int)leader);
  const cqe_end end = read_end(cqe_at(c, word, rank));
  gn_u32 last = end.last;
  bool ready = (last & 1u) == (((word >> 1) + rank) >> c.cq_log & 1u) &&
               (last >> 4 & 0xfu) != mlx5::CQE_INVALID && !(word & CQ_LOCKED);
  gn_u32 not_yet = mask & ~__ballot_sync(mask, ready);
  gn_u32 taken = not_yet ? mask & ((not_yet & (0u - not_yet)) - 1) : mask;  // the ready prefix
  gn_u32 count = (gn_u32)__popc(taken);
  if (count && !S::ALONE && !lock_at<S>(c, mask, word)) count = 0;
  if (count == 0) {
    if constexpr (S::ALONE) ring_again<S>(c, mask);
    pause(20);  // a holder of the lock takes ours too
    return 0;
  }
  const bool mine = taken >> lane_id() & 1u, dumps = c.dumps_addr != 0;
  completion x;
  if (mine) x = completion_of(c, end);
  bool ends = mine;
  if (dumps) hold_responses<S>(c, mask, x, ends);
  gn_u32 fails = x.is_error ? x.queue : (gn_u32)FAILS_NONE, q = ssd_of(c, x.queue);
  const gn_u32 group = __match_any_sync(mask, q);
  bool odd = end_responses<S>(c, mask, group, x, ends);
  while (dumps && take_landed<S>(c, mask, x))
    odd |= end_responses<S>(c, mask, __ballot_sync(mask, x.is_response), x, x.is_response);
  if (odd) {  // behind all responses of the pass
    if (x.is_response && x.is_error && !dumps) fails = x.queue | FAILS_ANEW;
    break_queues<S>(c, mask, x, fails, entry_taken{word, rank, last});
  }
  if (dumps) post_dumps<S>(c, mask);
  __syncwarp(mask);
  reservation admitted = open_gate<S>(c, group, q);
  __syncwarp(mask);
  if (lane_id() == leader) S::st_release(&c.cq_word, word + 2 * count);
  if (odd && lane_id() == leader) free_orphans<S>(c);
  // A queue that always has completions must not delay this for ever.
  if constexpr (S::ALONE)
    if (((word >> 1) + count) / RING_EVERY != (word >> 1) / RING_EVERY) ring_again<S>(c, mask);
  if (S::ALONE) __syncwarp(mask);
  send_admitted<S>(c, {mask, group}, q, admitted);
  return count;
}

}  // namespace gn
