// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory keys: may this queue pair touch these bytes?
#pragma once
#include "fabric/hca/abi.h"

namespace gn { namespace hca {

// Whether `key` opens `bytes` at `addr` with `access` for protection domain `pd`. An absent, stale or foreign
// key, a range that leaves the region by one byte, and missing rights are all the same "no".
GN_DEV bool key_opens(const agent_args& a, gn_u32 pd, gn_u32 key, gn_u64 addr, gn_u64 bytes, gn_u32 access) {
  gn_u32 index = key >> 8;
  if (index >= a.mr_count) return false;
  // All at once: one after the other each would wait for the one before it.
  const mr_ctx& m = a.mrs[index];
  gn_u32 invalid = mem::ld_relaxed_gpu(&m.invalid), its_key = m.key, its_pd = m.pd, rights = m.access;
  gn_u64 length = m.bytes, offset = addr - m.base;  // beyond any length where it is below the base
  return !invalid & (length != 0) & (its_key == key) & (its_pd == pd) & ((rights & access) == access) &
         (offset <= length) & (bytes <= length - offset);
}

// Makes a key of protection domain `pd` open nothing any more; says no where there is none, or where it was
// invalidated before. What is under way with it is waited for by the engine (fabric/src/hca/agent/settle.rs),
// before the request completes.
GN_DEV bool key_invalidate(const agent_args& a, gn_u32 pd, gn_u32 key) {
  gn_u32 index = key >> 8;
  if (index >= a.mr_count) return false;
  mr_ctx& m = a.mrs[index];
  if (m.bytes == 0 || m.key != key || m.pd != pd) return false;
  // of two requests for one key one is the first
  bool is_first = mem::exch_acqrel_gpu(&a.mrs_home[index].invalid, 1u) == 0;
  mem::st_relaxed_gpu(&m.invalid, 1u);  // in this block's copy too
  return is_first;
}

// Brings what other blocks have invalidated into this block's copy; the whole warp. An invalidation does not
// complete before every block has done so: each answers a ping after it.
GN_DEV void keys_refresh(const agent_args& a) {
  if (a.mrs == a.mrs_home) return;
  for (gn_u32 i = lane_id(); i < a.mr_count; i += 32)
    if (mem::ld_acquire_gpu(&a.mrs_home[i].invalid)) mem::st_relaxed_gpu(&a.mrs[i].invalid, 1u);
  __syncwarp();
}

}}  // namespace gn::hca
