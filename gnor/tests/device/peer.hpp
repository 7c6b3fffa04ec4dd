// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Plays the transport of the HCA and the SSDs behind it, one step at a time in the run's scheduler. It takes
// the up ring's entries, moves data by copy descriptors, answers, and acknowledges. If told so, it is late,
// refuses, or breaks queue pairs.
#pragma once
#include <deque>
#include <map>
#include <memory>

#include "harness.hpp"

namespace harness {

struct Peer;
void step_anew(Peer& p);
void told_anew(Peer& p, gn_u32 n, gn_u32 tag);
void on_connect(Peer& p, gn_u32 n);
bool step_strange(Peer& p);

struct Peer {
  /// A command that has arrived and is not answered.
  struct Job {
    gn_u32 q, cid, opcode, vba, blocks, key;
    gn_u64 address, sequence;
    gn_u32 epoch;
    uint64_t due;          // step at which it starts, then at which it is answered
    gn_u32 number = 0;     // of its queue's commands
    gn_u32 copies = 0;     // under way
    bool started = false, dropped = false, failed = false, is_fused = false;
    std::unique_ptr<Memory> data;
  };
  struct Sent {
    gn_u32 index;
    bool signalled, is_dump;
  };
  struct Queue {
    std::deque<Sent> sent;
    bool broken = false, reported = false, closed = false;
    gn_u32 copies = 0, arrived = 0;
    // number of commands that have come, and number that responses have reported by SQHD
    gn_u32 commands = 0, head = 0;
    bool flush_known = false;
    gn_u32 flush_from = 0, flush_to = 0;
    std::vector<gn_u32> version;
    std::vector<gn_u64> sequence;
    gn_u32 epoch = EPOCH;
    uint64_t moves_at = 0;   // to the next map
  };

  /// State of an SSD's queue pair that breaks and is made anew (anew.hpp).
  struct Anew {
    enum State { WHOLE, BROKEN, AWAY, ASKED, CONNECTS, FAILED } state = WHOLE;
    gn_u32 set = 0, tag = 0;   // in use; of the last message
    bool answered[2] = {};     // of a set's last life: its Connect was answered
    uint64_t at = 0;           // step at which it goes on
  };

  /// Responses that name what is not in flight (strange.hpp).
  struct Strange {
    enum State { HOLDS, ONCE, TWICE, OVER } state = HOLDS;
    gn_u32 own = 0;                // the command that is answered twice
    uint64_t again_at = 0, at = 0;   // steps
    std::vector<gn_u32> before;    // of all slots
  };

  Harness& r;
  Rng rng;
  uint64_t step = 0, last_arrival = 0, open_until = 0;
  gn_u64 up_head = 0, down_tail = 0;
  std::deque<hca::down_desc> backlog;
  // by number: the first sets of all SSDs, which also have the SSDs' data, then the second ones
  std::vector<Queue> queues;
  std::vector<Anew> anew;
  gn_u32 last_tag = 0, made_anew = 0, breaks = 0;
  std::map<gn_u32, std::unique_ptr<Job>> jobs;
  std::map<gn_u32, gn_u32> fused;   // slot of an answer that the agent has: its job
  gn_u32 next_job = 1, pool_asked = 0;
  unsigned rnr = 0, no_receive = 0, unexpected = 0, bad_copies = 0, torn_writes = 0;   // all bad
  gn_u64 reads[2] = {};   // taken by other SSDs than the first, by the first
  unsigned answered = 0, refused = 0, lost = 0, dumped = 0;
  std::map<std::pair<gn_u32, gn_u32>, gn_u64> stamps;   // of a block's version
  unsigned restamped = 0;   // versions of blocks that came with two sequences; bad
  unsigned map_refusals = 0;
  Strange strange;
  unsigned harmed = 0, miscounted = 0;   // by strange responses: slots, and the count of them; bad
  uint64_t clients_move_at = 0;
  enum : gn_u32 { PAIR = 2000 };   // steps from one pair of maps to the next
  gn_u32 clients_epoch = EPOCH, filled = 0, pause = 0;   // places of the next map's table, and steps between
  unsigned beyond_the_head = 0;   // commands for which the queue, as SQHD told it, had no entry; bad
  unsigned overwritten = 0;   // SENDs whose block was another's that is not acknowledged; bad
  unsigned overtaken = 0;   // commands sent behind one that came later; bad
  unsigned bad_stamps = 0;  // commands whose client's stamp is missing, not asked for, or of the future; bad
  static inline uint64_t clock = 0;
  static uint64_t read_clock() { return __atomic_load_n(&clock, __ATOMIC_RELAXED); }

