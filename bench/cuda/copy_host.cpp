// SPDX-License-Identifier: Apache-2.0 OR MIT
// The bare copy compiled for the CPU execution, and its layouts as the C++ compiler sees them.
#include "copy.cu"
#include "layout.h"

namespace gn { namespace copy {

extern "C" const gn_layout_row gn_copy_layout[] = {
    {SIZE(result)}, {FIELD(result, host_at)}, {FIELD(result, device_at)},
    {SIZE(args)}, {FIELD(args, results)}, {FIELD(args, host_pieces)}, {FIELD(args, seed)},
    {FIELD(args, piece)}, {FIELD(args, slots)},
    {FIELD(args, to_host)},
    {nullptr, 0},
};

}}  // namespace gn::copy
