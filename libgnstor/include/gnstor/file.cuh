// SPDX-License-Identifier: Apache-2.0 OR MIT
// An open volume in a kernel, memory of its pool, and requests to it.
#pragma once
#include "gnor/async.cuh"
#include "gnor/smem.cuh"

namespace gn {

// An open volume with its channel: the argument of a kernel. `S` says which threads share the channel
// (gnor/sharing.cuh). `file` is for any warps, `block_file` for the warps of one block, and `warp_file` for
// one warp alone or one of its threads. All have the same bytes. If two warps use a channel as a `warp_file`,
// or it is used as two of these at once, it is broken.
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

// A file whose channel is in the block's shared memory until `write_back`, which makes each step of a request
// faster. `room` is shared memory. One block must have the channel to itself for that time, and all its
// threads call this together. Use the result in place of `f`. Requests in flight go on.
template <class S>
GN_DEV file_of<S> load_smem(const file_of<S>& f, smem_channel& room) {
  static_assert(S::IN_BLOCK, "other blocks do not see it there: a block_file or a warp_file");
  return {&load_smem(*f.c, room), f.v, f.timeout_ns};
}
// Without this call the channel is broken when the kernel has ended.
template <class S>
GN_DEV void write_back(const file_of<S>& f, smem_channel& room) {
  write_back(*f.c, room);
}

enum : gn_u32 { ALL_LANES = 0xffffffffu };

GN_DEV gn_u32 thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Registered memory from the channel's pool, at most 1 MiB, contiguous; 0 when there is none. Any thread may
// call it. Of a warp_file the lanes of `mask` call it together.
template <class S>
GN_DEV gn_u64 alloc(const file_of<S>& f, gn_u32 bytes, gn_u32 mask = ALL_LANES) {
  gn_u64 buffer = 0;
  in_turns<S>(mask, true, [&] { buffer = pool_alloc<S>(f.c->data, bytes, thread_number()); });
  return buffer;
}

// Polls until `get` is satisfied in every lane of `mask`, or the file's deadline has passed.
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

// As `alloc`, but polls until there is memory or the file's deadline has passed. The lanes of `mask` call it
// together. A lane with `bytes` 0 wants none.
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

// Gives memory back. `bytes` is the number from the allocation; an address of 0 means none. Call it when no
// request on the memory is in flight, or after GN_TIMED_OUT. As `alloc`.
template <class S>
GN_DEV void free(const file_of<S>& f, gn_u64 address, gn_u32 bytes, gn_u32 mask = ALL_LANES) {
  in_turns<S>(mask, address != 0, [&] { pool_free<S>(f.c->data, address, bytes); });
}

// The same for memory that need not be contiguous. If contiguous room is there, `b` is contiguous. Else it
// has up to 16 pieces, each a page or a block of 64 KiB. `b.at(offset)` is the place of a byte. Returns
// whether there is a buffer; one without pages is none. If several warps gather pieces at once, perhaps only
// one gets some. Until it is freed, `b` must not move or change: in global memory if submit_async uses it.
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
  return io_make<read_io>(*f.v, IO_READ, {vba, blocks}, io_memory{address, key}, 0);
}
template <class S>
GN_DEV io write_request(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, gn_u64 address, gn_u32 key,
                        gn_u32 flags = 0) {
  return io_make(*f.v, IO_WRITE, {vba, blocks}, io_memory{address, key}, flags);
}

// The same with a buffer of the pool, from its page `first` on. Requests on different parts of it may be in
// flight at once.
template <class S>
GN_DEV io read_request(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, const buffer& b, gn_u32 first = 0) {
  return io_make(*f.v, IO_READ, {vba, blocks}, io_pages{b, first, f.pool_key()}, 0);
}
template <class S>
GN_DEV io write_request(const file_of<S>& f, gn_u64 vba, gn_u32 blocks, const buffer& b, gn_u32 first = 0,
                        gn_u32 flags = 0) {
  return io_make(*f.v, IO_WRITE, {vba, blocks}, io_pages{b, first, f.pool_key()}, flags);
}
// A temporary would be gone when the request begins.
template <class S>
io read_request(const file_of<S>&, gn_u64, gn_u32, const buffer&&, gn_u32 = 0) = delete;
template <class S>
io write_request(const file_of<S>&, gn_u64, gn_u32, const buffer&&, gn_u32 = 0, gn_u32 = 0) = delete;

// The number of commands of a request; each is one RDMA operation if nothing fails. For a read that was
// retried elsewhere it counts the commands of the last try. Call it before freeing the buffer.
template <class S, class X>
GN_DEV gn_u32 rdma_operations(const file_of<S>& f, const X& x) {
  return io_issued(*f.v, x);
}

}  // namespace gn
