// SPDX-License-Identifier: Apache-2.0 OR MIT
// Cycles of the stages of one warp's pass on a GPU, with no HCA beside it. The warp plays the HCA itself: it
// writes the responses between two stages. So the figures are those of the device headers alone, and two
// builds can be compared to the percent (docs/decisions/0078).
//   nvcc -std=c++17 -O3 -arch=sm_90 -I fabric/cuda -I gnor/cuda -I libgnstor/include tests/gpu/stages.cu \
//     -o stages && ./stages
// After the last stage the warp polls once more with nothing to take, which is the idle poll.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "gnstor/gnstor.cuh"

namespace {

enum : gn_u32 { ROUNDS = 2000, WARM = 100, SSDS = 4, DEPTH = 32, CQ_LOG = 9, GROUPS = 1024, WIDTH = 4 };
enum { MAKE, SUBMIT, COMMIT, POLL, DISPATCH, IDLE, STAGES, UNFINISHED = STAGES, COUNTS };
const char* const STAGE[STAGES] = {"make", "submit", "commit", "poll", "dispatch", "idle poll"};

struct world {
  gn::channel* c;
  gn::volume* v;
  gn_u64* counts;   // COUNTS
  gn_u32 requests;  // of the warp in each round, one a lane
};

// What the warp knows as the HCA, besides its channel.
struct shared {
  gn::batch b;
  gn::smem_channel room;
  gn_u32 received[SSDS], acknowledged[SSDS], completions;
};

GN_DEV gn_u32 cycles() {
  gn_u32 v;
  __syncwarp();
  asm volatile("mov.u32 %0, %%clock;" : "=r"(v)::"memory");
  return v;
}

GN_DEV void complete(const gn::channel& c, gn_u32 at, gn_u32 opcode, gn_u32 queue, gn_u32 counter) {
  gn::mlx5::cqe64* e = (gn::mlx5::cqe64*)c.cq_addr + (at & ((1u << c.cq_log) - 1));
  gn_u32 last = gn::be32((counter & 0xffffu) << 16 | opcode << 4 | (at >> c.cq_log & 1u));
  gn::mem::st_release_sys((gn_u64*)&e->sop_qpn, gn::be32(c.first_qpn + queue) | (gn_u64)last << 32);
}

// Answers the command `cid` of each lane with `sent`, and acknowledges every eighth SEND. The whole warp.
// Returns the number of completions.
GN_DEV gn_u32 answer(shared& s, const gn::channel& c, bool sent, gn_u32 cid, gn_u32 ssd) {
  gn_u32 group = __match_any_sync(gn::ALL_LANES, sent ? ssd : (gn_u32)SSDS);
  gn_u32 all = __ballot_sync(gn::ALL_LANES, sent), total = (gn_u32)__popc(all);
  gn_u32 rank = (gn_u32)__popc(group & gn::lt_mask()), entry = (gn_u32)__popc(all & gn::lt_mask());
  if (sent) {
    gn_u32 at = s.received[ssd] + rank;
    gn_u64 place = gn::queue_of(c, ssd) + gn::SQ_AT + c.depth * gn::RECV_AT_EACH + (at & (c.depth - 1)) * 16;
    gn_u32 response[4] = {0, 0, 0, cid};
    gn::mem::st16((void*)place, response);
    complete(c, s.completions + entry, gn::mlx5::CQE_RESP_SEND, ssd, at);
  }
  __syncwarp();
  if (sent && rank == 0) s.received[ssd] += (gn_u32)__popc(group);
  __syncwarp();
  for (gn_u32 q = 0; q < SSDS; ++q) {
    gn_u32 end = s.received[q] / gn::SIGNAL_EVERY * gn::SIGNAL_EVERY;
    if (end == s.acknowledged[q]) continue;
    __syncwarp();
    if (threadIdx.x == 0) {
      complete(c, s.completions + total, gn::mlx5::CQE_REQ, q, end - 1);
      s.acknowledged[q] = end;
    }
    total += 1;
    __syncwarp();
  }
  gn::mem::fence_release_sys();
  if (threadIdx.x == 0) s.completions += total;
  __syncwarp();
  return total;
}

template <class X>
GN_DEV void rounds(const world& w) {
  __shared__ shared s;
  gn::batch_init(s.b);
  gn::warp_file f{w.c, w.v, 1000000000};
  f = gn::load_smem(f, s.room);
  if (threadIdx.x < SSDS) s.received[threadIdx.x] = s.acknowledged[threadIdx.x] = 0;
  if (threadIdx.x == 0) s.completions = 0;
  __syncwarp();
  const bool mine = threadIdx.x < w.requests;
  gn_u64 sum[COUNTS] = {};
  gn_u32 random = threadIdx.x;
  X x{};
  for (gn_u32 round = 0; round < ROUNDS; ++round) {
    random = random * 1664525u + 1013904223u;
    gn_u32 t[STAGES + 2];
    t[0] = cycles();
    if (mine) {
      x = gn::read_request(f, random >> 16, 1, 0x10000 + threadIdx.x * gn::GN_BLOCK, 7);
      gn::enter(s.b, f);
    }
    t[1] = cycles();
    gn::submit(s.b, f, x);
    t[2] = cycles();
    gn_u32 cid = x.cid, ssd = x.ssd;
    gn::commit(s.b, f, x);
    t[3] = cycles();
    gn_u32 total = answer(s, *f.c, mine, cid, ssd);
    gn_u32 from = cycles();
    gn_u32 taken = gn::poll(f);
    gn_u32 polled = cycles() - from;
    // acknowledgements beyond a pass
    while (taken < total) taken += gn::poll(f);
    t[4] = cycles();
    bool ended = gn::dispatch(s.b, f, x);
    t[5] = cycles();
    gn::poll(f);
    t[6] = cycles();
    if (mine && !ended) sum[UNFINISHED] += 1;
    if (round < WARM) continue;
    sum[MAKE] += t[1] - t[0], sum[SUBMIT] += t[2] - t[1], sum[COMMIT] += t[3] - t[2], sum[POLL] += polled;
    sum[DISPATCH] += t[5] - t[4], sum[IDLE] += t[6] - t[5];
  }
  if (threadIdx.x == 0)
    for (int i = 0; i < COUNTS; ++i) w.counts[i] = sum[i];
}

__global__ void reads(world w) { rounds<gn::read_io>(w); }
__global__ void any_requests(world w) { rounds<gn::io>(w); }

gn_u64 memory(size_t bytes, const void* from = nullptr) {
  void* p;
  if (cudaMalloc(&p, bytes) ||
      (from ? cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice) : cudaMemset(p, 0, bytes))) {
    fprintf(stderr, "stages: no GPU, or no memory on it\n");
    exit(1);
  }
  return (gn_u64)p;
}

