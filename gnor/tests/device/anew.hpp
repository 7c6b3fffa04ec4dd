// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The CPU's part of queue pairs that are made anew beside the clients (gnor/src/anew.rs), and SSDs that come
// back. Some break again while that is under way, refuse the Connect, or answer late.
#pragma once
#include "peer.hpp"

namespace harness {

inline gn_u32 number_of(const Peer& p, gn_u32 ssd, gn_u32 set) { return ssd + set * p.r.cfg.ssds; }

/// Everything of the queue's last life is over, and its completions are on their way.
inline bool is_over(const Peer& p, gn_u32 n) {
  const Peer::Queue& queue = p.queues[n];
  for (const auto& job : p.jobs)
    if (job.second->q == n) return false;
  return queue.broken && !queue.copies && queue.sent.empty() && queue.flush_known &&
         queue.flush_from == queue.flush_to;
}

/// The device has read what this set's last life has told it, as far as that was an answer.
inline bool is_taken(const Peer& p, gn_u32 ssd, gn_u32 set) {
  const gn_u32* record = record_of(p.r.c, number_of(p, ssd, set));
  return !p.anew[ssd].answered[set] || __atomic_load_n(record + RECORD_TAKEN, __ATOMIC_ACQUIRE);
}

/// Fills queues as the CPU does: receives, and a Connect whose capsule is in the next block.
inline void fill_queues(Peer& p, gn_u32 n) {
  channel& c = p.r.c;
  gn_u8* queue = reinterpret_cast<gn_u8*>(queue_of(c, n));
  memset(queue, 0, SQ_AT + c.depth * QUEUE_BYTES_EACH);
  gn_u64 responses = queue_of(c, n) + SQ_AT + c.depth * RECV_AT_EACH;
  for (gn_u32 i = 0; i < c.depth; ++i) {
    gn_u64 to = responses + i * 16;
    gn_u32 seg[4] = {be32(16u), be32(c.queue_lkey), be32((gn_u32)(to >> 32)), be32((gn_u32)to)};
    memcpy(queue + SQ_AT + c.depth * RQ_AT_EACH + i * 16, seg, 16);
  }
  gn_u64 capsule = queue_of(c, n) + SQ_AT + 64;
  gn_u32 words[4] = {CID_CONNECT << 16 | NVME_FLAGS_SGL << 8 | NVME_FABRICS, 1, 0, 0};
  memcpy(queue + SQ_AT + 64, words, 16);
  gn_u32 wqe[8] = {be32(mlx5::OP_SEND), be32((c.first_qpn + n) << 8 | 2u), 0, 0,
                   be32(64u), be32(c.queue_lkey), be32((gn_u32)(capsule >> 32)), be32((gn_u32)capsule)};
  memcpy(queue + SQ_AT, wqe, 32);
}

/// Clears all doorbells.
inline void silence(Peer& p, gn_u32 n) {
  gn_u64* word = reinterpret_cast<gn_u64*>(p.r.c.uars_addr + n * UAR_BYTES);
  for (gn_u32 i = 0; i < UAR_BYTES / 8; ++i) __atomic_store_n(word + i, 0, __ATOMIC_RELAXED);
}

inline void ask_anew(Peer& p, Peer::Anew& x, gn_u32 ssd) {
  gn_u32 n = number_of(p, ssd, 1 - x.set);
  silence(p, n);
  x.answered[1 - x.set] = false;
  p.queues[n].closed = true;
  hca::down_desc d = p.descriptor(hca::DOWN_QP_ANEW, n, 0);
  d.w[3] = ++p.last_tag;
  p.push(d);
  x.tag = p.last_tag;
  x.state = Peer::Anew::ASKED;
}

/// The HCA has begun anew, and looks at no work request of before. So the queues are filled, and the
/// Connect is posted.
inline void told_anew(Peer& p, gn_u32 n, gn_u32 tag) {
  Peer::Anew& x = p.anew[n % p.r.cfg.ssds];
  if (x.state != Peer::Anew::ASKED || x.tag != tag) {
    ++p.unexpected;
    return;
  }
  Peer::Queue& queue = p.queues[n];
  queue.closed = queue.broken = queue.reported = queue.flush_known = false;
  queue.arrived = queue.commands = queue.head = 0;
  x.state = Peer::Anew::CONNECTS;
  fill_queues(p, n);
  gn_u32* record = record_of(p.r.c, n);
  __atomic_store_n(record + mlx5::RCV_DBR, be32(1), __ATOMIC_RELEASE);
  __atomic_store_n(record + mlx5::SND_DBR, be32(1), __ATOMIC_RELEASE);
  __atomic_store_n(doorbell_of(p.r.c, n), mlx5::doorbell_value(1, p.r.c.first_qpn + n), __ATOMIC_RELEASE);
}

/// Late completions for the old set: flushed blocks, and some that no engine sends any more.
inline void push_late(Peer& p, gn_u32 n) {
  for (gn_u32 k = p.rng.below(4); k--;) {
    bool error = p.rng.one_of(2);
    gn_u32 opcode = error ? mlx5::CQE_REQ_ERR : mlx5::CQE_REQ;
    p.push_cqe(n, opcode, error ? (gn_u32)mlx5::SYND_FLUSH : 0u, p.rng.below(64));
  }
}

/// The Connect has reached its SSD.
inline void on_connect(Peer& p, gn_u32 n) {
  Peer::Anew& x = p.anew[n % p.r.cfg.ssds];
  gn_u32 dice = p.rng.below(6);
  p.tell_head(n, p.queues[n].commands);
  if (dice == 0) {
    p.break_queue_pair(n);  // once more, before it has answered
    x.state = Peer::Anew::FAILED;
  } else if (dice == 1) {
    p.push_response(n, CID_CONNECT, 0x182, 0);
    x.answered[1 - x.set] = true;
    p.break_queue_pair(n);
    x.state = Peer::Anew::FAILED;
  } else {
    p.push_response(n, CID_CONNECT, 0, 0x10000);
    push_late(p, number_of(p, n % p.r.cfg.ssds, x.set));
    x.set = 1 - x.set;
    x.answered[x.set] = true;
    x.state = Peer::Anew::WHOLE;
    // Sometimes at once, before the device knows of it.
    x.at = p.step + (dice == 2 || p.r.cfg.fills_unread ? 0 : p.rng.below(3000));
    ++p.made_anew;
  }
}

inline void step_anew(Peer& p) {
  // A host that does not wait for the device is quick in all else, too: so its mistake shows.
  bool hasty = p.r.cfg.fills_unread;
  for (gn_u32 ssd = 0; ssd < p.r.cfg.break_ssds; ++ssd) {
    Peer::Anew& x = p.anew[ssd];
    gn_u32 used = number_of(p, ssd, x.set), other = number_of(p, ssd, 1 - x.set);
    if (p.step < x.at) continue;
    switch (x.state) {
      case Peer::Anew::WHOLE:
        if (p.breaks == 0 || (!hasty && !p.queues[used].copies && p.step < x.at + 300)) break;
        --p.breaks;
        p.break_queue_pair(used);
        x.state = Peer::Anew::BROKEN;
        break;
      case Peer::Anew::BROKEN:
        if (is_over(p, used)) x.at = p.step + (hasty ? 0 : p.rng.below(2000)), x.state = Peer::Anew::AWAY;
        break;
      case Peer::Anew::FAILED:
        if (is_over(p, other)) x.at = p.step + (hasty ? 0 : p.rng.below(500)), x.state = Peer::Anew::AWAY;
        break;
      case Peer::Anew::AWAY:
        if (hasty || (is_taken(p, ssd, 0) && is_taken(p, ssd, 1))) ask_anew(p, x, ssd);
        break;
      case Peer::Anew::ASKED:
      case Peer::Anew::CONNECTS: break;
    }
  }
}

}  // namespace harness
