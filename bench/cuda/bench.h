// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the load generator's kernel is told and what it leaves behind, and the bytes it writes. Mirrored by
// bench/src/kernel.rs.
//
// Every 512 bytes of a written block are one sector:
//
//   0                        8                              16                                512
//   | VID << 48 | VBA*8 + s  | generation << 32 | salt      | words derived from both, by place |
//
// so that a block that is stale, of another volume, misplaced or torn is told from the right one by its
// headers.
#pragma once
#include "gnstor/gnstor.cuh"

namespace gn { namespace bench {

enum : gn_u32 { SECTOR = 512, SECTORS = GN_BLOCK / SECTOR, PIECES = SECTOR / 16 };
enum : gn_u32 { READ = 0, WRITE = 1 };
enum : gn_u32 {
  RANDOM = 1,  // units in random order; else one after the other
  VERIFY = 2,  // writes carry the pattern, reads are checked
  WHOLE = 4,   // every block read is checked in full, not one of 64; generations are added up
  ONCE = 8,    // every unit once; else until the time is over
  STAMPS = 16, // each command carries the client's clock
};
enum : gn_u32 { SUB_LOG = 6, TOP_LOG = 40, BUCKETS = (TOP_LOG - SUB_LOG + 1) << SUB_LOG };

// The counters of one thread, which only that thread writes.
struct lane_result {
  gn_u64 ios[2];          // reads and writes that ended well, the warm-up included
  gn_u64 sum_ns[2];       // latency of the timed ones
  gn_u64 max_ns[2];
  gn_u64 verified;        // reads whose every sector was right
  gn_u64 whole_blocks;    // blocks compared byte by byte
  gn_u64 generations;     // sum of the generations found, with WHOLE
  gn_u64 first_ns;        // when the timed part began, and when its last I/O ended
  gn_u64 last_ns;
  gn_u64 wrong;           // reads that were not right; of the first one:
  gn_u64 wrong_sector;    //   which 512 bytes of the volume
  gn_u64 found[2];        //   their header
  gn_u32 wanted;          //   the generation it should have had
  gn_u32 status;          // of the I/O that failed and ended this thread's work; 0: none
  gn_u32 dw0;
  gn_u32 failed_vba;
};
static_assert(sizeof(lane_result) == 136, "");

// One client: one block of threads, one channel, one volume.
struct client {
  file f;
  gn_u64 buffers;         // one unit a thread, registered
  gn_u32* generations;    // of every unit: how often it was written
  lane_result* lanes;
  gn_u64* histograms;     // [2][BUCKETS]
  gn_u64* requests;       // where a CPU thread does the I/O, host memory: one word a thread, written by it;
  const gn_u64* answers;  //   and one written by the CPU
  gn_u32 key;             // of the buffers
  gn_u32 reserved;
};
static_assert(sizeof(client) == 80, "");

// Request: sequence << 48 | write << 32 | VBA. Answer: sequence << 48 | low half of DW0 << 32 | status.
GN_DEV gn_u64 request_word(gn_u32 sequence, bool write, gn_u32 vba) {
  return (gn_u64)(sequence & 0xffffu) << 48 | (gn_u64)write << 32 | vba;
}

struct args {
  client* clients;
  const gn_u32* stop;     // not 0: begin nothing more
  gn_u64 warmup_ns;
  gn_u64 runtime_ns;      // after the warm-up
  gn_u64 seed;
  gn_u32 depth;           // threads of a block that have a request in flight
  gn_u32 unit_blocks;     // blocks of a request
  gn_u32 units;           // of a volume
  gn_u32 read_percent;
  gn_u32 flags;
  gn_u32 replica;         // to read from: 0 = any, k = the k-th serving one
  gn_u32* multiprocessors;  // out: of the device
  gn_u64 interval;        // between two starts of a client, 2^-16 ns; 0: the rate is not limited
  gn_u64 read_share;      // of the starts, 2^-32; only where the rate is limited
};
static_assert(sizeof(args) == 88, "");

// Log-linear: 64 buckets for each power of two, so that a bucket's middle is within 0.8 % of what fell into
// it.
GN_DEV gn_u32 bucket_of(gn_u64 ns) {
  if (ns >> TOP_LOG) return BUCKETS - 1;
  if (ns >> SUB_LOG == 0) return (gn_u32)ns;
  gn_u32 shift = 63 - (gn_u32)__clzll((long long)ns) - SUB_LOG;
  return (shift << SUB_LOG) + (gn_u32)(ns >> shift);
}

// The header of a block's sector 0; the other sectors' follow from it.
GN_DEV gn_u64 header_place(gn_u32 vid, gn_u32 vba) { return (gn_u64)vid << 48 | (gn_u64)vba * SECTORS; }
GN_DEV gn_u64 header_age(gn_u32 generation, gn_u64 seed) { return (gn_u64)generation << 32 | (gn_u32)seed; }

// What the bytes of a block come from: the header of its sector 0, and the seed of the words between headers.
struct pattern {
  gn_u64 place, age, seed;
};
GN_DEV pattern pattern_of(gn_u64 place, gn_u64 age) { return {place, age, mix64(place ^ mix64(age))}; }

// Piece `piece` (16 bytes) of sector `s` of a block.
GN_DEV void piece_of(const pattern& p, gn_u32 s, gn_u32 piece, gn_u32 out[4]) {
  gn_u64 a = p.seed + (s * PIECES + piece) * 0x9E3779B97F4A7C15ull, b = a ^ a >> 29;
  if (piece == 0) {
    a = p.place + s;
    b = p.age;
  }
  out[0] = (gn_u32)a;
  out[1] = (gn_u32)(a >> 32);
  out[2] = (gn_u32)b;
  out[3] = (gn_u32)(b >> 32);
}

}}  // namespace gn::bench
