// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the trips of one I/O cost on a GPU with nothing beside them, in cycles (docs/decisions/0026). They are
//   accesses, atomics, fences, hand-overs between multiprocessors and to the CPU, and copies of 4 KiB from
//   host memory. nvcc -O2 -arch=sm_90 tests/gpu/trips.cu -o trips && ./trips
#include <cstdint>
#include <cstdio>
#include <cuda_runtime.h>
#include <thread>

typedef unsigned long long u64;
typedef unsigned int u32;

enum { ROUNDS = 200, CASES = 16, HOST_BYTES = 256 << 20, DEVICE_BYTES = 64 << 20, COPY = 4096 };

__device__ u32 cycles() {
  u32 v;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(v)::"memory");
  return v;
}
#define ACCESS(NAME, PTX)                                        \
  __device__ u32 NAME(u32* p) {                                  \
    u32 v;                                                       \
    asm volatile(PTX : "=r"(v) : "l"(p) : "memory");             \
    return v;                                                    \
  }
ACCESS(load_sys, "ld.relaxed.sys.u32 %0, [%1];")
ACCESS(load_gpu, "ld.relaxed.gpu.u32 %0, [%1];")
ACCESS(load_acquire, "ld.acquire.sys.u32 %0, [%1];")
ACCESS(load_weak, "ld.weak.u32 %0, [%1];")
ACCESS(add_relaxed, "atom.relaxed.gpu.add.u32 %0, [%1], 0;")
ACCESS(add_ordered, "atom.acq_rel.gpu.add.u32 %0, [%1], 0;")
ACCESS(add_block, "atom.acq_rel.cta.add.u32 %0, [%1], 0;")
__device__ void store(u32* p, u32 v) {
  asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ void fence_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

const char* const CASE[CASES] = {"nothing",
                                 "ld.relaxed.sys",
                                 "ld.relaxed.gpu",
                                 "ld.acquire.sys",
                                 "ld, behind an acquire of another word",
                                 "ld of shared memory",
                                 "atom.relaxed.gpu",
                                 "atom.acq_rel.gpu",
                                 "atom.acq_rel.cta of shared memory",
                                 "st",
                                 "fence.acq_rel.gpu",
                                 "fence.acq_rel.gpu behind a store",
                                 "fence.acq_rel.sys behind a store",
                                 "the same behind eight",
                                 "two of them, a store each",
                                 "ld.relaxed.sys of host memory"};

__device__ u32 one(int which, u32* d, u32* h, u32* s) {
  switch (which) {
    case 1: return load_sys(d);
    case 2: return load_gpu(d);
    case 3: return load_acquire(d);
    case 4: return load_weak(d + load_acquire(d + 8));
    case 5: return load_weak(s);
    case 6: return add_relaxed(d);
    case 7: return add_ordered(d);
    case 8: return add_block(s);
    case 9: store(d, 0); break;
    case 10: fence_gpu(); break;
    case 11: store(d, 0), fence_gpu(); break;
    case 12: store(d, 0), fence_sys(); break;
    case 13: for (int i = 0; i < 8; ++i) store(d + i * COPY, 0); fence_sys(); break;
    case 14: store(d, 0), fence_sys(), store(d, 0), fence_sys(); break;
    case 15: return load_sys(h);
    default: break;
  }
  return 0;
}

__global__ void accesses(u32* device, u32* host, u64* out) {
  __shared__ u32 shared[1];
  if (threadIdx.x == 0) shared[0] = 0;
  __syncthreads();
  for (int which = 0; which < CASES; ++which) {
    u64 sum = 0;
    for (int round = 0; round < ROUNDS; ++round) {
      __nanosleep(2000);
      u32 start = cycles(), seen = one(which, device + threadIdx.x * 32, host + threadIdx.x * 4, shared);
      if (seen == 0x12345) out[CASES] = 1;  // the load has ended
      sum += cycles() - start;
    }
    if (threadIdx.x == 0) out[which] = sum / ROUNDS;
  }
}

// A word goes to the other block and comes back in another.
__global__ void between_blocks(u32* there, u32* back, u64* out) {
  u32 start = cycles();
  for (u32 i = 1; i <= ROUNDS; ++i) {
    if (blockIdx.x == 0) {
      store(there, i);
      while (load_acquire(back) != i) {}
    } else {
      while (load_acquire(there) != i) {}
      store(back, i);
    }
  }
  if (blockIdx.x == 0) *out = (cycles() - start) / ROUNDS;
}

__global__ void to_the_cpu(u32* there, u32* back, u64* out) {
  u32 start = cycles();
  for (u32 i = 1; i <= ROUNDS; ++i) {
    store(there, i);
    while (load_sys(back) != i) {}
  }
  *out = (cycles() - start) / ROUNDS;
}

enum Kind { STRONG, WEAK, NOT_KEPT, ASYNC, BULK, KINDS };
const char* const KIND[KINDS] = {"ld.relaxed.sys.v4", "ld.v4", "ld.L1::no_allocate.v4", "cp.async",
                                 "cp.async.bulk"};

template <int KIND_> __device__ void load16(const char* p, u32 v[4]) {
  if constexpr (KIND_ == STRONG)
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(p)
                 : "memory");
  else if constexpr (KIND_ == WEAK)
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(p)
                 : "memory");
  else
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(p)
                 : "memory");
}

