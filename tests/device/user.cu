// SPDX-License-Identifier: Apache-2.0 OR MIT
// A user's kernel for tests: one thread reads a block into memory that the host names, or leaves the read with the channel.
#include "gnstor/gnstor.cuh"

struct user_args {
  gn::file f;
  gn_u64 buffer;
  gn_u32 key;
  gn_u32 vba;
  gn_u32 parks;
  gn_u32 status;  // out
};

GN_DEV void user_body(user_args& a, gn_u32, gn_u32) {
  if (threadIdx.x != 0) return;
  if (a.parks) a.status = gn::submit_async(a.f, gn::read_request(a.f, a.vba, 1, a.buffer, a.key), 0, 0);
  else a.status = gn::read_one(a.f, a.vba, 1, a.buffer, a.key);
}

GN_CLIENT(gn_test_user, user_args, user_body)
