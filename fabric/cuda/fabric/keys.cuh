// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory keys: may this queue pair touch these bytes?
#pragma once
#include "fabric/abi.h"

namespace gn { namespace hca {

// Whether `key` opens `bytes` at `addr` with `access` for protection domain `pd`. An absent, stale or foreign key, a range that
// leaves the region by one byte, and missing rights are all the same "no".
GN_DEV bool key_opens(const agent_args& a, gn_u32 pd, gn_u32 key, gn_u64 addr, gn_u64 bytes, gn_u32 access) {
  gn_u32 index = key >> 8;
  if (index >= a.mr_count) return false;
  const mr_ctx& m = a.mrs[index];
  if (m.bytes == 0 || m.key != key || m.pd != pd || (m.access & access) != access) return false;
  if (addr < m.base) return false;
  gn_u64 offset = addr - m.base;
  return offset <= m.bytes && bytes <= m.bytes - offset;
}

}}  // namespace gn::hca