__device__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// One warp copies 4 KiB of host memory, through shared memory where the kind wants that.
template <int KIND_>
__device__ void copy(const char* from, char* to, char* shared, u64* barrier, u32 parity) {
  u32 lane = threadIdx.x % 32, done = 0;
  if constexpr (KIND_ <= NOT_KEPT) {
    u32 v[8][4];
    for (int k = 0; k < 8; ++k) load16<KIND_>(from + k * 512 + lane * 16, v[k]);
    for (int k = 0; k < 8; ++k)
      *(uint4*)(to + k * 512 + lane * 16) = make_uint4(v[k][0], v[k][1], v[k][2], v[k][3]);
    return;
  }
  if constexpr (KIND_ == ASYNC) {
    for (int k = 0; k < 8; ++k)
      asm volatile(
          "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared + k * 512 + lane * 16)),
          "l"(from + k * 512 + lane * 16)
          : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
  }
  if constexpr (KIND_ == BULK) {
    u32 at = shared_address(barrier);
    if (lane == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"((u32)COPY) : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
              shared_address(shared)),
          "l"(from), "r"((u32)COPY), "r"(at)
          : "memory");
    }
    __syncwarp();
    while (!done)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(at), "r"(parity)
                   : "memory");
  }
  __syncwarp();
  for (int k = 0; k < 8; ++k) *(uint4*)(to + k * 512 + lane * 16) = *(uint4*)(shared + k * 512 + lane * 16);
}

template <int KIND_> __global__ void copies(const char* host, char* device, u64* out) {
  __shared__ __align__(128) char shared[8][COPY];
  __shared__ u64 barrier[8];
  u32 warp = threadIdx.x / 32, me = blockIdx.x * (blockDim.x / 32) + warp, seed = me * 7919;
  if (threadIdx.x % 32 == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(&barrier[warp])) : "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  u64 sum = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    seed = seed * 1664525u + 1013904223u;
    if (gridDim.x == 1) __nanosleep(2000);
    u32 start = cycles();
    copy<KIND_>(host + (u64)(seed >> 12) % (HOST_BYTES / COPY) * COPY,
                device + (u64)me * 65536 + round % 16 * COPY, shared[warp], &barrier[warp], round & 1);
    fence_gpu();
    sum += cycles() - start;
  }
  if (threadIdx.x % 32 == 0) out[me] = sum / ROUNDS;
}

template <int KIND_> void show_copies(const char* host, char* device, u64* out) {
  printf("  %-24s", KIND[KIND_]);
  const int shapes[][2] = {{1, 1}, {1, 8}, {7, 8}};
  for (auto& shape : shapes) {
    for (int warm = 0; warm < 2; ++warm) {
      copies<KIND_><<<shape[0], shape[1] * 32>>>(host, device, out);
      cudaDeviceSynchronize();
    }
    u64 sum = 0;
    for (int i = 0; i < shape[0] * shape[1]; ++i) sum += out[i];
    printf("  %d x %d warps: %6llu", shape[0], shape[1], sum / (shape[0] * shape[1]));
  }
  printf("\n");
}

int main() {
  u32* device;
  volatile u32* host;
  u64* out;
  if (cudaMalloc(&device, DEVICE_BYTES) || cudaHostAlloc((void**)&host, HOST_BYTES, cudaHostAllocMapped) ||
      cudaMallocManaged(&out, 4096)) {
    fprintf(stderr, "trips: no GPU, or no memory on it\n");
    return 1;
  }
  cudaMemset(device, 0, DEVICE_BYTES);
  for (u64 at = 0; at < HOST_BYTES / 4; at += 1024) host[at] = 0;
  for (int lanes = 1; lanes <= 32; lanes += 31) {
    for (int warm = 0; warm < 2; ++warm) {
      accesses<<<1, lanes>>>(device, (u32*)host, out);
      cudaDeviceSynchronize();
    }
    printf("%d lanes\n", lanes);
    for (int which = 0; which < CASES; ++which) printf("  %-40s %6llu\n", CASE[which], out[which]);
  }
  between_blocks<<<2, 1>>>(device + 1024, device + 2048, out);
  cudaDeviceSynchronize();
  printf("to another block and back                  %6llu\n", *out);
  std::thread cpu([&] {
    for (u32 i = 1; i <= ROUNDS; ++i) {
      while (host[0] != i) {}
      host[64] = i;
    }
  });
  to_the_cpu<<<1, 1>>>((u32*)host, (u32*)host + 64, out);
  cudaDeviceSynchronize();
  cpu.join();
  printf("to a CPU that polls and back               %6llu\n", *out);
  printf("4 KiB from host memory, with a fence of GPU scope\n");
  show_copies<STRONG>((const char*)host, (char*)device, out);
  show_copies<WEAK>((const char*)host, (char*)device, out);
  show_copies<NOT_KEPT>((const char*)host, (char*)device, out);
  show_copies<ASYNC>((const char*)host, (char*)device, out);
  show_copies<BULK>((const char*)host, (char*)device, out);
  cudaError_t error = cudaGetLastError();
  if (error) fprintf(stderr, "trips: %s\n", cudaGetErrorString(error));
  return error != cudaSuccess;
}
