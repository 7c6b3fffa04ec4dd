// SPDX-License-Identifier: Apache-2.0 OR MIT
// Blocking reads and writes: by one thread, or by a warp or a block that share one range.
#pragma once
#include "gnstor/file.cuh"

namespace gn {

// Runs the requests of the lanes of `mask` to their ends. They call it together, and a single lane may, too.
// Returns the lane's status, GN_OK for a lane without a request.
template <class S, class X>
GN_DEV gn_u32 run(const file_of<S>& f, gn_u32 mask, bool have, X& x) {
  may_wait(*f.c);
  gn_u32 deadline = ticks_after(f.timeout_ns);
  if (!have) x.status = GN_OK;
  while (__any_sync(mask, !io_ended(x))) {
    io_stage<S>(*f.c, *f.v, true, x, {mask, thread_number()});
    io_commit<S>(*f.c, mask, x);
    take_completions<S>(*f.c, mask);
    io_finished<S>(*f.c, *f.v, mask, true, x);
    io_abandon<S>(*f.c, *f.v, mask, !io_ended(x) && ticks_passed(deadline), x);
  }
  return x.status;
}
template <class S, class X>
GN_DEV gn_u32 run_warp(const file_of<S>& f, bool have, X& x) {
  return run(f, ALL_LANES, have, x);
}

// A status of a warp, or of a block, that is not GN_OK; GN_OK if there is none.
GN_DEV gn_u32 status_of_all(gn_u32 status) {
  gn_u32 failed = __ballot_sync(ALL_LANES, status != GN_OK);
  __syncwarp();  // all lanes see what each has read
  return failed ? __shfl_sync(ALL_LANES, status, (int)lowest(failed)) : (gn_u32)GN_OK;
}
GN_DEV gn_u32 status_of_block(gn_u32 status, gn_u32& word) {
  __syncthreads();
  if (threadIdx.x == 0) word = GN_OK;
  __syncthreads();
  if (status != GN_OK) by_block::cas(&word, (gn_u32)GN_OK, status);
  __syncthreads();
  gn_u32 all = word;
  __syncthreads();
  return all;
}

// Blocking read and write; the lanes of `mask` together, each with a range of its own (`blocks` 0: none).
// Return the lane's status.
template <class S>
GN_DEV gn_u32 read_sync(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key,
                        gn_u32 mask = ALL_LANES) {
  read_io x = read_request(f, vba, blocks ? blocks : 1, address, key);
  return run(f, mask, blocks != 0, x);
}
template <class S>
GN_DEV gn_u32 write_sync(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key,
                         gn_u32 mask = ALL_LANES) {
  io x = write_request(f, vba, blocks ? blocks : 1, address, key);
  return run(f, mask, blocks != 0, x);
}

template <class S>
GN_DEV gn_u32 read_sync(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, const buffer& b,
                        gn_u32 mask = ALL_LANES) {
  io x = read_request(f, vba, blocks ? blocks : 1, b);
  return run(f, mask, blocks != 0, x);
}
template <class S>
GN_DEV gn_u32 write_sync(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, const buffer& b,
                         gn_u32 mask = ALL_LANES) {
  io x = write_request(f, vba, blocks ? blocks : 1, b);
  return run(f, mask, blocks != 0, x);
}

// The same by one thread alone. The other lanes of its warp need not take part.
template <class S>
GN_DEV gn_u32 read_one(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key) {
  return read_sync(f, vba, blocks, address, key, 1u << lane_id());
}
template <class S>
GN_DEV gn_u32 write_one(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key) {
  return write_sync(f, vba, blocks, address, key, 1u << lane_id());
}

template <class S>
GN_DEV gn_u32 read_one(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, const buffer& b) {
  return read_sync(f, vba, blocks, b, 1u << lane_id());
}
template <class S>
GN_DEV gn_u32 write_one(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, const buffer& b) {
  return write_sync(f, vba, blocks, b, 1u << lane_id());
}

// One range by many threads, each with whole chunks of it, in contiguous registered memory. The call refuses
// a range beyond the volume's end, or of more than GN_MAX_BLOCKS for each thread, before it does anything.
struct share {
  gn_u64 vba;
  gn_u32 blocks;
  gn_u64 address;
};

// Makes of `s`, the whole range, the share of the thread `rank` of `threads`.
GN_DEV gn_u32 share_of(const volume& v, gn_u32 rank, gn_u32 threads, share& s) {
  gn_u64 vba = s.vba;
  gn_u32 blocks = s.blocks;
  if (blocks && (vba >= v.capacity_blocks || blocks > v.capacity_blocks - vba)) return GN_OUT_OF_RANGE;
  gn_u32 shift = chunk_shift(v);
  gn_u64 first = vba >> shift, chunks = blocks ? ((vba + blocks - 1) >> shift) - first + 1 : 0,
         all = vba + blocks;
  if ((chunks + threads - 1) / threads << shift > GN_MAX_BLOCKS) return GN_BAD_REQUEST;
  gn_u64 from = (first + chunks * rank / threads) << shift, to = (first + chunks * (rank + 1) / threads)
                                                                 << shift;
  if (from < vba) from = vba;
  if (to > all) to = all;
  if (to < from) to = from;  // of a range without blocks
  s = {from, (gn_u32)(to - from), s.address + (from - vba) * GN_BLOCK};
  return GN_OK;
}

// The threads of a warp together. All get the same result: GN_OK, or the status of a thread whose share
// failed.
template <class S>
GN_DEV gn_u32 read_warp(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key) {
  share s = {vba, blocks, address};
  gn_u32 status = share_of(*f.v, lane_id(), 32, s);
  if (status == GN_OK) status = read_sync(f, s.vba, s.blocks, s.address, key);
  return status_of_all(status);
}
template <class S>
GN_DEV gn_u32 write_warp(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key) {
  share s = {vba, blocks, address};
  gn_u32 status = share_of(*f.v, lane_id(), 32, s);
  __syncwarp();  // what the warp has stored is there before one of them sends it
  if (status == GN_OK) status = write_sync(f, s.vba, s.blocks, s.address, key);
  return status_of_all(status);
}

// The threads of a block together, in whole warps; `word` is in its shared memory. All of them may use what
// any of them has read.
template <class S>
GN_DEV gn_u32 read_block(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key,
                         gn_u32& word) {
  static_assert(!S::ALONE, "a warp_file is for one warp");
  share s = {vba, blocks, address};
  gn_u32 status = share_of(*f.v, threadIdx.x, blockDim.x, s);
  if (status == GN_OK) status = read_sync(f, s.vba, s.blocks, s.address, key);
  return status_of_block(status, word);
}
template <class S>
GN_DEV gn_u32 write_block(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key,
                          gn_u32& word) {
  static_assert(!S::ALONE, "a warp_file is for one warp");
  share s = {vba, blocks, address};
  gn_u32 status = share_of(*f.v, threadIdx.x, blockDim.x, s);
  __syncthreads();  // what the block has stored is there before one of them sends it
  if (status == GN_OK) status = write_sync(f, s.vba, s.blocks, s.address, key);
  return status_of_block(status, word);
}

}  // namespace gn
