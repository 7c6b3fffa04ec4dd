// SPDX-License-Identifier: Apache-2.0 OR MIT
// The channel's own kernel, in which one warp finishes the set-up.
#include "gnor/connect.cuh"
#include "gnor/kernel.cuh"

namespace gn {
GN_DEV void connect_body(connect_args& a, gn_u32 block, gn_u32) {
  if (block == 0 && warp_in_block() == 0) connect_all(a);
}
}  // namespace gn

GN_CLIENT(gn_channel_connect, gn::connect_args, gn::connect_body)
