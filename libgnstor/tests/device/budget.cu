// SPDX-License-Identifier: Apache-2.0 OR MIT
// Kernels whose registers and instructions are counted. Each thread reads, cut at chunk borders, with a
// deadline, from 4 SSDs with 2 replicas each, or from any others. scripts/device-budget compiles this;
// nothing runs it.
#include "fabric/hca/agent.cuh"
#include "gnstor/gnstor.cuh"

template <class S>
struct read_args {
  gn::file_of<S> f;
  gn_u64 vba, address;
  gn_u32* status;
  gn_u32 blocks, key;
};

template <class S>
GN_DEV void sync_body(const read_args<S>& a) {
  gn_u32 t = gn::thread_number();
  a.status[t] = gn::read_sync(a.f, a.vba + t * a.blocks, a.blocks,
                              a.address + (gn_u64)t * a.blocks * gn::GN_BLOCK, a.key);
}

template <class S>
GN_DEV auto request_of(const read_args<S>& a) {
  gn_u32 t = gn::thread_number();
  return gn::read_request(a.f, a.vba + t * a.blocks, a.blocks,
                          a.address + (gn_u64)t * a.blocks * gn::GN_BLOCK, a.key);
}

template <class S>
GN_DEV void batch_body(const read_args<S>& a) {
  gn::batch& b = *(gn::batch*)gn::smem();
  gn::batch_init(b);
  auto x = request_of(a);
  gn::enter(b, a.f);
  while (gn::batch_busy(b)) {
    gn::submit(b, a.f, x);
    gn::commit(b, a.f, x);
    gn::poll(a.f);
    if (gn::dispatch(b, a.f, x)) a.status[gn::thread_number()] = x.status;
  }
}

GN_KERNEL read_sync(const read_args<gn::by_device>* a) { sync_body(*a); }
GN_KERNEL read_batch(const read_args<gn::by_device>* a) { batch_body(*a); }
GN_KERNEL read_sync_block(const read_args<gn::by_block>* a) { sync_body(*a); }
GN_KERNEL read_batch_block(const read_args<gn::by_block>* a) { batch_body(*a); }
GN_KERNEL read_sync_warp(const read_args<gn::by_warp>* a) { sync_body(*a); }
GN_KERNEL read_batch_warp(const read_args<gn::by_warp>* a) { batch_body(*a); }

// The variant with callbacks: an indirect call, and so a stack.
__device__ void filled(const gn::file& f, gn_u64 user, gn_u32 status, gn_u32) {
  gn::mem::st_relaxed_gpu((gn_u32*)user, status);
  gn::submit_async(f, gn::read_request(f, 0, 1, user, 0), 0, user);
}
__device__ gn::callback<> table[] = {filled};
GN_KERNEL read_async(const read_args<gn::by_device>* a) {
  gn::submit_async(a->f, request_of(*a), 0, (gn_u64)(a->status + gn::thread_number()));
  gn::drain(a->f, a->f.timeout_ns, gn::callbacks<>{table, 1});
}

// The parts alone, for the instructions in them.
GN_KERNEL append_warp(gn::channel* c, gn_u32 cid) {
  gn::append<gn::by_warp>(*c, 0xffffffffu, true, {cid + gn::lane_id(), cid, cid + gn::lane_id()});
}
GN_KERNEL complete_warp(gn::channel* c) { gn::take_completions<gn::by_warp>(*c, 0xffffffffu); }
GN_KERNEL append_device(gn::channel* c, gn_u32 cid) {
  gn::append<gn::by_device>(*c, 0xffffffffu, true, {cid + gn::lane_id(), cid, cid + gn::lane_id()});
}
GN_KERNEL complete_device(gn::channel* c) { gn::take_completions<gn::by_device>(*c, 0xffffffffu); }
