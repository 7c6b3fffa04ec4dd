// SPDX-License-Identifier: Apache-2.0 OR MIT
// libgnstor for kernels (paper 4.4): buffers, batched I/O in the four stages of the paper's figure 7, and
// blocking reads and writes.
//
//   GN_DEV void body(args& a, gn_u32 block, gn_u32 blocks) {   // a.f: gn::file, from gn_device_file
//     gn::file& f = a.f;
//     gn::batch& b = *(gn::batch*)gn::smem();     // shared memory, gn::batch_bytes(blockDim.x)
//     gn::batch_init(b);                          // all threads of the block
//     auto x = gn::read_request(f, vba, blocks, buffer, f.pool_key());
//     while (gn::batch_busy(b)) {                 // warp by warp, all 32 lanes together
//       gn::submit(b, f, x);                      //   builds commands; nothing is sent yet
//       gn::commit(b, f, x);                      //   appends them: one doorbell an SSD
//       gn::poll(f);                              //   takes completions
//       if (gn::dispatch(b, f, x)) use(x.status); //   this thread's request has ended
//     }
//   }
//   GN_CLIENT(kernel, args, body)                 // gn_launch runs it beside the HCA's agent
//
// When a request has ended, plain loads of the thread that took its end from `dispatch`, or waited for it,
// see the data. Others see it behind a __syncwarp, a __syncthreads or a release of that thread's.
//
// Every function that says so is called by all 32 lanes of a warp together; a lane without a request takes
// part too. Every loop has a deadline: a request that passes it ends with GN_TIMED_OUT. Its buffer is not
// used again, as data may still come into it. Give a buffer of the pool back as usual: the pool does not hand
// out its memory before the late completion has come. Do not use memory of your own for something else until
// a drain.
#pragma once
#include "gnor/async.cuh"
#include "gnor/smem.cuh"
#include "gnor/kernel.cuh"

namespace gn {

// An open volume with the channel that reaches it. What a kernel gets as its argument. `S` says what uses the
// channel together (gnor/sharing.cuh). `file` is for any warps, `block_file` for the warps of one block, and
// `warp_file` for one warp alone, or one of its threads. All are the same bytes. A channel that is used as a
// `warp_file` by two warps, or with two of these at once, is broken.
template <class S>
struct file_of {
  using sharing = S;
  channel* c;
  volume* v;
  gn_u64 timeout_ns;  // per request

  GN_DEV gn_u32 pool_key() const { return c->data.rkey; }
};
using file = file_of<by_device>;
using block_file = file_of<by_block>;
using warp_file = file_of<by_warp>;

// A file whose channel lies in the block's shared memory until `write_back`: each step of a request is
// faster. `room` is shared memory. For a channel that one block has to itself for that time; all threads of
// the block call it together. What it returns is used in place of `f`. Requests that are under way go on.
template <class S>
GN_DEV file_of<S> load_smem(const file_of<S>& f, smem_channel& room) {
  static_assert(S::IN_BLOCK, "other blocks do not see it there: a block_file or a warp_file");
  return {&load_smem(*f.c, room), f.v, f.timeout_ns};
}
// Without it the channel is broken when the kernel has ended.
template <class S>
GN_DEV void write_back(const file_of<S>& f, smem_channel& room) {
  write_back(*f.c, room);
}

enum : gn_u32 { ALL_LANES = 0xffffffffu };

GN_DEV gn_u32 thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }

// The block's bitmap of pending requests (paper figure 7): one bit a thread, one word a warp.
struct batch {
  gn_u32 pending[32];
  gn_u64 deadline[1024];
};

// Bytes of shared memory that a batch takes in a block of `threads`.
GN_DEV gn_u32 batch_bytes(gn_u32 threads) {
  return (gn_u32)sizeof(gn_u32) * 32 + threads * (gn_u32)sizeof(gn_u64);
}

// All threads of the block, once.
GN_DEV void batch_init(batch& b) {
  if (threadIdx.x < 32) b.pending[threadIdx.x] = 0;
  __syncthreads();
}

