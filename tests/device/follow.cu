// SPDX-License-Identifier: Apache-2.0 OR MIT
// A kernel for tests that writes and reads until the host stops it. Each thread writes its own blocks in
// turn, each time with a newer version. It checks that a read returns the version that it wrote last. It
// pauses between two versions: meanwhile the tests wait for faults, and their processes need the cores.
#include "gnstor/gnstor.cuh"

struct follow_args {
  gn::file f;
  gn_u64 buffer;     // two blocks a thread, registered
  gn_u64 versions;   // gn_u32 of each block: the last version that was acknowledged
  gn_u32 key;
  gn_u32 blocks;     // of each thread
  gn_u32 stop;       // by the host
  gn_u32 rounds;     // out: writes, over all threads
  gn_u32 failed;     // out: requests that failed, or brought something else
  gn_u32 status;     // out: of one that failed; 0 where all of them brought something else
  gn_u64 longest_write_ns, longest_read_ns;  // out
};

GN_DEV gn_u32 word_of_follow(gn_u32 vba, gn_u32 version, gn_u32 i) {
  return i == 0 ? version : (vba << 8 ^ version << 20 ^ i) * 2654435761u;
}

GN_DEV void note_follow(follow_args& a, gn_u32 status) {
  gn::mem::add_relaxed_gpu(&a.failed, 1u);
  if (status) gn::mem::st_relaxed_gpu(&a.status, status);
}

constexpr gn_u64 PAUSE_NS = 10000000;

GN_DEV void follow_body(follow_args& a, gn_u32, gn_u32) {
  const gn_u32 words = gn::GN_BLOCK / 4;
  gn_u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  gn_u32* out = (gn_u32*)(a.buffer + (gn_u64)thread * 2 * gn::GN_BLOCK);
  gn_u32* in = out + words;
  gn_u32* versions = (gn_u32*)a.versions;
  bool over = false;
  for (gn_u32 version = 1; !over; ++version) {
    for (gn_u32 b = 0; b < a.blocks; ++b) {
      gn_u32 vba = thread * a.blocks + b;
      for (gn_u32 i = 0; i < words; ++i) out[i] = word_of_follow(vba, version, i), in[i] = 0;
      gn_u64 begun = gn::now_ns();
      gn_u32 status = gn::write_sync(a.f, vba, 1, (gn_u64)out, a.key);
      gn_u64 written = gn::now_ns();
      if (status) note_follow(a, status);
      else versions[vba] = version;
      status = gn::read_sync(a.f, vba, 1, (gn_u64)in, a.key);
      gn_u64 read = gn::now_ns();
      gn_u32 wrong = 0;
      for (gn_u32 i = 0; i < words; ++i) wrong += in[i] != out[i];
      if (status || (wrong && versions[vba] == version)) note_follow(a, status);
      gn::mem::add_relaxed_gpu(&a.rounds, 1u);
      gn::mem::max_relaxed_gpu(&a.longest_write_ns, written - begun);
      gn::mem::max_relaxed_gpu(&a.longest_read_ns, read - written);
    }
    for (gn_u64 paused = gn::now_ns(); gn::now_ns() - paused < PAUSE_NS;) gn::pause(1000);
    over = gn::mem::ld_relaxed_sys(&a.stop) != 0;
    over = __any_sync(gn::ALL_LANES, over);
  }
}

GN_CLIENT(gn_test_follow, follow_args, follow_body)
