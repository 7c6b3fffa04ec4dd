// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What the channel's CPU side builds, by hand: queues, an agent's contexts, a channel, a volume, a pool. And
// the data that a block of the volume has: every word tells volume, block, version and position.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include "fabric/hca/agent.cuh"
#include "gnor/connect.cuh"
#include "gnor/async.cuh"
#include "gnor/io.cuh"

namespace harness {

using namespace gn;

constexpr gn_u32 FIRST_QPN = 0x100, LAUNCH = 1, VID = 0x51, EPOCH = 3;
constexpr gn_u32 POOL_KEY = 0 << 8 | 7, QUEUE_KEY = 1 << 8 | 9;
constexpr gn_u32 UP_ENTRIES = 64, DOWN_ENTRIES = 32, SHARED_BLOCKS = 64, OWN_BLOCKS = 4;
constexpr gn_u32 BLOCK_WORDS = GN_BLOCK / 4;

struct Config {
  uint64_t seed = 1;
  gn_u32 ssds = 2, replicas = 1, chunk_shift = 1;
  gn_u32 depth = 64;                 // of the queues of each SSD
  gn_u32 blocks = 1, warps = 2;      // of the client grid; warps a block
  gn_u32 rounds = 3, max_blocks = 4;
  // one front end and a mover; from 12 on four front ends, from 16 on eight
  gn_u32 agent_warps = 4;
  gn_u32 ring_groups = 1;                  // of a block of the agent; the second one has no ring
  gn_u32 pool_blocks = 64;           // of 64 KiB
  gn_u32 timeout = 0;                // host steps; 0 = the clients wait for ever
  gn_u32 delay = 40;                 // host steps that a command takes at most
  gn_u32 slow = 1;                   // the first SSD takes so many times as long for a read
  unsigned ack_1_of = 1;             // host steps, in one of which a queue pair's SENDs are acknowledged
  unsigned lost_1_of = 0;            // so many commands are answered only after a long time
  unsigned refuse_1_of = 0;          // so many reads are refused
  unsigned break_at = 0;             // host step at which `break_ssds` queue pairs break
  gn_u32 break_ssds = 0;
  gn_u32 breaks = 0;                 // so often one of them breaks and is made anew
  // what the host must not do: fill a set before the device has read what its last life has told
  bool fills_unread = false;
  // host step from which on SSDs, and then the clients, change to the next map. The first SSD has no place
  // there, and another one may fill in its place
  unsigned map_at = 0;
  // number of maps that follow each other, in pairs. The table of each pair's second map is the one that was
  // in use before the first, and is filled at once
  gn_u32 maps = 1;
  // what the host must not do: fill the table in use; name a table before it is filled
  bool fills_in_use = false, word_first = false;
  bool comes_in = false;   // in some maps an SSD comes in for another one
  unsigned clock_shift = 0;          // of a host step in ns
  unsigned preempt = 8;
  // for the last two: one block, and one warp of clients
  enum Sharing { DEVICE, BLOCK, WARP } sharing = DEVICE;
  bool in_smem = false;                 // their channel lies in shared memory meanwhile
  bool reads_survive = false;        // every block has a replica on a queue pair that does not break
  // the pool begins with one block, and the host gives it more, or refuses
  bool grows = false, refuses = false;
  // some threads read and write alone, without the others of their warps
  bool threads_alone = false;
  // requests are handed to the channel, each ends in a callback that begins the next
  bool async = false;
  bool callback_waits = false;
  bool weak = false;
  bool batch = false;                // by the batch's calls, not by the steps below them
  bool leaves = false;               // warps end before their last requests
  bool parts = false;                // requests use a part of their buffer
  // every second page of the pool is taken, except in some blocks, so that buffers come in pieces
  bool fragments = false;
  bool bursts = false;               // commands are answered when the queues are full
  bool fused = false;              // reads are answered by the agent, data and response together
  bool unordered = false;            // data waits in the agent until its queue pair executes a DUMP
  bool trusts = false;               // the clients execute none all the same
  // the peer checks that commands are sent in the order in which they arrive
  bool in_order = false;
  gn_u32 closed_rounds = 12;         // requests of a lane then
  // every lane begins its next request when its last one has ended; the steps of each are kept
  bool saturates = false;
  bool writes = false;               // what the lanes do then
  // the first SSD's responses name what is not in flight on its queue, once, when every lane waits
  bool strange = false;
  bool instant = false;              // answer in the step in which a command is seen, without moving data
};

inline gn_u32 mix(gn_u32 x) { return hca::sum_mix(x + 0x1234567u); }

inline gn_u32 word_of(gn_u32 vba, gn_u32 version, gn_u32 i) {
  return i == 0 ? version : mix(mix(VID << 16 ^ vba) ^ mix(version) ^ i);
}

inline void fill_block(void* to, gn_u32 vba, gn_u32 version) {
  gn_u32* w = static_cast<gn_u32*>(to);
  for (gn_u32 i = 0; i < BLOCK_WORDS; ++i) w[i] = word_of(vba, version, i);
}

/// Whether the block is whole and `vba`'s; its version is its first word.
inline bool is_block(const void* from, gn_u32 vba) {
  const gn_u32* w = static_cast<const gn_u32*>(from);
  for (gn_u32 i = 1; i < BLOCK_WORDS; ++i)
    if (w[i] != word_of(vba, w[0], i)) return false;
  return true;
}

/// Zeroed memory on a page border.
struct Memory {
  gn_u8* p = nullptr;
  size_t bytes = 0;
  explicit Memory(size_t n) : bytes(n) {
    void* q = nullptr;
    if (posix_memalign(&q, 4096, n ? n : 1)) abort();
    p = static_cast<gn_u8*>(memset(q, 0, n));
  }
  ~Memory() { free(p); }
  Memory(const Memory&) = delete;
  gn_u64 at(size_t offset = 0) const { return reinterpret_cast<gn_u64>(p + offset); }
};

struct Rng {
  uint64_t s;
  explicit Rng(uint64_t seed) : s(seed * 0x9e3779b97f4a7c15u | 1) { for (int i = 0; i < 4; ++i) next(); }
  uint32_t next() {
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    return static_cast<uint32_t>(s >> 32);
  }
  uint32_t below(uint32_t n) { return n ? next() % n : 0; }
  bool one_of(uint32_t n) { return n && below(n) == 0; }
};

inline gn_u32 log2_up(gn_u32 n) {
  gn_u32 log = 0;
  while ((1u << log) < n) ++log;
  return log;
}

/// Times at which a lane asked for its command to be sent: before its first `io_commit`, and after it. The
/// clock counts such events. The peer copies `before` to `sent` when it sees the command, so a later
/// command with the same id has another `before`.
struct Arrival {
  gn_u32 ssd = 0, before = 0, behind = 0, sent = 0;
};

struct Harness {
  Config cfg;
  gn_u32 threads, cq_log;
  Memory queues, uars, capsules, connect, cq, rings, pool_memory, pool_words, places, waiting_data,
      parked_requests, waiting;
  std::vector<queue_pair> qps;
  std::vector<dumps> qp_dumps;
  std::vector<hca::qp_ctx> qp_ctxs;
  hca::cq_ctx cq_ctx{};
  hca::mr_ctx mrs[2]{};
  hca::ring_ctx ring{};
  hca::fused_slot fused_slots[hca::FUSED_SLOTS]{};
  hca::agent_args agent{};
  channel c{};
  channel* used = &c;                // by the clients
  volume v{};
  connect_args connect_request{};