// Whether a lane of this warp has a request pending; the same answer for all lanes.
GN_DEV bool batch_busy(const batch& b) { return mem::ld_relaxed_cta(&b.pending[warp_in_block()]) != 0; }

// Whether this thread's request is pending: it sits out the next batch.
GN_DEV bool batch_pending(const batch& b) {
  return mem::ld_relaxed_cta(&b.pending[warp_in_block()]) >> lane_id() & 1u;
}

// Registered memory from the channel's pool, at most 1 MiB, contiguous; 0 when there is none. Any thread may
// call it. Of a warp_file the lanes of `mask` call it together.
template <class S>
GN_DEV gn_u64 alloc(const file_of<S>& f, gn_u32 bytes, gn_u32 mask = ALL_LANES) {
  gn_u64 buffer = 0;
  in_turns<S>(mask, true, [&] { buffer = pool_alloc<S>(f.c->data, bytes, thread_number()); });
  return buffer;
}

// Polls until `get` says to every lane of `mask` that it lacks nothing any more, or the file's deadline has
// passed.
template <class S, class F>
GN_DEV void wait_for(const file_of<S>& f, gn_u32 mask, F get) {
  may_wait(*f.c);
  gn_u32 deadline = ticks_after(f.timeout_ns);
  for (;;) {
    bool lacks = !get();
    if (!__any_sync(mask, lacks) || __any_sync(mask, ticks_passed(deadline))) return;
    take_completions<S>(*f.c, mask);
  }
}

// As `alloc`, polling until there is one or the file's deadline has passed. The lanes of `mask` together, a
// lane with `bytes` 0 wants none.
template <class S>
GN_DEV gn_u64 alloc_wait(const file_of<S>& f, gn_u32 bytes, gn_u32 mask = ALL_LANES) {
  gn_u64 address = 0;
  bool wants = bytes && bytes <= POOL_LONGEST;
  wait_for(f, mask, [&] {
    in_turns<S>(mask, wants && !address, [&] { address = pool_alloc<S>(f.c->data, bytes, thread_number()); });
    return address || !wants;
  });
  return address;
}

// Gives it back; `bytes` is what was asked for, an address of 0 is nothing. When no request on it is under
// way, or after GN_TIMED_OUT. As `alloc`.
template <class S>
GN_DEV void free(const file_of<S>& f, gn_u64 address, gn_u32 bytes, gn_u32 mask = ALL_LANES) {
  in_turns<S>(mask, address != 0, [&] { pool_free<S>(f.c->data, address, bytes); });
}

// The same, where memory need not be contiguous: `b` is contiguous if there is such room. Else it has up to
// 16 pieces, pages or blocks of 64 KiB. `b.at(offset)` is where a byte of it is. Returns whether there is
// one. A buffer without pages is none. Where several warps gather pieces at once, perhaps only one gets some.
// Until it is freed `b` stays where and as it is: in global memory if submit_async uses it.
template <class S>
GN_DEV bool alloc(const file_of<S>& f, gn_u32 bytes, buffer& b, gn_u32 mask = ALL_LANES) {
  b.pages = 0;
  in_turns<S>(mask, bytes != 0, [&] {
    pool_alloc_whole<S>(f.c->data, S::ld_acquire(&f.c->data.blocks), bytes, thread_number(), b);
  });
  // One lane after the other takes pieces.
  for (gn_u32 todo = __ballot_sync(mask, bytes && !b.pages); todo; todo &= todo - 1) {
    if (lane_id() == lowest(todo)) pool_alloc_buffer<S>(f.c->data, bytes, thread_number(), b);
    __syncwarp(mask);
  }
  return b.pages != 0;
}
template <class S>
GN_DEV bool alloc_wait(const file_of<S>& f, gn_u32 bytes, buffer& b, gn_u32 mask = ALL_LANES) {
  bool wants = bytes && bytes <= POOL_LONGEST, got = false;
  b.pages = 0;
  wait_for(f, mask, [&] {
    buffer none;
    if (alloc(f, wants && !got ? bytes : 0u, wants && !got ? b : none, mask)) got = true;
    return got || !wants;
  });
  return got;
}
template <class S>
GN_DEV void free(const file_of<S>& f, buffer& b, gn_u32 mask = ALL_LANES) {
  in_turns<S>(mask, b.pages != 0, [&] { pool_free_buffer<S>(f.c->data, b); });
}