  explicit Peer(Harness& harness)
      : r(harness),
        rng(harness.cfg.seed * 77 + 5),
        queues(2 * harness.cfg.ssds),
        anew(harness.cfg.ssds) {
    for (Anew& x : anew) x.at = r.cfg.break_at + rng.below(1000);
    breaks = r.cfg.breaks;
    for (Queue& q : queues) {
      q.version.assign(r.v.capacity_blocks, 0);
      q.sequence.assign(r.v.capacity_blocks, 0);
      q.arrived = r.qp_dumps[(&q - queues.data()) % r.cfg.ssds].arrived;
      // The dropped SSD gets the map last. A write may be taken there, and by its successor, too.
      q.moves_at = r.cfg.map_at + rng.below(2000) + (&q == queues.data() ? 2000 : 0);
      if (r.cfg.maps == 2 && r.cfg.seed % 2) q.moves_at += 4000;
    }
    clients_move_at = r.cfg.map_at + (r.cfg.seed % 4 ? 1000 + rng.below(2000) : rng.below(9000));
    // Before the SSDs, or after them.
    if (r.cfg.maps > 1) clients_move_at = r.cfg.map_at + (r.cfg.seed % 2 ? 0 : 5000);
    pause = r.cfg.maps > 2 ? 0 : rng.below(16);
    r.peer = this;
    r.is_whole = [](void* p, gn_u32 vba, gn_u32 version) {
      return static_cast<Peer*>(p)->is_whole(vba, version);
    };
    __atomic_store_n(&clock, 1, __ATOMIC_RELAXED);
  }

  void push(const hca::down_desc& d) { backlog.push_back(d); }

  void drain_backlog() {
    gn_u64 head = __atomic_load_n(reinterpret_cast<gn_u64*>(r.ring.down_head_addr), __ATOMIC_ACQUIRE);
    while (!backlog.empty() && down_tail - head < DOWN_ENTRIES) {
      gn_u64 phase = down_tail / DOWN_ENTRIES % 2 == 0 ? gn_u64{hca::PHASE_BIT} : 0;
      gn_u64* to = reinterpret_cast<gn_u64*>(r.ring.down_addr) + down_tail % DOWN_ENTRIES * 8;
      for (int i = 0; i < 8; ++i) __atomic_store_n(to + i, backlog.front().w[i] | phase, __ATOMIC_RELEASE);
      backlog.pop_front();
      ++down_tail;
    }
  }

  static hca::down_desc descriptor(gn_u32 op, gn_u32 q, gn_u32 bytes) {
    hca::down_desc d{};
    d.w[0] = static_cast<gn_u64>(op) << 56 | static_cast<gn_u64>(FIRST_QPN + q) << 32 | bytes;
    return d;
  }

  void push_cqe(gn_u32 q, gn_u32 opcode, gn_u32 syndrome, gn_u32 counter) {
    hca::down_desc d = descriptor(hca::DOWN_CQE, q, 0);
    d.w[1] = static_cast<gn_u64>(opcode) << 40 | static_cast<gn_u64>(syndrome) << 32 | (counter & 0xffff);
    push(d);
  }

  void push_response(gn_u32 q, gn_u32 cid, gn_u32 status, gn_u32 dw0) {
    gn_u64 lo = static_cast<gn_u64>(rng.next()) << 32 | dw0;
    gn_u64 hi = static_cast<gn_u64>(cid | status << 17) << 32;
    hca::down_desc d = descriptor(hca::DOWN_SEND, q, 16);
    d.w[4] = ~0ull >> 1;
    d.w[5] = (lo >> 63) << 40 | (hi >> 63) << 41;
    d.w[6] = lo & ~gn_u64{hca::PHASE_BIT};
    d.w[7] = hi & ~gn_u64{hca::PHASE_BIT};
    push(d);
    ++answered;
  }

  /// An entry of the up ring, as far as this peer looks at it.
  struct Entry {
    gn_u32 kind, qpn, index, flags, status, bytes, client_stamp;
    gn_u64 stamp, payload[8];
  };

