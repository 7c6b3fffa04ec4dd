// SPDX-License-Identifier: Apache-2.0 OR MIT
// Arguments that the host passes to the kernels of neighbour.cu.
#pragma once

struct reading_args {
  unsigned long long file[3];     // gn::file
  unsigned blocks;                // of the volume; block b begins with the word b * BLOCK_SALT
  unsigned failed;                // out: requests that failed, and threads without a buffer
  unsigned long long wrong;       // out: blocks that were not what was written
  unsigned long long reads;       // out: blocks that were
  unsigned long long runtime_ns;  // 0: one block a thread
};

// Threads of one grid that all hold a long buffer at the same time. Together they need more than the pool has
// at first.
struct growing_args {
  unsigned long long file[3];
  unsigned blocks;                // of the volume
  unsigned bytes;                 // of a thread's buffer
  unsigned arrived;               // threads that have a buffer, or were refused one
  unsigned without;               // out: threads that got none
  unsigned failed;                // out: reads that failed
  unsigned wrong;                 // out: blocks that were not what was written
  unsigned right;                 // out: blocks that were
};

// Threads that read into buffers in pieces, from a pool in which every second page is taken. A block, and a
// warp, that read one range together.
enum { TOGETHER = 200 };          // blocks of that range
struct pieces_args {
  unsigned long long file[3];
  unsigned blocks;                // of the volume
  unsigned without;               // out: threads that got no buffer
  unsigned whole;                 // out: buffers that were not in pieces
  unsigned failed, wrong, right;  // out: reads that failed, blocks that were not, and were, what was written
};

// Chains of reads whose callbacks begin the next.
enum { CHAINS = 96 };
struct calling_args {
  unsigned long long file[3];
  unsigned blocks;                // of the volume
  unsigned reads;                 // to be begun
  unsigned begun;
  unsigned failed, wrong, right;  // out, as above
  unsigned left;                  // out: slots still taken at the end
  struct link {
    struct calling_args* all;
    unsigned long long buffer, block;
  } chain[CHAINS];
};

#define BLOCK_SALT 0x9E3779B97F4A7C15ull
