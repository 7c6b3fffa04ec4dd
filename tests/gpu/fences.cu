// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a fence costs on a GPU, in cycles, by its scope and by what else crosses PCIe (docs/decisions/0020).
//   nvcc -O2 -arch=sm_90 tests/gpu/fences.cu -o fences && ./fences
#include <cstdio>
#include <cuda_runtime.h>

typedef unsigned long long u64;

enum { ROUNDS = 200, SPAN = 8192, CASES = 8, LOADS = 4 };
enum { NONE, HOST_STORES, HOST_LOADS, DEVICE_STORES };

static const char* const CASE[CASES] = {"fence.acq_rel.gpu, nothing stored",
                                        "fence.acq_rel.sys, nothing stored",
                                        "fence.acquire.sys",
                                        "fence.acq_rel.gpu behind device stores",
                                        "fence.acq_rel.sys behind device stores",
                                        "fence.acq_rel.sys behind 32 x 128 B to the host",
                                        "ld.relaxed.sys, device memory",
                                        "ld.relaxed.sys, host memory"};
static const char* const LOAD[LOADS] = {"nothing beside", "stores to the host beside",
                                        "copies from the host beside", "device stores beside"};

__device__ void store(u64* p, u64 v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ u64 load(u64* p) {
  u64 v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

// Block 0 measures with one warp; the others make the load, 16 warps each.
__global__ void measure(u64* device, u64* host, int kind, volatile int* over, u64* out) {
  unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (blockIdx.x) {
    u64 at = ((u64)blockIdx.x * 32 + warp + 1) * SPAN, *d = device + at, *h = host + at;
    for (u64 i = 0; !*over; i += 512) {
      u64 v[16];
      for (int k = 0; k < 16; ++k) v[k] = kind == HOST_LOADS ? load(h + (i + k * 32 + lane) % SPAN) : i;
      if (kind == HOST_STORES) for (int k = 0; k < 2; ++k) store(h + (i + k * 32 + lane) % SPAN, v[k]);
      else for (int k = 0; k < 16; ++k) d[(i + k * 32 + lane) % SPAN] = v[k];
      if (kind != HOST_LOADS) __nanosleep(1000);
    }
    return;
  }
  if (warp) return;
  u64 *d = device + lane * 16, *h = host + lane * 16, seen = 0;
  for (int which = 0; which < CASES; ++which) {
    u64 sum = 0;
    for (int round = 0; round < ROUNDS; ++round) {
      if (which == 3 || which == 4) store(d, round);
      if (which == 5) for (int k = 0; k < 16; ++k) store(h + k, round);
      u64 start = clock64();
      switch (which) {
        case 0: case 3: asm volatile("fence.acq_rel.gpu;" ::: "memory"); break;
        case 1: case 4: case 5: asm volatile("fence.acq_rel.sys;" ::: "memory"); break;
        case 2: asm volatile("fence.acquire.sys;" ::: "memory"); break;
        case 6: seen += load(d); break;
        default: seen += load(h); break;
      }
      if (seen == 0x123456789ull) *over = 2;  // the load has ended
      sum += clock64() - start;
      __nanosleep(3000);
    }
    if (lane == 0) out[which] = sum / ROUNDS;
  }
  __syncwarp();
  if (lane == 0) *over = 1;
}

int main() {
  u64 *device, *host, *out;
  int* over;
  const size_t bytes = 64u << 20;
  if (cudaMalloc(&device, bytes) || cudaHostAlloc(&host, bytes, cudaHostAllocMapped) ||
      cudaMallocManaged(&out, CASES * sizeof(u64)) || cudaMalloc(&over, sizeof(int))) {
    fprintf(stderr, "fences: no GPU, or no memory on it\n");
    return 1;
  }
  for (int kind = 0; kind < LOADS; ++kind) {
    cudaMemset(over, 0, sizeof(int));
    measure<<<kind == NONE ? 1 : 9, kind == NONE ? 32 : 512>>>(device, host, kind, over, out);
    cudaError_t error = cudaDeviceSynchronize();
    if (error) {
      fprintf(stderr, "fences: %s\n", cudaGetErrorString(error));
      return 1;
    }
    printf("%s\n", LOAD[kind]);
    for (int which = 0; which < CASES; ++which) printf("  %-48s %6llu cycles\n", CASE[which], out[which]);
  }
}