  /// Takes the entry at the head, once all of its words have the pass's phase.
  bool take_entry(Entry& entry) {
    const gn_u64* from = (reinterpret_cast<hca::up_entry*>(r.ring.up_addr) + up_head % UP_ENTRIES)->w;
    gn_u64 phase = up_head / UP_ENTRIES % 2 == 0 ? gn_u64{hca::PHASE_BIT} : 0, w[16];
    for (int i = 0; i < 16; ++i) {
      w[i] = __atomic_load_n(from + i, __ATOMIC_ACQUIRE);
      if ((w[i] & hca::PHASE_BIT) != phase) return false;
    }
    gn_u64 tops[2] = {w[2] >> hca::UP_EVEN_SHIFT, w[2] >> hca::UP_ODD_SHIFT};
    for (int i = 0; i < 16; ++i) w[i] = (w[i] & ~gn_u64{hca::PHASE_BIT}) | (tops[i % 2] >> i / 2 & 1) << 63;
    entry.kind = static_cast<gn_u32>(w[0] >> 56), entry.qpn = w[0] >> 32 & 0xffffff,
    entry.index = static_cast<gn_u32>(w[0]);
    entry.bytes = static_cast<gn_u32>(w[2]), entry.flags = w[2] >> 32 & 0xff,
    entry.status = static_cast<gn_u32>(w[3] >> 32);
    entry.stamp = w[1], entry.client_stamp = static_cast<gn_u32>(w[hca::UP_ARG]);
    memcpy(entry.payload, w + hca::UP_PAYLOAD, sizeof entry.payload);
    return true;
  }

  bool take_entries() {
    bool any = false;
    for (Entry entry; take_entry(entry); ++up_head) {
      on_entry(entry);
      __atomic_store_n(reinterpret_cast<gn_u64*>(r.ring.up_head_addr), up_head + 1, __ATOMIC_RELEASE);
      any = true;
    }
    return any;
  }

  void on_entry(const Entry& e) {
    if (e.kind == hca::UP_DONE) return on_copied(e);
    if (e.kind == hca::UP_FUSED_DONE) return on_fused_done(e);
    gn_u32 q = e.qpn - FIRST_QPN;
    if (q >= queues.size()) {
      ++unexpected;
      return;
    }
    Queue& queue = queues[q];
    if (queue.closed && e.kind != hca::UP_QP_ANEW) return;
    switch (e.kind) {
      case hca::UP_SEND:
        queue.sent.push_back({e.index, (e.flags & hca::UP_SIGNALLED) != 0, false});
        if (!queue.broken && queue.sent.size() > r.cfg.depth) ++overwritten;
        if (e.bytes == 64 && !is_connect_anew(e)) check_stamp(e);
        if (!queue.broken) on_capsule(q, reinterpret_cast<const gn_u32*>(e.payload), e.bytes);
        break;
      case hca::UP_DUMP:
        if (!r.c.dumps_addr) ++unexpected;
        ++dumped;
        queue.sent.push_back({e.index, (e.flags & hca::UP_SIGNALLED) != 0, true});
        break;
      case hca::UP_WQE_FLUSH:
        queue.sent.push_back({e.index, true, false});
        if (!queue.broken) ++unexpected;
        break;
      case hca::UP_RQ_FLUSH:
        queue.flush_known = true, queue.flush_from = e.index, queue.flush_to = e.status;
        break;
      case hca::UP_RNR: ++rnr; break;
      case hca::UP_QP_ANEW: told_anew(*this, q, e.index); break;
      default: ++unexpected; break;
    }
  }

  static bool is_connect_anew(const Entry& e) {
    return static_cast<gn_u32>(e.payload[0]) >> 16 == CID_CONNECT;
  }
  /// The queue with the SSD's data.
  Queue& data_of(gn_u32 q) { return queues[q % r.cfg.ssds]; }

  /// If its channel is told to, a command says when it was written; that was before the agent took it. A
  /// channel connects by itself, so the first step counts as well.
  void check_stamp(const Entry& e) {
    bool is_right = r.c.stamps ? e.client_stamp != 0 && e.client_stamp <= (e.stamp | 1) : e.client_stamp == 0;
    if (!is_right) ++bad_stamps;
  }