// A channel to SSDS SSDs as the CPU builds it, with nothing in flight.
gn::channel channel() {
  gn::channel c{};
  std::vector<unsigned char> free(64 << CQ_LOG, 0xff);
  c.cq_log = CQ_LOG, c.ssds = SSDS, c.depth = DEPTH, c.first_qpn = 100, c.queue_lkey = 3;
  c.cq_addr = memory(free.size(), free.data());
  c.capsules_addr = memory(gn::SLOTS * 64);
  c.queues_addr = memory(2 * SSDS * (gn::SQ_AT + DEPTH * gn::QUEUE_BYTES_EACH));
  c.uars_addr = memory(2 * SSDS * gn::UAR_BYTES);
  c.waiting_addr = memory(SSDS * gn::SLOTS);
  c.parked_addr = memory(gn::SLOTS * gn::PARKED_BYTES);
  gn::queue_pair pairs[SSDS] = {};
  for (auto& p : pairs) p.gate = (gn_u64)DEPTH << 16;  // nothing sent, DEPTH blocks are free (gate.cuh)
  c.qps_addr = memory(sizeof pairs, pairs);
  return c;
}

gn::volume volume() {
  gn::volume v{};
  std::vector<gn_u16> table(2 * GROUPS * WIDTH + 2 * GROUPS, gn::PLACE_NONE);
  for (gn_u32 i = 0; i < 2 * GROUPS * WIDTH; ++i) table[i] = (gn_u16)((i / WIDTH + i % WIDTH) % SSDS);
  v.factor = 0x1234567, v.capacity_blocks = 1 << 20, v.groups = GROUPS, v.width = WIDTH, v.map = 5;
  v.vid = v.client = 1, v.replicas = 2, v.chunk_shift = 4, v.follows = gn::FOLLOWS_REFUSALS;
  v.places_addr = memory(table.size() * sizeof table[0], table.data());
  return v;
}

}  // namespace

int main() {
  gn_u64* counts;
  if (cudaMallocManaged(&counts, COUNTS * sizeof *counts)) counts = nullptr;
  for (int any = 0; counts && any < 2; ++any)
    for (gn_u32 requests : {32u, 8u, 2u}) {
      gn::channel c = channel();
      gn::volume v = volume();
      world w{(gn::channel*)memory(sizeof c, &c), (gn::volume*)memory(sizeof v, &v), counts, requests};
      if (any) any_requests<<<1, 32>>>(w);
      else reads<<<1, 32>>>(w);
      if (cudaDeviceSynchronize()) break;
      printf("%-12s %2u requests:", any ? "any request" : "reads", requests);
      gn_u64 pass = 0;
      for (int i = 0; i < STAGES; ++i) {
        printf("  %s %llu", STAGE[i], counts[i] / (ROUNDS - WARM));
        if (i != IDLE) pass += counts[i];
      }
      printf("  pass %llu cycles\n", pass / (ROUNDS - WARM));
      if (counts[UNFINISHED]) return fprintf(stderr, "stages: a request has not ended\n"), 1;
    }
  cudaError_t error = cudaGetLastError();
  if (error || !counts) fprintf(stderr, "stages: %s\n", error ? cudaGetErrorString(error) : "no GPU");
  return error || !counts;
}