  // Words between the clients.
  gn_u32 port = 1;                   // of the HCA: in some runs it says that no agent serves it
  gn_u32 connected = 0, warps_done = 0, submitted = 0, called = 0;
  void* chains = nullptr;
  Arrival arrivals[SLOTS];   // by command id
  gn_u32 events = 0;
  // of the threads' own blocks as their owners last wrote them; ~0 where not known
  std::vector<gn_u32> versions;
  gn_u32 in_pieces = 0;           // buffers
  std::vector<gn_u32> steps;      // that each request took, of a run that saturates the channel
  gn_u32 timed = 0;               // entries of it
  gn_u32 wrong_data = 0, wrong_status = 0, leaked = 0, ios = 0, failed_ios = 0, timed_out = 0;

  explicit Harness(const Config& config)
      : cfg(config),
        threads(config.blocks * config.warps * 32),
        cq_log(log2_up(2 * config.ssds * config.depth + (config.breaks ? 1 : 0))),
        queues(2 * config.ssds * queue_bytes(config)),
        uars(2 * config.ssds * UAR_BYTES),
        capsules(SLOTS * 64),
        connect(config.ssds * 1024),
        cq(64u << cq_log),
        rings(UP_ENTRIES * 128 + DOWN_ENTRIES * 64 + 320),
        pool_memory(static_cast<size_t>(config.pool_blocks) * POOL_BLOCK),
        pool_words(config.pool_blocks * 4),
        places(2 * 64 * (4 + 1) * 2),
        waiting_data(config.unordered ? hca::HELD_PLACES * (sizeof(hca::held_ctx) + hca::HELD_BYTES) : 0),
        parked_requests(SLOTS * sizeof(parked)),
        waiting(config.ssds * SLOTS),
        qps(config.ssds),
        qp_dumps(config.ssds),
        qp_ctxs(2 * config.ssds),
        versions(threads * OWN_BLOCKS, 0) {
    for (gn_u32 i = 0; i < 1u << cq_log; ++i) cq.p[i * 64 + 63] = 0xf1;
    for (gn_u32 q = 0; q < 2 * cfg.ssds; ++q) set_up_queue(q);
    mrs[0] = {pool_memory.at(), pool_memory.bytes, POOL_KEY, 7, 1, 0};
    // One region for all queue memory would need one allocation. So the region is the whole address space,
    // which belongs to the owner.
    mrs[1] = {0x1000, ~0ull >> 1, QUEUE_KEY, 7, 1, 0};
    cq_ctx = {cq.at(), (1u << cq_log) - 1, cq_log, 0, 0, 0};
    ring.up_addr = rings.at();
    ring.down_addr = rings.at(UP_ENTRIES * 128);
    gn_u64 words = ring.down_addr + DOWN_ENTRIES * 64;
    ring.up_head_addr = words, ring.down_head_addr = words + 64;
    ring.stop_addr = words + 128, ring.ready_addr = words + 192;
    ring.fused_addr = reinterpret_cast<gn_u64>(fused_slots);
    ring.up_mask = UP_ENTRIES - 1, ring.down_mask = DOWN_ENTRIES - 1;
    agent = {qp_ctxs.data(),  &cq_ctx, mrs, &ring, 2 * cfg.ssds, 2,       1,  FIRST_QPN, LAUNCH, 1, 0,
             cfg.ring_groups, 1,       0,   0,     0,        &cq_ctx, mrs};
    if (cfg.unordered)
      agent.held_addr = waiting_data.at(), agent.held_messages = !cfg.trusts && cfg.seed / 2 % 2;
    set_up_channel();
    set_up_volume();
    connect_request.channel_ = &c;
    connect_request.timeout_ns = ~0ull >> 1;
  }

