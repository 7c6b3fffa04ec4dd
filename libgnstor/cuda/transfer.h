// SPDX-License-Identifier: Apache-2.0 OR MIT
// The list of requests that the host API hands to the device. Mirrored by libgnstor/src/transfer.rs.
#pragma once
#include "gnstor/gnstor.cuh"

namespace gn {

struct transfer_item {
  gn_u64 address;
  gn_u32 key;
  gn_u32 vba;
  gn_u32 blocks;
  gn_u32 opcode;   // IO_READ, IO_WRITE, IO_FLUSH
  gn_u32 flags;    // FLAG_FUA
  gn_u32 status;   // out
  gn_u32 dw0, dw1; // out
  gn_u32 replica;  // of a read: 0 = any, k = the k-th serving one
  gn_u32 reserved;
  // For a write: the sequence of its stamp. 0: it has none yet, and the kernel draws one before it sends
  // anything. An item is one part (io_part), so it has one sequence. An item that runs again keeps its stamp.
  gn_u64 sequence;
};
static_assert(sizeof(transfer_item) == 56, "");

struct transfer_args {
  file f;
  transfer_item* items;
  volume* volumes;  // room for one an item
  gn_u32 count;
  gn_u32 reserved;
};

struct drain_args {
  file f;
  gn_u64 timeout_ns;
  gn_u32 left;      // out: slots still taken
  gn_u32 reserved;
};

}  // namespace gn
