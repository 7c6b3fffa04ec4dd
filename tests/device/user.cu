// SPDX-License-Identifier: Apache-2.0 OR MIT
// A user's kernels for tests. In the first one a thread reads a block into memory that the host names, or
// hands the read over to the channel. The second one writes and reads with buffers from a pool whose free
// pages are never neighbours. In the third one threads read and write one range together.
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

struct pieces_args {
  gn::file f;
  gn_u32 vba;
  gn_u32 blocks;
  gn_u32 status;      // out: of the write, then of the read
  gn_u32 operations;  // out: of the read
  gn_u32 wrong;       // out: words, and what else was not as it should be
};

GN_DEV gn_u32 word_of_pieces(gn_u32 block, gn_u32 i) { return (block << 16 | i) * 2654435761u; }

GN_DEV void pieces_body(pieces_args& a, gn_u32, gn_u32) {
  if (threadIdx.x != 0) return;
  const gn_u32 self = 1, page = gn::POOL_PAGE, words = gn::GN_BLOCK / 4;
  gn_u64 pool = a.f.c->data.base;
  gn_u32 pages = a.f.c->data.blocks * gn::POOL_PAGES;
  for (gn_u32 i = 0; i < pages; ++i) a.wrong += gn::alloc(a.f, page, self) == 0;
  for (gn_u32 i = 1; i < pages; i += 2) gn::free(a.f, pool + (gn_u64)i * page, page, self);
  gn::buffer out, in, none;
  a.wrong += !gn::alloc(a.f, a.blocks * page, out, self) || !gn::alloc(a.f, a.blocks * page, in, self);
  for (gn_u32 b = 0; b < a.blocks; ++b)
    for (gn_u32 i = 0; i < words; ++i) ((gn_u32*)out.at(b * page))[i] = word_of_pieces(b, i);
  a.status = gn::write_one(a.f, a.vba, a.blocks, out);
  gn::io x = gn::read_request(a.f, a.vba, a.blocks, in);
  if (!a.status) a.status = gn::run(a.f, self, true, x);
  a.operations = gn::rdma_operations(a.f, x);
  for (gn_u32 b = 0; b < a.blocks; ++b)
    for (gn_u32 i = 0; i < words; ++i) a.wrong += ((const gn_u32*)in.at(b * page))[i] != word_of_pieces(b, i);
  // A request for more than the volume has is refused. A buffer longer than the pool's fragments cannot be
  // had.
  a.wrong += gn::read_one(a.f, a.vba, a.blocks + 1, in) != gn::GN_BAD_REQUEST;
  a.wrong += gn::read_request(a.f, a.vba, a.blocks, in, 1).status != gn::GN_BAD_REQUEST;
  a.wrong += gn::read_request(a.f, a.vba, 1, in, a.blocks).status != gn::GN_BAD_REQUEST;
  a.f.c->data.host_addr = 0;  // it does not grow
  a.wrong += gn::alloc(a.f, 2 * gn::POOL_BLOCK, none, self);
  gn::free(a.f, out, self);
  gn::free(a.f, in, self);
  for (gn_u32 i = 0; i < pages; i += 2) gn::free(a.f, pool + (gn_u64)i * page, page, self);
  gn_u64 longest = gn::alloc(a.f, gn::POOL_LONGEST, self);  // all of it is whole again
  a.wrong += longest == 0;
  gn::free(a.f, longest, gn::POOL_LONGEST, self);
}

GN_CLIENT(gn_test_pieces, pieces_args, pieces_body)

struct together_args {
  gn::file f;
  gn_u64 from, to;   // registered memory, `bytes` each
  gn_u32 key;
  gn_u32 vba;
  gn_u32 blocks;
  gn_u32 wrote, read;  // out: what a block's threads and a warp's were told, the same to all
};

// The threads of a block write a range together and read it back. Then its first warp reads the first half
// once more.
GN_DEV void together_body(together_args& a, gn_u32, gn_u32) {
  gn_u32& word = *(gn_u32*)gn::smem();
  gn_u32 wrote = gn::write_block(a.f, a.vba, a.blocks, a.from, a.key, word);
  gn_u32 read = gn::read_block(a.f, a.vba, a.blocks, a.to, a.key, word);
  gn_u64 twice = a.to + (gn_u64)a.blocks * gn::GN_BLOCK;
  if (threadIdx.x < 32) {
    gn_u32 again = gn::read_warp(a.f, a.vba, a.blocks / 2, twice, a.key);
    if (!wrote && !again) again = gn::write_warp(a.f, a.vba, a.blocks / 2, twice, a.key);
    if (again) gn::mem::st_relaxed_gpu(&a.read, again);
  }
  if (wrote) gn::mem::st_relaxed_gpu(&a.wrote, wrote);
  if (read) gn::mem::st_relaxed_gpu(&a.read, read);
}

GN_CLIENT(gn_test_together, together_args, together_body)
