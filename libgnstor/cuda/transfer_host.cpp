// SPDX-License-Identifier: Apache-2.0 OR MIT
// The transfer kernel compiled for the CPU execution, and the layouts as the C++ compiler sees them.
#include <cstddef>
#include "transfer.cu"

struct gn_layout_row {
  const char* name;
  size_t value;
};

extern "C" const gn_layout_row gn_libgnstor_layout[] = {
    {"file", sizeof(gn::file)},
    {"transfer_item", sizeof(gn::transfer_item)},
    {"transfer_item.status", offsetof(gn::transfer_item, status)},
    {"transfer_item.sequence", offsetof(gn::transfer_item, sequence)},
    {"transfer_args", sizeof(gn::transfer_args)},
    {"transfer_args.items", offsetof(gn::transfer_args, items)},
    {"transfer_args.volumes", offsetof(gn::transfer_args, volumes)},
    {"volume", sizeof(gn::volume)},
    {"drain_args", sizeof(gn::drain_args)},
    {"drain_args.left", offsetof(gn::drain_args, left)},
    {nullptr, 0},
};
