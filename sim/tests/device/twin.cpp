// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Plays traces of requests and completions through the device headers, one warp on the CPU execution, and
// prints what it sends. `sim/tests/twin.rs` makes the traces from the simulator's initiator and compares.
//
//   in    channel SSDS DEPTH SHARING        a new channel; SHARING 1: by_warp, 0: by_device
//         volume VID CLIENT FACTOR REPLICAS CHUNK_SHIFT LEASE BLOCKS EPOCH GROUPS WIDTH PLACE..
//         ask LANE OPCODE VBA BLOCKS ADDRESS KEY
//         answer SSD CID STATUS DW0 DW1 | retire SSD INDEX | fail SSD OPCODE SYNDROME
//         run                              passes until one changes nothing
//   out   of each run: "sent SSD INDEX SIGNALLED CAPSULE", "ended LANE STATUS DW0 DW1", then "quiet"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <string>
#include <vector>

#include "fabric/mlx5.h"
#include "gnor/connect.cuh"
#include "gnor/io.cuh"

namespace {

using namespace gn;

constexpr gn_u32 FULL = 0xffffffffu, WARP = 32, FIRST_QPN = 0x100, QUEUE_KEY = 0x109;

struct Memory {
  gn_u8* p;
  explicit Memory(size_t n) {
    void* q = nullptr;
    if (posix_memalign(&q, 4096, n)) abort();
    p = static_cast<gn_u8*>(memset(q, 0, n));
  }
  ~Memory() { free(p); }
  Memory(const Memory&) = delete;
  gn_u64 at(size_t offset = 0) const { return reinterpret_cast<gn_u64>(p + offset); }
};

struct Ask {
  gn_u32 opcode, vba, blocks;
  gn_u64 address;
  gn_u32 key;
};

struct Lane {
  io x{};
  bool runs = false;
  size_t next = 0;
  std::vector<Ask> asks;
};

struct Twin {
  gn_u32 ssds, depth, cq_log = 0;
  bool alone;
  std::unique_ptr<Memory> queues, uars, capsules, connect, cq, waiting, parked, places;
  std::vector<queue_pair> qps;
  channel c{};
  volume v{};
  connect_args connects{};
  Lane lanes[WARP];
  std::vector<gn_u32> seen;       // send blocks that were printed, by SSD
  std::vector<gn_u32> received;   // responses, by SSD
  gn_u32 completions = 0;

  Twin(gn_u32 ssds_, gn_u32 depth_, bool alone_) : ssds(ssds_), depth(depth_), alone(alone_), qps(ssds_) {
    while (1u << cq_log < 2 * ssds * depth + 1) ++cq_log;
    auto memory = [](size_t bytes) { return std::make_unique<Memory>(bytes); };
    queues = memory(2 * ssds * (SQ_AT + depth * QUEUE_BYTES_EACH));
    uars = memory(2 * ssds * UAR_BYTES);
    capsules = memory(SLOTS * 64), connect = memory(ssds * 1024), cq = memory(64ul << cq_log);
    waiting = memory(ssds * SLOTS), parked = memory(SLOTS * PARKED_BYTES);
    for (gn_u32 i = 0; i < 1u << cq_log; ++i) cq->p[i * 64 + 63] = 0xf1;
    c.cq_addr = cq->at(), c.capsules_addr = capsules->at(), c.connect_addr = connect->at();
    c.queues_addr = queues->at(), c.uars_addr = uars->at(), c.parked_addr = parked->at();
    c.waiting_addr = waiting->at(), c.qps_addr = reinterpret_cast<gn_u64>(qps.data());
    c.queue_lkey = QUEUE_KEY, c.ssds = ssds, c.first_qpn = FIRST_QPN, c.cq_log = cq_log, c.qid = 1;
    c.depth = depth;
    seen.assign(ssds, 0), received.assign(ssds, 0);
    connects.channel_ = &c;
    connects.timeout_ns = ~0ull >> 1;
  }

  gn_u32 rung(gn_u32 q) const { return be32(record_of(c, q)[mlx5::SND_DBR]); }

  void complete(gn_u32 q, gn_u32 opcode, gn_u32 counter, gn_u32 syndrome) {
    mlx5::cqe64 e{};
    gn_u32 owner = completions >> cq_log & 1;
    e.sop_qpn = be32(FIRST_QPN + q), e.timestamp[1] = be32(syndrome);
    e.counter_own = be32(counter << 16 | opcode << 4 | owner);
    memcpy(cq->p + (completions++ & ((1u << cq_log) - 1)) * 64, &e, sizeof e);
  }

  void answer(gn_u32 q, gn_u32 cid, gn_u32 status, gn_u32 dw0, gn_u32 dw1) {
    gn_u32 at = received[q]++ & 0xffffu, words[4] = {dw0, dw1, q << 16, status << 17 | cid};
    memcpy(reinterpret_cast<gn_u8*>(queue_of(c, q)) + SQ_AT + depth * RECV_AT_EACH + (at & (depth - 1)) * 16,
           words, sizeof words);
    complete(q, mlx5::CQE_RESP_SEND, at, 0);
  }

