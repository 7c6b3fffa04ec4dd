// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory keys: may this queue pair touch these bytes?
#pragma once
#include "fabric/hca/abi.h"

namespace gn { namespace hca {

// An access to memory: by which key, to which bytes, and the rights it needs (ACCESS_*).
struct memory_access {
  gn_u32 key;
  gn_u64 addr, bytes;
  gn_u32 rights;
};

// Whether its key gives protection domain `pd` the access `x`. The answer is no for an absent, stale or
// foreign key, for missing rights, and for a range that exceeds the region by one byte.
GN_DEV bool key_opens(const agent_args& a, gn_u32 pd, const memory_access& x) {
  gn_u32 index = x.key >> 8;
  if (index >= a.mr_count) return false;
  // Load all fields at once: one after the other, each load would wait for the previous one.
  const mr_ctx& m = a.mrs[index];
  gn_u32 invalid = mem::ld_relaxed_gpu(&m.invalid), its_key = m.key, its_pd = m.pd, rights = m.access;
  gn_u64 length = m.bytes, offset = x.addr - m.base;  // beyond any length where it is below the base
  return !invalid & (length != 0) & (its_key == x.key) & (its_pd == pd) &
         ((rights & x.rights) == x.rights) & (offset <= length) & (length - offset >= x.bytes);
}

// Invalidates a key of protection domain `pd`. Returns false if there is no such key, or if it was
// invalidated before. The engine waits for transfers in flight that use it (fabric/src/hca/agent/quiesce.rs),
// before the request completes.
GN_DEV bool key_invalidate(const agent_args& a, gn_u32 pd, gn_u32 key) {
  gn_u32 index = key >> 8;
  if (index >= a.mr_count) return false;
  mr_ctx& m = a.mrs[index];
  if (m.bytes == 0 || m.key != key || m.pd != pd) return false;
  // of two requests for one key, exactly one is the first
  bool is_first = mem::exch_acqrel_gpu(&a.mrs_home[index].invalid, 1u) == 0;
  mem::st_relaxed_gpu(&m.invalid, 1u);  // in this block's copy too
  return is_first;
}

// Copies what other blocks have invalidated into this block's table. The whole warp calls it. An invalidation
// completes only after every block has done so: each answers a ping after it.
GN_DEV void keys_refresh(const agent_args& a) {
  if (a.mrs == a.mrs_home) return;
  for (gn_u32 i = lane_id(); i < a.mr_count; i += 32)
    if (mem::ld_acquire_gpu(&a.mrs_home[i].invalid)) mem::st_relaxed_gpu(&a.mrs[i].invalid, 1u);
  __syncwarp();
}

}}  // namespace gn::hca
