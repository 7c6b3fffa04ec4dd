// SPDX-License-Identifier: Apache-2.0 OR MIT
// The peer of peer.hpp: what an SSD does with a command until it is answered.
#pragma once
#include "peer.hpp"

namespace harness {

inline void Peer::on_copied(const Entry& e) {
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
inline void Peer::on_fused_done(const Entry& e) {
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
inline gn_u32 Peer::free_slot() {
  gn_u32 slot = rng.below(4);  // few, so that they are used again
  while (fused.count(slot)) slot = (slot + 1) % hca::FUSED_SLOTS;
  return slot;
}

/// An older write does not overwrite a newer one, as with the real SSD.
inline void Peer::store(Job& job) {
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

inline void Peer::start(gn_u32 id, Job& job) {
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

inline gn_u32 Peer::sum_of(const gn_u8* block) {
  const gn_u32* w = reinterpret_cast<const gn_u32*>(block);
  gn_u32 sum = 0;
  for (gn_u32 i = 0; i < BLOCK_WORDS; ++i) sum += hca::sum_mix(w[i] + (i + 1) * hca::SUM_STEP);
  return sum;
}

inline void Peer::work_on_jobs() {
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

}  // namespace harness