  static gn_u32 queue_bytes(const Config& config) { return SQ_AT + config.depth * QUEUE_BYTES_EACH; }

  void set_up_queue(gn_u32 q) {
    hca::qp_ctx& x = qp_ctxs[q];
    x = {};
    gn_u64 queue = queues.at(q * queue_bytes(cfg));
    x.sq_addr = queue + SQ_AT, x.rq_addr = queue + SQ_AT + cfg.depth * RQ_AT_EACH,
    x.dbr_addr = queue + DBR_AT;
    x.uar_addr = uars.at(q * UAR_BYTES);
    x.qpn = FIRST_QPN + q, x.state = q < cfg.ssds ? hca::QP_RTS : hca::QP_SPARE;
    x.sq_mask = x.rq_mask = cfg.depth - 1, x.pd = 1;
    if (q >= cfg.ssds) return;
    // Counters start as if the channel and the HCA had come this far. In some runs they wrap, at 16 and at 32
    // bits.
    gn_u32 at = cfg.seed % 3 == 1 ? 0xffffffd8u : 0u, receives = at - (cfg.unordered && at ? 17 : 0);
    queue_pair& y = qps[q];
    y.gate = gate_of(at, at, 0, 0);
    y.publish = y.rung = at & 0xffffu, y.retired = y.completed = at;
    dumps& d = qp_dumps[q];
    d.posted = at - receives, d.arrived = d.covers = d.landed = d.taken = receives;
    x.sq_head = at & 0xffffu, x.rq_head = x.rq_posted = receives;
    gn_u32* record = reinterpret_cast<gn_u32*>(queue + DBR_AT);
    record[mlx5::RCV_DBR] = be32(receives & 0xffffu), record[mlx5::SND_DBR] = be32(at & 0xffffu);
  }

  void set_up_channel() {
    c.cq_addr = cq.at(), c.capsules_addr = capsules.at(), c.connect_addr = connect.at();
    c.queues_addr = queues.at(), c.uars_addr = uars.at();
    c.parked_addr = parked_requests.at(), c.waiting_addr = waiting.at();
    c.qps_addr = reinterpret_cast<gn_u64>(qps.data());
    c.queue_lkey = QUEUE_KEY, c.ssds = cfg.ssds, c.first_qpn = FIRST_QPN, c.cq_log = cq_log, c.qid = 1,
    c.depth = cfg.depth;
    c.dumps_addr = cfg.unordered && !cfg.trusts ? reinterpret_cast<gn_u64>(qp_dumps.data()) : 0;
    c.port_addr = reinterpret_cast<gn_u64>(&port);
    c.stamps = cfg.seed % 2;
    for (gn_u32 b = 0; b < cfg.pool_blocks; ++b) reinterpret_cast<gn_u32*>(pool_words.p)[b] = taken_of(b);
    c.data = {pool_memory.at(),
              pool_words.at(),
              cfg.grows ? rings.at(rings.bytes - 64) : 0,
              cfg.grows ? 1 : cfg.pool_blocks,
              POOL_KEY,
              cfg.pool_blocks,
              0};
  }

