// SPDX-License-Identifier: Apache-2.0 OR MIT
// The peer of peer.hpp: SSDs and clients go over to the next map, and what is judged by it.
#pragma once
#include "peer.hpp"

namespace harness {

/// Judges epoch and place as the firmware does.
inline bool Peer::refuses_map(const Job& job) {
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
inline void Peer::move_maps() {
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
inline uint64_t Peer::pair_at(gn_u32 epoch) const {
  return r.cfg.map_at + 5000 + (epoch - EPOCH) / 2 * (uint64_t)PAIR;
}

/// As the host does it: fills the table of the next map, some places a step, in no order; then says so.
inline void Peer::move_clients() {
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

/// Whether all members of one epoch have the write (rule 5a).
inline bool Peer::is_whole(gn_u32 vba, gn_u32 version) const {
  for (gn_u32 epoch = EPOCH; epoch <= r.last_epoch(); ++epoch) {
    bool all = true;
    for (gn_u32 q = 0; q < r.cfg.ssds; ++q)
      all &= !r.is_member(epoch, vba, q, false) || queues[q].version[vba] == version;
    if (all) return true;
  }
  return false;
}

/// Acknowledged versions that a serving member of the last map does not have.
inline unsigned Peer::missing_copies() const {
  unsigned missing = 0;
  for (size_t i = 0; (r.cfg.map_at || r.cfg.breaks) && i < r.versions.size(); ++i) {
    gn_u32 vba = SHARED_BLOCKS + static_cast<gn_u32>(i);
    for (gn_u32 q = 0; q < r.cfg.ssds && r.versions[i] != ~0u; ++q)
      if (r.is_member(r.last_epoch(), vba, q, true) && queues[q].version[vba] != r.versions[i]) ++missing;
  }
  return missing;
}

}  // namespace harness
