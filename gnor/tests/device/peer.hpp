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
    // commands that have come, and as many of them as responses have told by SQHD
    gn_u32 commands = 0, head = 0;
    bool flush_known = false;
    gn_u32 flush_from = 0, flush_to = 0;
    std::vector<gn_u32> version;
    std::vector<gn_u64> sequence;
    gn_u32 epoch = EPOCH;
    uint64_t moves_at = 0;   // to the next map
  };

  /// An SSD's queue pair that breaks and is made anew (anew.hpp).
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
  // by number: the first sets of all SSDs, which have the SSDs' data too, then the second ones
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
      // The one that is dropped hears of it last: a write may be taken there, and by its successor.
      q.moves_at = r.cfg.map_at + rng.below(2000) + (&q == queues.data() ? 2000 : 0);
      if (r.cfg.maps == 2 && r.cfg.seed % 2) q.moves_at += 4000;
    }
    clients_move_at = r.cfg.map_at + (r.cfg.seed % 4 ? 1000 + rng.below(2000) : rng.below(9000));
    // Before the SSDs, or behind them.
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

  /// A command says when it was written, if its channel is asked for that: before the agent took it. A
  /// channel connects by itself, so the first step counts as well.
  void check_stamp(const Entry& e) {
    bool is_right = r.c.stamps ? e.client_stamp != 0 && e.client_stamp <= (e.stamp | 1) : e.client_stamp == 0;
    if (!is_right) ++bad_stamps;
  }

  /// Every command has a receive for its response posted when it is sent.
  void check_credit(gn_u32 q) {
    const gn_u32* record = record_of(r.c, q);
    gn_u32 posted = be32(__atomic_load_n(record + mlx5::RCV_DBR, __ATOMIC_ACQUIRE));
    if (((posted - ++queues[q].arrived) & 0xffff) >= 0x8000) ++no_receive;
  }

  /// First come, first served: a command is sent before all whose lanes asked for them when its own lane had
  /// asked.
  void check_order(gn_u32 q, gn_u32 cid) {
    if (cid >= SLOTS) return;
    auto get = [](const gn_u32& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); };
    gn_u32 before = get(r.arrivals[cid].before);
    __atomic_store_n(&r.arrivals[cid].sent, before, __ATOMIC_RELAXED);
    for (const Arrival& other : r.arrivals) {
      gn_u32 asked = get(other.before), behind = get(other.behind);
      if (get(other.ssd) == q && asked != get(other.sent) && behind > asked && behind < before) ++overtaken;
    }
  }

  /// SQHD is honoured: the queue's tail does not reach the head that responses have told of.
  gn_u32 check_head(gn_u32 q) {
    Queue& queue = queues[q];
    if (++queue.commands - queue.head >= NVME_ENTRIES_EACH * r.cfg.depth) ++beyond_the_head;
    return queue.commands;
  }

  /// A response to command `number` reports no head before the entry behind that command. More is not
  /// promised.
  void tell_head(gn_u32 q, gn_u32 number) {
    if (queues[q].head < number) queues[q].head = number;
  }

  void on_capsule(gn_u32 q, const gn_u32* w, gn_u32 bytes) {
    check_credit(q);
    gn_u32 number = check_head(q);
    if (w[0] >> 16 == CID_CONNECT) return on_connect(*this, q);
    // An SSD takes no command before it has answered the Connect.
    if (r.cfg.breaks && anew[q % r.cfg.ssds].set != q / r.cfg.ssds) ++unexpected;
    if (r.cfg.in_order) check_order(q, w[0] >> 16);
    auto job = std::make_unique<Job>();
    job->number = number;
    job->q = q, job->cid = w[0] >> 16, job->opcode = w[0] & 0xff;
    job->vba = w[10], job->blocks = (w[12] & 0xffff) + 1;
    job->address = static_cast<gn_u64>(w[7]) << 32 | w[6];
    job->key = w[8] >> 24 | w[9] << 8;
    job->sequence = static_cast<gn_u64>(w[15]) << 32 | w[14];
    bool io = job->opcode == IO_READ || job->opcode == IO_WRITE;
    job->epoch = w[2];
    bool stamped = w[11] >> 16 == VID && w[3] == r.v.lease_epoch && w[2] - EPOCH <= r.last_epoch() - EPOCH;
    bool sized = (w[8] & 0xffffff) == job->blocks * GN_BLOCK && job->blocks <= 1u << r.cfg.chunk_shift;
    if (bytes != 64 || (io && (!stamped || !sized || job->vba + job->blocks > r.v.capacity_blocks))) {
      ++unexpected;
      return;
    }
    if (!io || (r.cfg.instant && !r.cfg.bursts)) {
      tell_head(q, number);
      push_response(q, job->cid, 0, 0x10000 | q);
      return;
    }
    if (r.cfg.map_at && refuses_map(*job)) return;
    if (job->opcode == IO_READ && rng.one_of(r.cfg.refuse_1_of)) {
      ++refused;
      const gn_u32 reasons[] = {REFUSED_NOT_HERE_YET, REFUSED_ASK_THE_FIRST, REFUSED_NOT_SERVING,
                                COPY_DAMAGED,         COPY_UNREADABLE,       1};
      tell_head(q, number);
      push_response(q, job->cid, 0x182, reasons[rng.below(6)]);
      return;
    }
    job->due = step + rng.below(r.cfg.delay + 1) * (job->opcode == IO_READ && q == 0 ? r.cfg.slow : 1);
    if (job->opcode == IO_READ) ++reads[q == 0];
    job->started = r.cfg.instant;
    last_arrival = step;
    if (rng.one_of(r.cfg.lost_1_of)) {
      ++lost;
      job->due = step + r.cfg.timeout * (1 + rng.below(3));
    }
    next_job = next_job % 0x7ffff + 1;
    jobs[next_job] = std::move(job);
  }

  /// As the firmware judges epoch and place.
  bool refuses_map(const Job& job) {
    gn_u32 ours = data_of(job.q).epoch, status = 0, reason = 0;
    if (job.epoch < ours) status = 0x0702, reason = REFUSED_STALE_MAP;
    else if (job.epoch > ours) status = 0x0703, reason = REFUSED_MAP_BEHIND;
    else if (!r.is_member(ours, job.vba, job.q, false)) status = 0x4701, reason = REFUSED_WRONG_TARGET;
    else if (job.opcode == IO_READ && !r.is_member(ours, job.vba, job.q, true))
      status = 0x0704, reason = REFUSED_NOT_HERE_YET;
    if (!status) return false;
    ++map_refusals;
    tell_head(job.q, job.number);
    push_response(job.q, job.cid, status, reason);
    return true;
  }

  /// SSDs and clients go over to the next map.
  void move_maps() {
    if (!r.cfg.map_at) return;
    for (Queue& q : queues)
      if (step >= q.moves_at && q.epoch < r.last_epoch()) {
        bool is_pair = ++q.epoch % 2 == EPOCH % 2;
        uint64_t pair = pair_at(q.epoch) + r.cfg.seed % 2 * 300;
        q.moves_at = is_pair ? pair + rng.below(600) : step + rng.below(200);
      }
    if (step >= clients_move_at && clients_epoch < r.last_epoch()) move_clients();
  }

  /// When the pair behind this epoch begins: SSDs are first, or clients.
  uint64_t pair_at(gn_u32 epoch) const { return r.cfg.map_at + 5000 + (epoch - EPOCH) / 2 * (uint64_t)PAIR; }

  /// As the host does it: fills the table of the next map, some places a step, in no order; then says so.
  void move_clients() {
    gn_u32 next = clients_epoch + 1;
    auto say = [&] { __atomic_store_n(&r.v.map, r.map_word(next), __ATOMIC_RELEASE); };
    if (r.cfg.word_first && filled == 0) say();
    if (pause && step % pause) return;
    for (gn_u32 end = pause ? filled + 1 : (gn_u32)Harness::MAP_WORDS; filled < end; ++filled) {
      gn_u32 i = filled * 37 % Harness::MAP_WORDS;
      __atomic_store_n(r.word_of_table(r.table_of_epoch(next), i), r.word_of_map(next, i), __ATOMIC_RELEASE);
    }
    if (filled < Harness::MAP_WORDS) return;
    say();
    filled = 0, clients_epoch = next;
    if (next % 2 == EPOCH % 2) clients_move_at = pair_at(next) + (r.cfg.seed % 2 ? 0 : 800);
  }

  /// Rule 5a: all members of one epoch have it.
  bool is_whole(gn_u32 vba, gn_u32 version) const {
    for (gn_u32 epoch = EPOCH; epoch <= r.last_epoch(); ++epoch) {
      bool all = true;
      for (gn_u32 q = 0; q < r.cfg.ssds; ++q)
        all &= !r.is_member(epoch, vba, q, false) || queues[q].version[vba] == version;
      if (all) return true;
    }
    return false;
  }

  /// Acknowledged versions that a serving member of the last map does not have.
  unsigned missing_copies() const {
    unsigned missing = 0;
    for (size_t i = 0; (r.cfg.map_at || r.cfg.breaks) && i < r.versions.size(); ++i) {
      gn_u32 vba = SHARED_BLOCKS + static_cast<gn_u32>(i);
      for (gn_u32 q = 0; q < r.cfg.ssds && r.versions[i] != ~0u; ++q)
        if (r.is_member(r.last_epoch(), vba, q, true) && queues[q].version[vba] != r.versions[i]) ++missing;
    }
    return missing;
  }

  void on_copied(const Entry& e) {
    auto found = jobs.find(e.index >> 8);
    if (found == jobs.end()) {
      ++unexpected;
      return;
    }
    Job& job = *found->second;
    Queue& queue = queues[job.q];
    --job.copies, --queue.copies;
    if (e.status != hca::COPY_OK) {
      if (!queue.broken) ++bad_copies;
      job.failed = true;
    }
    if (job.copies) return;
    if (job.opcode == IO_WRITE && !job.failed) store(job);
    job.due = step + rng.below(r.cfg.delay / 2 + 1);
    if (rng.one_of(r.cfg.lost_1_of)) job.due = step + r.cfg.timeout * (1 + rng.below(2));
  }

  /// Data and response of reads have gone out together, or not where a queue pair is broken.
  void on_fused_done(const Entry& e) {
    const gn_u16* items = reinterpret_cast<const gn_u16*>(e.payload);
    for (gn_u32 i = 0; i < e.flags; ++i) {
      auto slot = fused.find(items[i] % hca::FUSED_SLOTS);
      if (slot == fused.end()) {
        ++unexpected;
        continue;
      }
      auto job = jobs.find(slot->second);
      Queue& queue = queues[job->second->q];
      if (items[i] >> hca::FUSED_STATUS_SHIFT != hca::COPY_OK && !queue.broken) ++bad_copies;
      queue.copies -= job->second->copies;
      tell_head(job->second->q, job->second->number);
      jobs.erase(job);
      fused.erase(slot);
      ++answered;
    }
  }

  /// A number that no answer has.
  gn_u32 free_slot() {
    gn_u32 slot = rng.below(4);  // few, so that they are used again
    while (fused.count(slot)) slot = (slot + 1) % hca::FUSED_SLOTS;
    return slot;
  }

  /// An older write does not overwrite a newer one, as with the real SSD.
  void store(Job& job) {
    Queue& queue = data_of(job.q);
    for (gn_u32 b = 0; b < job.blocks; ++b) {
      const gn_u8* block = job.data->p + b * GN_BLOCK;
      if (!is_block(block, job.vba + b)) ++torn_writes;
      gn_u32 version = *reinterpret_cast<const gn_u32*>(block);
      gn_u64& stamp = stamps[{job.vba + b, version}];
      if (stamp && stamp != job.sequence) ++restamped;
      stamp = job.sequence;
      if (queue.sequence[job.vba + b] > job.sequence) continue;
      queue.sequence[job.vba + b] = job.sequence;
      queue.version[job.vba + b] = *reinterpret_cast<const gn_u32*>(block);
    }
  }

  void start(gn_u32 id, Job& job) {
    Queue& queue = queues[job.q];
    job.started = true;
    job.data = std::make_unique<Memory>(job.blocks * GN_BLOCK);
    bool read = job.opcode == IO_READ;
    // Where a response is to be late or lost, this peer sends it.
    job.is_fused = read && r.cfg.fused && !r.cfg.lost_1_of;
    gn_u64 slot = job.is_fused ? free_slot() : 0, due = step + rng.below(r.cfg.delay / 2 + 1);
    if (job.is_fused) fused[static_cast<gn_u32>(slot)] = id;
    auto block = [&](gn_u32 b) { return job.data->p + b * GN_BLOCK; };
    for (gn_u32 b = 0; read && b < job.blocks; ++b)
      fill_block(block(b), job.vba + b, data_of(job.q).version[job.vba + b]);
    bool two = false;
    for (gn_u32 b = 0; b < job.blocks; b += two ? 2 : 1) {
      // Now and then two blocks of an answer in one descriptor, but never the last.
      two = job.is_fused && b + 2 < job.blocks && rng.one_of(2);
      hca::down_desc d = descriptor(read ? hca::DOWN_TO_DEVICE : hca::DOWN_TO_HOST, job.q, GN_BLOCK);
      d.w[1] = job.data->at(b * GN_BLOCK);
      d.w[2] = job.address + b * GN_BLOCK;
      d.w[3] = static_cast<gn_u64>(job.key) << 31 | (id << 8 | b);
      if (read)
        d.w[5] = static_cast<gn_u64>(hca::DOWN_CHECK_SUM) << 32 |
                 gn_u32(sum_of(block(b)) + (two ? sum_of(block(b + 1)) : 0));
      if (job.is_fused) d.w[5] |= static_cast<gn_u64>(hca::DOWN_PART) << 32 | slot << hca::SLOT_SHIFT;
      if (job.is_fused && b + 1 == job.blocks) {
        gn_u64 response = static_cast<gn_u64>(job.cid) << 32;
        d.w[0] = descriptor(hca::DOWN_FUSED, job.q, GN_BLOCK).w[0];
        d.w[4] = due, d.w[6] = ~0ull >> 1, d.w[7] = response;
        d.w[5] |= static_cast<gn_u64>(job.copies + 1) << hca::PARTS_SHIFT;
      }
      if (two) d.w[4] = job.data->at((b + 1) * GN_BLOCK), d.w[5] |= static_cast<gn_u64>(hca::DOWN_TWO) << 32;
      push(d);
      ++job.copies, ++queue.copies;
    }
  }

  static gn_u32 sum_of(const gn_u8* block) {
    const gn_u32* w = reinterpret_cast<const gn_u32*>(block);
    gn_u32 sum = 0;
    for (gn_u32 i = 0; i < BLOCK_WORDS; ++i) sum += hca::sum_mix(w[i] + (i + 1) * hca::SUM_STEP);
    return sum;
  }

  void work_on_jobs() {
    bool holds = r.cfg.strange && step_strange(*this);
    if (r.cfg.bursts && step > open_until) {
      if (jobs.size() < SLOTS && step - last_arrival < 3000) return;
      open_until = step + 300;  // no more will come: now answer these, and what they make room for, at once
    }
    for (auto at = jobs.begin(); at != jobs.end();) {
      Job& job = *at->second;
      if (queues[job.q].broken && !job.copies) {
        at = jobs.erase(at);
        continue;
      }
      if (job.due <= step && !job.copies) {
        if (!job.started) {
          start(at->first, job);
        } else if (!holds) {
          tell_head(job.q, job.number);
          push_response(job.q, job.cid, 0, 0);
          at = jobs.erase(at);
          continue;
        }
      }
      ++at;
    }
  }

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
      // One that was executed before the queue pair broke has succeeded, as the engine says of it, though it
      // is told behind an error.
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
    // Amid copies, if there are any.
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