  /// Pages of a block that no request owns in this run.
  gn_u32 taken_of(gn_u32 b) const {
    return !cfg.fragments ? 0u : b % 4 == 3 ? (gn_u32)POOL_WHOLE : b % 4 == 2 ? 0u : 0x5555u;
  }

  void set_up_volume() {
    v.factor = mix(static_cast<gn_u32>(cfg.seed)), v.capacity_blocks = SHARED_BLOCKS + threads * OWN_BLOCKS;
    v.places_addr = places.at(), v.next_sequence = 1, v.groups = 64, v.width = 4, v.map = EPOCH,
    v.lease_epoch = 5;
    if (cfg.map_at || cfg.breaks) v.follows = FOLLOWS_REFUSALS | FOLLOWS_BROKEN;
    v.vid = VID, v.client = 2, v.writer = 1;
    v.replicas = static_cast<gn_u8>(cfg.replicas), v.chunk_shift = static_cast<gn_u8>(cfg.chunk_shift);
    for (gn_u32 g = 0; g < 64; ++g) {
      gn_u16* first = maps[0] + g * 4;
      for (gn_u32 k = 0; k < 4; ++k)
        first[k] = static_cast<gn_u16>(((cfg.map_at && g % 2 ? 0 : mix(g)) + k) % cfg.ssds);
      next_row(g, first, maps[1] + g * 4);
      // The same members, each at another place, and one of them missing.
      for (gn_u32 m = 2; m <= MOST_MAPS; ++m)
        for (gn_u32 k = 0; k < 4; ++k)
          maps[m][g * 4 + k] = maps[m - 1][g * 4 + (k < cfg.replicas ? (k + 1) % cfg.replicas : k)];
    }
    for (gn_u32 m = 0; m <= MOST_MAPS; ++m)
      for (gn_u32 g = 0; g < 64; ++g) comers[m][g] = comer(m, g);
    for (gn_u32 i = 0; i < MAP_WORDS; ++i) *word_of_table(0, i) = word_of_map(EPOCH, i);
    v.map = map_word(EPOCH);
  }

  static constexpr gn_u32 MAP_PLACES = 64 * 4, MAP_WORDS = MAP_PLACES + 64, MOST_MAPS = 24;
  /// Whether all members of one epoch's map have this version of a block: the peer's answer.
  bool (*is_whole)(void* peer, gn_u32 vba, gn_u32 version) = nullptr;
  void* peer = nullptr;
  gn_u32 strange = 0;   // responses that name no command in flight on their queue
  gn_u32 split = 0;   // acknowledged blocks of which that is not true; bad

  /// The maps as SSDs know them.
  gn_u16 maps[1 + MOST_MAPS][MAP_PLACES];
  /// Who comes in for which place of each group.
  gn_u16 comers[1 + MOST_MAPS][64];

  /// In two maps of three, an SSD without a place below `replicas` comes in, in some groups.
  gn_u16 comer(gn_u32 m, gn_u32 g) const {
    if (!cfg.comes_in || m % 3 == 2 || mix(g + m / 3) % 4 == 0) return PLACE_NONE;
    for (gn_u32 ssd = 0; ssd < cfg.ssds; ++ssd) {
      bool has = false;
      for (gn_u32 k = 0; k < cfg.replicas; ++k)
        has |= (maps[m][g * 4 + k] & ~(gn_u32)PLACE_FILLING) == ssd && maps[m][g * 4 + k] != PLACE_NONE;
      if (!has) return static_cast<gn_u16>(ssd | (g % 4) << 8);
    }
    return PLACE_NONE;
  }

  /// A word of a table, and what the map of an epoch has there: places, then who comes in.
  gn_u16* word_of_table(gn_u32 table, gn_u32 i) {
    gn_u16* column = reinterpret_cast<gn_u16*>(places.p) + 2 * MAP_PLACES;
    return i < MAP_PLACES ? place_of(table, i) : column + table * 64 + (i - MAP_PLACES);
  }
  gn_u16 word_of_map(gn_u32 epoch, gn_u32 i) const {
    return i < MAP_PLACES ? maps[epoch - EPOCH][i] : comers[epoch - EPOCH][i - MAP_PLACES];
  }