  // peer_capsules.hpp
  void check_credit(gn_u32 q);
  void check_order(gn_u32 q, gn_u32 cid);
  gn_u32 check_head(gn_u32 q);
  void on_capsule(gn_u32 q, const gn_u32* w, gn_u32 bytes);

  /// A response to command `number` reports no head before the entry behind that command. More is not
  /// promised.
  void tell_head(gn_u32 q, gn_u32 number) {
    if (queues[q].head < number) queues[q].head = number;
  }

  // peer_maps.hpp
  bool refuses_map(const Job& job);
  void move_maps();
  uint64_t pair_at(gn_u32 epoch) const;
  void move_clients();
  bool is_whole(gn_u32 vba, gn_u32 version) const;
  unsigned missing_copies() const;
  // peer_jobs.hpp
  void on_copied(const Entry& e);
  void on_fused_done(const Entry& e);
  gn_u32 free_slot();
  void store(Job& job);
  void start(gn_u32 id, Job& job);
  static gn_u32 sum_of(const gn_u8* block);
  void work_on_jobs();

  void acknowledge(gn_u32 q) {
    Queue& queue = queues[q];
    if (queue.broken) return;
    for (; !queue.sent.empty(); queue.sent.pop_front())
      if (queue.sent.front().signalled) push_cqe(q, mlx5::CQE_REQ, 0, queue.sent.front().index);
  }

  void break_queue_pair(gn_u32 q) {
    queues[q].broken = true;
    push(descriptor(hca::DOWN_QP_ERROR, q, 0));
  }

  /// As the engine does it: nothing is reported while a copy moves; then the oldest with its cause, the
  /// others flushed.
  void flush(gn_u32 q) {
    Queue& queue = queues[q];
    if (!queue.broken || queue.copies || !queue.flush_known) return;
    for (; !queue.sent.empty(); queue.sent.pop_front()) {
      // A DUMP that was executed before the queue pair broke has succeeded. The engine reports it so,
      // although after an error.
      if (queue.sent.front().is_dump && queue.reported) {
        push_cqe(q, mlx5::CQE_REQ, 0, queue.sent.front().index);
        continue;
      }
      gn_u32 why = queue.reported ? mlx5::SYND_FLUSH : mlx5::SYND_RETRY_EXC;
      push_cqe(q, mlx5::CQE_REQ_ERR, why, queue.sent.front().index);
      queue.reported = true;
    }
    for (; queue.flush_from != queue.flush_to; queue.flush_from = (queue.flush_from + 1) & 0xffff) {
      push_cqe(q, mlx5::CQE_RESP_ERR, mlx5::SYND_FLUSH, queue.flush_from);
      queue.reported = true;
    }
  }

  /// The host's part of a pool that grows: late, and once for every request.
  void answer_pool() {
    if (!r.cfg.grows || !rng.one_of(50)) return;
    pool_host& words = *reinterpret_cast<pool_host*>(r.c.data.host_addr);
    gn_u32 asked = __atomic_load_n(&words.asked, __ATOMIC_ACQUIRE);
    if (asked == pool_asked) return;
    if (asked < pool_asked || asked > r.c.data.most) ++unexpected;
    pool_asked = asked;
    if (!r.cfg.refuses) __atomic_store_n(&words.granted, asked, __ATOMIC_RELEASE);
  }

  bool turn() {
    ++step;
    answer_pool();
    move_maps();
    __atomic_store_n(&clock, step << r.cfg.clock_shift, __ATOMIC_RELAXED);
    bool any = take_entries();
    work_on_jobs();
    // In the middle of copies, if there are any.
    if (r.cfg.breaks) step_anew(*this);
    else if (r.cfg.break_at && step >= r.cfg.break_at)
      for (gn_u32 q = 0; q < r.cfg.break_ssds; ++q)
        if (!queues[q].broken && (queues[q].copies || step > r.cfg.break_at + 300)) break_queue_pair(q);
    gn_u32 q = rng.below(static_cast<uint32_t>(queues.size()));
    if (rng.one_of(r.cfg.ack_1_of)) acknowledge(q);
    for (gn_u32 k = 0; k < queues.size(); ++k) flush(k);
    drain_backlog();
    return any;
  }
};

}  // namespace harness

#include "peer_capsules.hpp"
#include "peer_jobs.hpp"
#include "peer_maps.hpp"
