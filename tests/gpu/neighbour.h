// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the host tells the kernels of neighbour.cu.
#pragma once

struct reading_args {
  unsigned long long file[3];     // gn::file
  unsigned blocks;                // of the volume; block b begins with the word b * BLOCK_SALT
  unsigned failed;                // out: requests that failed, and threads without a buffer
  unsigned long long wrong;       // out: blocks that were not what was written
  unsigned long long reads;       // out: blocks that were
  unsigned long long runtime_ns;  // 0: one block a thread
};

#define BLOCK_SALT 0x9E3779B97F4A7C15ull