// A read of `blocks` 4 KiB blocks at block `vba` into registered memory, and a write from it. `flags` of a
// write: 0, or FLAG_FUA: it ends when the data would survive an SSD that loses its power protection. Kernels
// do not flush; the host does, behind them (gn_flush).
template <class S>
GN_DEV read_io read_request(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key) {
  return io_make<read_io>(*f.v, IO_READ, vba, blocks, address, key, 0);
}
template <class S>
GN_DEV io write_request(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key,
                        gn_u32 flags = 0) {
  return io_make(*f.v, IO_WRITE, vba, blocks, address, key, flags);
}

// The same with a buffer of the pool, from its page `first` on. Requests on parts of it may be under way at
// once.
template <class S>
GN_DEV io read_request(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, const buffer& b, gn_u32 first = 0) {
  return io_make(*f.v, IO_READ, vba, blocks, b, first, f.pool_key(), 0);
}
template <class S>
GN_DEV io write_request(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, const buffer& b, gn_u32 first = 0,
                        gn_u32 flags = 0) {
  return io_make(*f.v, IO_WRITE, vba, blocks, b, first, f.pool_key(), flags);
}
// A temporary would be gone when the request begins.
template <class S>
io read_request(const file_of<S>&, gn_u64, gn_u32, const buffer&&, gn_u32 = 0) = delete;
template <class S>
io write_request(const file_of<S>&, gn_u64, gn_u32, const buffer&&, gn_u32 = 0, gn_u32 = 0) = delete;

// The commands that a request has come to, each with one RDMA operation where all goes well. Of a read that
// was tried elsewhere, the commands of its last try. Before its buffer is freed.
template <class S, class X>
GN_DEV gn_u32 rdma_operations(const file_of<S>& f, const X& x) {
  return io_issued(*f.v, x);
}

// Puts a request into the batch: the thread's bit is set until `dispatch` clears it. Any thread whose bit is
// clear.
template <class S>
GN_DEV void enter(batch& b, const file_of<S>& f) {
  gn_u64 now = now_ns();
  b.deadline[threadIdx.x] = f.timeout_ns < ~now ? now + f.timeout_ns : ~(gn_u64)0;
  mem::or_acqrel_cta(&b.pending[warp_in_block()], 1u << lane_id());
}

// Stage 1: builds the next command of this thread's request. All lanes call it.
template <class S, class X>
GN_DEV void submit(batch& b, const file_of<S>& f, X& x) {
  io_stage<S>(*f.c, *f.v, ALL_LANES, batch_pending(b), x, thread_number());
}

// Stage 2: sends what the warp has built, one doorbell an SSD. All lanes.
template <class S>
GN_DEV void commit(batch&, const file_of<S>& f, io& x) {
  io_commit<S>(*f.c, ALL_LANES, x);
}

// Stage 3: takes completions, for whichever request they are. All lanes of `mask`. Returns how many.
template <class S>
GN_DEV gn_u32 poll(const file_of<S>& f, gn_u32 mask = ALL_LANES) {
  may_wait(*f.c);
  return take_completions<S>(*f.c, mask);
}

// Stage 4: true once, when this thread's request has ended; its status is x.status. All lanes.
template <class S, class X>
GN_DEV bool dispatch(batch& b, const file_of<S>& f, X& x) {
  bool pending = batch_pending(b);
  bool ended = io_finished<S>(*f.c, *f.v, ALL_LANES, pending, x);
  bool late = pending && !ended && now_ns() > b.deadline[threadIdx.x];
  io_abandon<S>(*f.c, *f.v, ALL_LANES, late, x);
  ended |= late;
  if (ended) mem::and_acqrel_cta(&b.pending[warp_in_block()], ~(1u << lane_id()));
  __syncwarp();
  return ended;
}

