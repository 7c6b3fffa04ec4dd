// SPDX-License-Identifier: Apache-2.0 OR MIT
// libgnstor for kernels (paper 4.4): buffers, batched I/O in the four stages of the paper's figure 7, and blocking reads and writes.
//
//   __global__ void kernel(...) {
//     gn::batch& b = *(gn::batch*)gn::smem();     // shared memory, gn::batch_bytes(blockDim.x)
//     gn::batch_init(b);                          // all threads of the block
//     gn::io x = gn::read_request(f, vba, blocks, buffer, f.pool_key());
//     while (gn::batch_busy(b)) {                 // warp by warp, all 32 lanes together
//       gn::submit(b, f, x);                      //   builds commands; nothing is sent yet
//       gn::commit(b, f, x);                      //   appends them: one doorbell an SSD
//       gn::poll(f);                              //   takes completions
//       if (gn::dispatch(b, f, x)) use(x.status); //   this thread's request has ended
//     }
//   }
//
// Every function that says so is called by all 32 lanes of a warp together; a lane without a request takes part too. Every loop has a
// deadline: a request that passes it ends with GN_TIMED_OUT, and its buffer stays with the channel.
#pragma once
#include "gnor/io.cuh"
#include "gnor/kernel.cuh"

namespace gn {

// An open volume with the channel that reaches it. What a kernel gets as its argument.
struct file {
  channel* c;
  volume* v;
  gn_u64 timeout_ns;  // per request

  GN_DEV gn_u32 pool_key() const { return c->data.rkey; }
};

// The block's bitmap of pending requests (paper figure 7): one bit a thread, one word a warp.
struct batch {
  gn_u32 pending[32];
  gn_u64 deadline[1024];
};

// Shared memory for a block of `threads`.
GN_DEV gn_u32 batch_bytes(gn_u32 threads) { return (gn_u32)sizeof(gn_u32) * 32 + threads * (gn_u32)sizeof(gn_u64); }

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

// --- buffers -------------------------------------------------------------------------------------------------------------------

// Registered memory from the channel's pool, at most 64 KiB; 0 when there is none. Any thread.
GN_DEV gn_u64 alloc(const file& f, gn_u32 bytes) {
  return pool_alloc(f.c->data, bytes, blockIdx.x * blockDim.x + threadIdx.x);
}

// Gives it back; `bytes` is what was asked for. Not after GN_TIMED_OUT.
GN_DEV void free(const file& f, gn_u64 address, gn_u32 bytes) { pool_free(f.c->data, address, bytes); }

// --- requests ------------------------------------------------------------------------------------------------------------------

// A read of `blocks` 4 KiB blocks at block `vba` into registered memory, and a write from it.
GN_DEV io read_request(const file& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key) {
  return io_make(*f.v, IO_READ, vba, blocks, address, key, 0);
}
GN_DEV io write_request(const file& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key, gn_u32 flags = 0) {
  return io_make(*f.v, IO_WRITE, vba, blocks, address, key, flags);
}

// Puts a request into the batch: the thread's bit is set until `dispatch` clears it. Any thread whose bit is clear.
GN_DEV void enter(batch& b, const file& f) {
  b.deadline[threadIdx.x] = now_ns() + f.timeout_ns;
  mem::or_acqrel_cta(&b.pending[warp_in_block()], 1u << lane_id());
}

// Stage 1: builds the next command of this thread's request. All lanes.
GN_DEV void submit(batch& b, const file& f, io& x) {
  if (batch_pending(b)) io_stage(*f.c, *f.v, x, blockIdx.x * blockDim.x + threadIdx.x);
  __syncwarp();
}

// Stage 2: sends what the warp has built, one doorbell an SSD. All lanes.
GN_DEV void commit(batch&, const file& f, io& x) { io_commit(*f.c, 0xffffffffu, x); }

// Stage 3: takes completions, for whichever request they are. All lanes. Returns how many.
GN_DEV gn_u32 poll(const file& f) { return take_completions(*f.c, 0xffffffffu); }

// Stage 4: true once, when this thread's request has ended; its status is x.status. All lanes.
GN_DEV bool dispatch(batch& b, const file& f, io& x) {
  bool ended = false;
  if (batch_pending(b)) {
    ended = io_finished(*f.c, *f.v, x);
    if (!ended && now_ns() > b.deadline[threadIdx.x]) {
      io_abandon(*f.c, x, x.blocks * GN_BLOCK);
      ended = true;
    }
    if (ended) mem::and_acqrel_cta(&b.pending[warp_in_block()], ~(1u << lane_id()));
  }
  __syncwarp();
  return ended;
}

// Runs a request of each lane that has one to its end; all lanes. Returns the lane's status.
GN_DEV gn_u32 run_warp(const file& f, bool have, io& x) {
  gn_u64 deadline = now_ns() + f.timeout_ns;
  gn_u32 hint = blockIdx.x * blockDim.x + threadIdx.x;
  bool busy = have;
  while (__any_sync(0xffffffffu, busy)) {
    if (busy) io_stage(*f.c, *f.v, x, hint);
    io_commit(*f.c, 0xffffffffu, x);
    poll(f);
    if (!busy) continue;
    if (io_finished(*f.c, *f.v, x)) busy = false;
    else if (now_ns() > deadline) {
      io_abandon(*f.c, x, x.blocks * GN_BLOCK);
      busy = false;
    }
  }
  return have ? x.status : (gn_u32)GN_OK;
}

// Blocking read and write; all lanes, each with a range of its own (`blocks` 0: none). Return the lane's status.
GN_DEV gn_u32 read_sync(const file& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key) {
  io x = read_request(f, vba, blocks ? blocks : 1, address, key);
  return run_warp(f, blocks != 0, x);
}
GN_DEV gn_u32 write_sync(const file& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key) {
  io x = write_request(f, vba, blocks ? blocks : 1, address, key);
  return run_warp(f, blocks != 0, x);
}

}  // namespace gn