  /// Prints each SEND since the last call. Its capsule is still the one that was sent: the command ends in a
  /// later call of take_completions.
  void print_sent() {
    for (gn_u32 q = 0; q < ssds; ++q)
      for (; (seen[q] & 0xffffu) != rung(q); ++seen[q]) {
        const gn_u32* wqe = reinterpret_cast<const gn_u32*>(queue_of(c, q) + SQ_AT +
                                                            (gn_u64)(seen[q] & (depth - 1)) * mlx5::WQEBB);
        const gn_u8* capsule =
            reinterpret_cast<const gn_u8*>(static_cast<gn_u64>(be32(wqe[6])) << 32 | be32(wqe[7]));
        printf("sent %u %u %u ", q, be32(wqe[0]) >> 8 & 0xffffu, be32(wqe[2]) & mlx5::CE_CQ_UPDATE ? 1 : 0);
        for (int i = 0; i < 64; ++i) printf("%02x", capsule[i]);
        printf("\n");
      }
  }
};

/// The loop of a kernel, until a pass of it changes nothing.
template <class S>
void passes(Twin& t) {
  Lane& lane = t.lanes[threadIdx.x];
  io x = lane.x;
  for (bool quiet = false; !quiet;) {
    bool changed = false;
    if (!lane.runs && lane.next < lane.asks.size()) {
      const Ask& a = lane.asks[lane.next++];
      x = io_make(t.v, a.opcode, {a.vba, a.blocks}, io_memory{a.address, a.key}, 0);
      lane.runs = changed = true;
    }
    gn_u32 sent = x.sent, attempt = x.attempt;
    io_stage<S>(t.c, t.v, lane.runs, x, {FULL, threadIdx.x});
    changed |= x.sent != sent || x.attempt != attempt || x.cid != IO_NONE;
    io_commit<S>(t.c, FULL, x);
    __syncwarp();
    if (lane_id() == 0) t.print_sent();
    __syncwarp();
    changed |= take_completions<S>(t.c, FULL) != 0;
    __syncwarp();
    if (lane_id() == 0) t.print_sent();
    attempt = x.attempt;
    bool ended = io_finished<S>(t.c, t.v, FULL, lane.runs, x);
    if (ended) printf("ended %u %x %x %x\n", threadIdx.x, x.status, (gn_u32)x.dw0, x.dw1);
    changed |= ended || x.attempt != attempt;
    if (ended) lane.runs = false;
    quiet = !__any_sync(FULL, changed);
  }
  lane.x = x;
}

simt::Options options() {
  simt::Options o;
  o.preempt = 0;
  o.deadline_ns = 60000000000ull;
  return o;
}

/// Answers every Connect with success.
void connect_them(Twin& t) {
  auto step = [&t] {
    bool any = false;
    for (gn_u32 q = 0; q < t.ssds; ++q)
      if (t.rung(q) == 1 && !t.received[q]) {
        const gn_u8* capsule = t.capsules->p;
        for (gn_u32 cid = 0; cid < SLOTS; ++cid) {
          gn_u64 data;
          memcpy(&data, capsule + cid * 64 + 24, 8);
          if (data == t.c.connect_addr + q * 1024) t.answer(q, cid, 0, 1, 0);
        }
        any = true;
      }
    return any;
  };
  simt::launch_with_host({1, WARP}, options(), {}, [&t] { connect_all(t.connects); }, step);
  for (gn_u32 q = 0; q < t.ssds; ++q) {
    if (t.connects.status[q] != GN_OK || t.rung(q) != 1) printf("Connect to %u failed\n", q);
    t.seen[q] = 1;
  }
}

void run(Twin& t) {
  if (t.alone) simt::launch(1, WARP, options(), [&t] { passes<by_warp>(t); });
  else simt::launch(1, WARP, options(), [&t] { passes<by_device>(t); });
  printf("quiet\n");
}

gn_u64 number() {
  char word[32];
  if (scanf("%31s", word) != 1) exit(3);
  return strtoull(word, nullptr, 16);
}

gn_u32 small() { return static_cast<gn_u32>(number()); }

void read_volume(Twin& t) {
  volume& v = t.v;
  v.vid = static_cast<gn_u16>(small()), v.client = static_cast<gn_u16>(small());
  v.factor = number();
  v.replicas = static_cast<gn_u8>(small()), v.chunk_shift = static_cast<gn_u8>(small());
  v.lease_epoch = small(), v.capacity_blocks = small(), v.map = small();
  v.groups = small(), v.width = small();
  v.next_sequence = 1, v.writer = 1;
  t.places = std::make_unique<Memory>(2 * v.groups * v.width * 2);
  for (gn_u32 i = 0; i < v.groups * v.width; ++i)
    reinterpret_cast<gn_u16*>(t.places->p)[i] = static_cast<gn_u16>(small());
  v.places_addr = t.places->at();
}

}  // namespace

int main() {
  std::unique_ptr<Twin> t;
  char word[32];
  while (scanf("%31s", word) == 1) {
    std::string what = word;
    if (what == "channel") {
      gn_u32 ssds = small(), depth = small(), alone = small();
      t = std::make_unique<Twin>(ssds, depth, alone != 0);
      connect_them(*t);
    } else if (!t) {
      return 2;
    } else if (what == "volume") {
      read_volume(*t);
    } else if (what == "ask") {
      gn_u32 lane = small();
      Ask a;
      a.opcode = small(), a.vba = small(), a.blocks = small(), a.address = number(), a.key = small();
      t->lanes[lane % WARP].asks.push_back(a);
    } else if (what == "answer") {
      gn_u32 q = small(), cid = small(), status = small(), dw0 = small(), dw1 = small();
      t->answer(q, cid, status, dw0, dw1);
    } else if (what == "retire") {
      gn_u32 q = small();
      t->complete(q, mlx5::CQE_REQ, small(), 0);
    } else if (what == "fail") {
      gn_u32 q = small(), opcode = small();
      t->complete(q, opcode, 0, small());
    } else if (what == "run") {
      run(*t);
    } else {
      return 2;
    }
  }
  return 0;
}