// Gives up what of the warp is still pending, for a kernel that ends before its requests. The channel has
// them from then on, and a later poll or drain takes what comes. Such a request ends with GN_TIMED_OUT, and
// its buffer may be given back. All lanes.
template <class S, class X>
GN_DEV void leave(batch& b, const file_of<S>& f, X& x) {
  bool pending = batch_pending(b);
  io_abandon<S>(*f.c, *f.v, ALL_LANES, pending, x);
  if (pending) mem::and_acqrel_cta(&b.pending[warp_in_block()], ~(1u << lane_id()));
  if constexpr (S::ALONE) ring_again<S>(*f.c, ALL_LANES);  // perhaps this warp does not come again
  __syncwarp();
}

// Runs the request of each lane of `mask` that has one to its end; they call it together, and a lane alone
// may. Returns the lane's status, GN_OK where it has none.
template <class S, class X>
GN_DEV gn_u32 run(const file_of<S>& f, gn_u32 mask, bool have, X& x) {
  may_wait(*f.c);
  gn_u32 deadline = ticks_after(f.timeout_ns);
  if (!have) x.status = GN_OK;
  while (__any_sync(mask, !io_ended(x))) {
    io_stage<S>(*f.c, *f.v, mask, true, x, thread_number());
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

// One status of a warp, or of a block, that is not GN_OK; GN_OK if there is none.
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

// The same by one thread alone; the other lanes of its warp need not take part.
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

// One range by many threads, each of them whole chunks of it: contiguous registered memory. A range that is
// not all within the volume, or of more than GN_MAX_BLOCKS for each thread, is refused before anything is
// done.
GN_DEV gn_u32 share_of(const volume& v, gn_u32 rank, gn_u32 threads, gn_u64& vba, gn_u32& blocks,
                       gn_u64& address) {
  if (blocks && (vba >= v.capacity_blocks || blocks > v.capacity_blocks - vba)) return GN_OUT_OF_RANGE;
  gn_u32 shift = chunk_shift(v);
  gn_u64 first = vba >> shift, chunks = blocks ? ((vba + blocks - 1) >> shift) - first + 1 : 0,
         all = vba + blocks;
  if ((chunks + threads - 1) / threads << shift > GN_MAX_BLOCKS) return GN_BAD_REQUEST;
  gn_u64 from = (first + chunks * rank / threads) << shift, to = (first + chunks * (rank + 1) / threads)
                                                                 << shift;
  if (from < vba) from = vba;
  if (to > all) to = all;
  if (to < from) to = from;  // where the range has no blocks
  address += (from - vba) * GN_BLOCK;
  vba = from;
  blocks = (gn_u32)(to - from);
  return GN_OK;
}

// The threads of a warp together; the same to all: GN_OK, or the status of one whose share failed.
template <class S>
GN_DEV gn_u32 read_warp(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key) {
  gn_u32 status = share_of(*f.v, lane_id(), 32, vba, blocks, address);
  if (status == GN_OK) status = read_sync(f, vba, blocks, address, key);
  return status_of_all(status);
}
template <class S>
GN_DEV gn_u32 write_warp(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key) {
  gn_u32 status = share_of(*f.v, lane_id(), 32, vba, blocks, address);
  __syncwarp();  // what the warp has stored is there before one of them sends it
  if (status == GN_OK) status = write_sync(f, vba, blocks, address, key);
  return status_of_all(status);
}

// The threads of a block together, whole warps; `word` is in its shared memory. What they have read all of
// them may use.
template <class S>
GN_DEV gn_u32 read_block(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key,
                         gn_u32& word) {
  static_assert(!S::ALONE, "a warp_file is for one warp");
  gn_u32 status = share_of(*f.v, threadIdx.x, blockDim.x, vba, blocks, address);
  if (status == GN_OK) status = read_sync(f, vba, blocks, address, key);
  return status_of_block(status, word);
}
template <class S>
GN_DEV gn_u32 write_block(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key,
                          gn_u32& word) {
  static_assert(!S::ALONE, "a warp_file is for one warp");
  gn_u32 status = share_of(*f.v, threadIdx.x, blockDim.x, vba, blocks, address);
  __syncthreads();  // what the block has stored is there before one of them sends it
  if (status == GN_OK) status = write_sync(f, vba, blocks, address, key);
  return status_of_block(status, word);
}

//
//   GN_DEV void filled(const gn::file& f, gn_u64 user, gn_u32 status, gn_u32 dw0) { ... }
//   __device__ gn::callback<> table[] = {filled};
//   gn::submit_async(f, gn::read_request(f, vba, 1, buffer, f.pool_key()), 0, user);
//   gn::poll(f, gn::callbacks<>{table, 1});    // any warp, now or later, in any kernel of this module
//
// A callback may submit and free; it does not wait (no poll, no blocking read). A request whose kernel has
// ended goes on belonging to the channel, which a later poll, or a drain, takes along.

template <class S = by_device>
using callback = void (*)(const file_of<S>& f, gn_u64 user, gn_u32 status, gn_u32 dw0);

// Callbacks by index, as addresses in the poller's own module.
template <class S = by_device>
struct callbacks {
  const callback<S>* table;
  gn_u32 count;
};

// Hands a request to the channel. GN_PENDING: it has it, and `callbacks.table[index]` will be called with
// `user` once, also when the file's deadline has passed (GN_TIMED_OUT). Anything else: nothing was done;
// GN_BUSY: poll, then try again. The lanes of `mask` together, a thread alone by default; a lane without
// `have` only takes part.
template <class S>
GN_DEV gn_u32 submit_async(const file_of<S>& f, const io& request, gn_u32 index, gn_u64 user, bool have,
                           gn_u32 mask) {
  parked p;
  p.x = request;
  p.v = f.v;
  p.user = user;
  p.deadline = ticks_after(f.timeout_ns);
  p.callback = index;
  // A poller, perhaps in another block or kernel, reads the buffer's description.
  bool hidden = have && has_pieces(request) && !is_global(&buffer_of(request.address));
  have = have && !io_ended(request) && !hidden;
  io_stage<S, false>(*f.c, *f.v, mask, have, p.x, thread_number());
  bool taken = have && p.x.head != IO_NONE;
  io_commit<S>(*f.c, mask, p.x);
  park<S>(*f.c, mask, taken, p);
  if (hidden) return GN_BAD_REQUEST;
  return taken ? (gn_u32)GN_PENDING : have ? (gn_u32)GN_BUSY : request.status;
}
template <class S>
GN_DEV gn_u32 submit_async(const file_of<S>& f, const io& request, gn_u32 index, gn_u64 user) {
  return submit_async(f, request, index, user, true, 1u << lane_id());
}

// Takes completions, advances parked requests and calls back the ended ones. The lanes of `mask`. Returns the
// completions.
template <class S>
GN_DEV gn_u32 poll(const file_of<S>& f, const callbacks<S>& back, gn_u32 mask = ALL_LANES) {
  gn_u32 taken = poll(f, mask);
  advance<S>(*f.c, *f.v, mask, thread_number(), [&](gn_u64 user, gn_u32 index, const io& x) {
    if (index < back.count) back.table[index](f, user, x.status, x.dw0);
    else mem::add_relaxed_gpu(&f.c->uncalled, 1u);
  });
  return taken;
}

// Polls until no request of the channel is left or the time is over: returns how many slots are still taken.
// Callbacks that `back` does not have are not called, and counted (channel::uncalled). No thread may submit
// meanwhile. The lanes of `mask`.
template <class S>
GN_DEV gn_u32 drain(const file_of<S>& f, gn_u64 timeout_ns, const callbacks<S>& back = {nullptr, 0},
                    gn_u32 mask = ALL_LANES) {
  gn_u32 deadline = ticks_after(timeout_ns);
  for (;;) {
    poll(f, back, mask);
    gn_u32 left = 0;
    for (gn_u32 w = 0; w < SLOTS / 32; ++w) left += (gn_u32)__popc(S::ld(&f.c->slot_bits[w]));
    left = __shfl_sync(mask, left, (int)lowest(mask));
    if (left == 0 || __any_sync(mask, ticks_passed(deadline))) return left;
  }
}

}  // namespace gn
