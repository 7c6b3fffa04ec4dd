// SPDX-License-Identifier: Apache-2.0 OR MIT
// The peer of peer.hpp: checks of commands that arrive, and which of them are refused.
#pragma once
#include "peer.hpp"

namespace harness {

/// Every command has a receive for its response posted when it is sent.
inline void Peer::check_credit(gn_u32 q) {
  const gn_u32* record = record_of(r.c, q);
  gn_u32 posted = be32(__atomic_load_n(record + mlx5::RCV_DBR, __ATOMIC_ACQUIRE));
  if (((posted - ++queues[q].arrived) & 0xffff) >= 0x8000) ++no_receive;
}

/// First come, first served: a command is sent before all whose lanes asked for them when its own lane had
/// asked.
inline void Peer::check_order(gn_u32 q, gn_u32 cid) {
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
inline gn_u32 Peer::check_head(gn_u32 q) {
  Queue& queue = queues[q];
  if (++queue.commands - queue.head >= NVME_ENTRIES_EACH * r.cfg.depth) ++beyond_the_head;
  return queue.commands;
}

inline void Peer::on_capsule(gn_u32 q, const gn_u32* w, gn_u32 bytes) {
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

}  // namespace harness