  /// Place number `i` of a table in device memory.
  gn_u16* place_of(gn_u32 table, gn_u32 i) {
    return reinterpret_cast<gn_u16*>(places.p) + table * MAP_PLACES + i;
  }

  gn_u32 last_epoch() const { return EPOCH + (cfg.map_at ? cfg.maps : 0); }

  /// The row of the next map: members that stay, each at another place than before; then one that fills, or a
  /// missing one.
  void next_row(gn_u32 g, const gn_u16* before, gn_u16* after) const {
    gn_u32 n = 0, all = cfg.replicas;
    for (gn_u32 k = 0; k < all; ++k)
      if (before[(k + 1) % all] != 0) after[n++] = before[(k + 1) % all];
    for (gn_u32 ssd = 1; ssd < cfg.ssds && n < all && mix(g) % 8; ++ssd) {
      bool has = false;
      for (gn_u32 k = 0; k < n; ++k) has |= (after[k] & ~(gn_u32)PLACE_FILLING) == ssd;
      if (!has) after[n++] = static_cast<gn_u16>(ssd | PLACE_FILLING);
    }
    while (n < 4) after[n++] = PLACE_NONE;
  }

  /// The word of the map of this epoch.
  gn_u64 map_word(gn_u32 epoch) const {
    gn_u64 comes_in = 0;
    for (gn_u16 comer : comers[epoch - EPOCH]) comes_in |= comer != PLACE_NONE;
    return epoch | static_cast<gn_u64>(table_of_epoch(epoch)) << 32 | comes_in << 48;
  }
  gn_u32 table_of_epoch(gn_u32 epoch) const { return cfg.fills_in_use ? 0 : (epoch - EPOCH) % 2; }

  /// Whether an SSD has a place for the block in the map of this epoch, one that serves or any.
  bool is_member(gn_u32 epoch, gn_u32 vba, gn_u32 ssd, bool serving) const {
    const gn_u16* row = maps[epoch - EPOCH] + (row_of(v, 0, vba) - reinterpret_cast<const gn_u16*>(places.p));
    for (gn_u32 k = 0; k < cfg.replicas; ++k)
      if (row[k] == ssd || (!serving && row[k] == (ssd | PLACE_FILLING))) return true;
    gn_u16 comer = comers[epoch - EPOCH][group_of(v, vba)];
    return !serving && comer != PLACE_NONE && comer >> 8 < cfg.replicas && (comer & 0xff) == ssd;
  }

  /// Describes what is left in the channel after all requests have ended.
  unsigned leftovers(char* what, size_t size) const {
    unsigned n = 0;
    auto note = [&](const char* name, gn_u32 value) {
      if (!value) return;
      if (!n++) snprintf(what, size, "%s = %x", name, value);
    };
    for (gn_u32 w : c.slot_bits) note("slot_bits", w);
    note("slots that are taken or waited for", c.tickets - c.returned);
    for (gn_u32 w : c.parked_bits) note("parked_bits", w);
    for (gn_u32 w : c.orphans) note("orphans", w);
    for (const slot& s : c.slots) note("state", s.state), note("done", s.done), note("status", s.status);
    for (gn_u32 b = 0; b < cfg.pool_blocks; ++b)
      note("pool word", reinterpret_cast<const gn_u32*>(pool_words.p)[b] ^ taken_of(b));
    note("cq_word", c.cq_word & CQ_LOCKED);
    // In the next launch other warps may share the channel.
    for (const queue_pair& q : qps)
      note("unpublished", gate_next(q.gate) - q.publish), note("waiting", gate_waiting(q.gate));
    if (!cfg.threads_alone && !cfg.async)
      for (const queue_pair& q : qps) note("not rung behind its record", q.publish - q.rung);
    for (gn_u32 q = 0; c.dumps_addr && !cfg.break_at && q < cfg.ssds; ++q) {
      const dumps& d = qp_dumps[q];
      note("not looked at", d.arrived - d.taken);
      note("under way", (d.arrived ^ d.covers) | (d.covers ^ d.landed));
      // A response and a DUMP have each returned a block.
      note("blocks lost", gate_next(qps[q].gate) - (qps[q].completed & 0xffffu));
      note("receives lost", (gate_next(qps[q].gate) - d.posted - d.taken) & 0xffffu);
    }
    for (size_t i = 0; i < waiting.bytes; ++i) note("waiting list", waiting.p[i]);
    note("protocol_errors but the strange responses", c.protocol_errors - strange);
    return n;
  }
};

}  // namespace harness
