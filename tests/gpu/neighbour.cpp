// SPDX-License-Identifier: Apache-2.0 OR MIT
// A CUDA program beside libgnstor. Its CUDA calls must return while a kernel reads a volume, and the kernel
// must read on. A call that cannot work must fail with a sentence. Run it beside `gnstor up`:
//
//   gnstor up & neighbour 127.0.0.1:7117
//
// It prints a line for each check. The exit code is 1 if a check fails, and 2 without a GPU or an array.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gnstor.h>
#include <string.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "neighbour.h"

asm(".section .rodata\n.balign 16\nneighbour_image: .incbin \"" IMAGE
    "\"\nneighbour_image_end:\n.previous\n");
extern "C" const char neighbour_image[], neighbour_image_end[];

namespace {

enum { PATIENCE = 400, LAUNCH_S = 3, SOON_S = 1, END_S = 10 };
enum : unsigned { VOLUME_BYTES = 16u << 20, BATCH_HEAD = 128, BATCH_THREAD = 8 };

int failures = 0;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check(bool good, const char* what, const std::string& told) {
  printf("%-4s %s: %s\n", good ? "ok" : "FAIL", what, told.c_str());
  fflush(stdout);
  failures += !good;
}

[[noreturn]] void cannot(const std::string& why) {
  fprintf(stderr, "neighbour: %s\n", why.c_str());
  exit(2);
}

// Finds an entry of the driver. The program itself is linked only with the runtime.
template <class F>
F driver(const char* name) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void* entry = library ? dlsym(library, name) : nullptr;
  if (!entry) cannot(std::string(name) + " is not in the CUDA driver");
  return reinterpret_cast<F>(entry);
}

std::string seconds(double s) {
  char text[32];
  snprintf(text, sizeof text, "%.3f s", s);
  return text;
}

gn_kernel kernel_named(const char* name) {
  return {name, neighbour_image, (size_t)(neighbour_image_end - neighbour_image), nullptr};
}

struct setting {
  gn_node* node = nullptr;
  gn_client* client = nullptr;
  gn_file* file = nullptr;
  gn_kernel kernel = {};
  // the kernel's argument; freeing it beside a kernel that holds the GPU would wait for that
  gn_memory* memory = nullptr;
  CUmodule module = nullptr;
  CUfunction holding = nullptr, adding = nullptr;
  int multiprocessors = 0;
};

// The result of a launch.
struct ended {
  int code = 0;
  std::string error;
  reading_args args = {};
  double seconds = 0;

  bool well() const { return code == 0 && args.failed == 0 && args.wrong == 0 && args.reads > 0; }
  std::string told() const {
    if (code) return error;
    return std::to_string(args.reads) + " reads right, " + std::to_string(args.wrong) + " wrong, " +
           std::to_string(args.failed) + " failed, " + ::seconds(seconds);
  }
};

// Reads the volume with `threads` threads a block: for a time, or one block a thread.
ended read_volume(const setting& s, unsigned blocks, unsigned threads, double runtime_s) {
  ended e;
  gn_kernel_file file;
  e.code = gn_device_file(s.file, &file);
  memcpy(e.args.file, &file, sizeof file);
  e.args.blocks = VOLUME_BYTES / GN_BLOCK_BYTES;
  e.args.runtime_ns = (unsigned long long)(runtime_s * 1e9);
  if (!e.code) e.code = gn_memory_write(s.memory, 0, &e.args, sizeof e.args);
  double began = now_s();
  if (!e.code)
    e.code = gn_launch(s.node, &s.kernel, blocks, threads, BATCH_HEAD + BATCH_THREAD * threads,
                       gn_memory_address(s.memory), 60ull * 1000000000);
  e.seconds = now_s() - began;
  if (e.code) e.error = gn_last_error();
  if (!e.code) e.code = gn_memory_read(s.memory, 0, &e.args, sizeof e.args);
  return e;
}

// Calls `what` one second into a launch. It must return 0 at the latest when the launch has ended, and the
// launch must succeed.
void during(const setting& s, const char* name, bool at_once, const std::function<int()>& what) {
  ended e;
  printf("...  %s\n", name);  // should it never return, this is the last line
  fflush(stdout);
  std::thread launch([&] { e = read_volume(s, 4, 64, LAUNCH_S); });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  double began = now_s();
  int code = what();
  double took = now_s() - began;
  launch.join();
  bool in_time = took < (at_once ? SOON_S : END_S);
  check(code == 0 && in_time && e.well(), name,
        "code " + std::to_string(code) + " after " + seconds(took) + "; launch: " + e.told());
}

int load_and_unload() {
  CUmodule module;
  int code = driver<decltype(&cuModuleLoadData)>("cuModuleLoadData")(&module, neighbour_image);
  return code ? code : driver<decltype(&cuModuleUnload)>("cuModuleUnload")(module);
}

int allocate_and_free() {
  void* memory = nullptr;
  int code = cudaMalloc(&memory, 1 << 20);
  return code ? code : cudaFree(memory);
}

CUresult launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream, void* argument) {
  void* arguments[] = {&argument};
  auto call = driver<decltype(&cuLaunchKernel)>("cuLaunchKernel");
  return call(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr);
}

CUresult launch_cooperative(CUfunction function, unsigned blocks, unsigned threads, CUstream stream,
                            void* argument) {
  void* arguments[] = {&argument};
  auto call = driver<decltype(&cuLaunchCooperativeKernel)>("cuLaunchCooperativeKernel");
  return call(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments);
}

cudaStream_t stream() {
  cudaStream_t made;
  if (cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking)) cannot("no stream");
  return made;
}

int per_multiprocessor(CUfunction function, int threads) {
  int blocks = 0;
  auto call = driver<decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor)>(
      "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  if (call(&blocks, function, threads, 0)) cannot("no occupancy");
  return blocks;
}

// CUDA's own calls, with and without a resident agent.
void calls(const setting& s) {
  for (auto& [name, call] : std::vector<std::pair<const char*, int (*)()>>{
           {"cudaMalloc and cudaFree between launches", allocate_and_free},
           {"a module loaded between launches", load_and_unload},
           {"cudaDeviceSynchronize between launches", [] { return (int)cudaDeviceSynchronize(); }}}) {
    double began = now_s();
    int code = call();
    check(code == 0 && now_s() - began < SOON_S, name,
          "code " + std::to_string(code) + " after " + seconds(now_s() - began));
  }
  during(s, "cudaDeviceSynchronize beside a launch", false, [] { return (int)cudaDeviceSynchronize(); });
  during(s, "cudaMalloc and cudaFree beside a launch", false, allocate_and_free);
  during(s, "a module loaded beside a launch", false, load_and_unload);
  unsigned* sum;
  if (cudaMalloc((void**)&sum, 4) || cudaMemset(sum, 0, 4)) cannot("no memory");
  cudaStream_t own = stream();
  // A launch before the check, since the first launch of a kernel loads it.
  auto add = [&] {
    int code = launch(s.adding, 64, 32, own, sum);
    return code ? code : (int)cudaStreamSynchronize(own);
  };
  add();
  during(s, "a kernel of the user's own beside a launch", true, add);
  unsigned there = 0;
  cudaMemcpy(&there, sum, 4, cudaMemcpyDeviceToHost);
  check(there == 2 * 64 * 32, "what it has added", std::to_string(there));
  cudaFree(sum);
  cudaStreamDestroy(own);
}

// A grid. `together`: all its blocks are resident at once.
struct grid {
  bool together;
  unsigned blocks, threads;
};

// Launches `kernel` with `args`, and copies `args` back.
template <class A>
int launch_with(const setting& s, const gn_kernel& kernel, const grid& g, A& args) {
  gn_memory* memory = nullptr;
  gn_kernel_file file;
  int code = gn_device_file(s.file, &file);
  memcpy(args.file, &file, sizeof file);
  args.blocks = VOLUME_BYTES / GN_BLOCK_BYTES;
  if (!code) code = gn_memory_alloc(s.node, sizeof args, &memory);
  if (!code) code = gn_memory_write(memory, 0, &args, sizeof args);
  auto call = g.together ? gn_launch_together : gn_launch;
  const unsigned long long patience = 60ull * 1000000000;
  if (!code) code = call(s.node, &kernel, g.blocks, g.threads, 0, gn_memory_address(memory), patience);
  if (!code) code = gn_memory_read(memory, 0, &args, sizeof args);
  gn_memory_free(memory);
  return code;
}

// A pool that grows while the kernel runs, with blocks that wait for each other.
void growth(const setting& s) {
  enum : unsigned { THREADS = 64, BLOCKS = 8, BYTES = 64 << 10 };  // 32 MiB, where the pool begins with 8
  gn_kernel kernel = kernel_named("neighbour_growing");
  unsigned most = 0;
  if (gn_max_blocks(s.node, &kernel, THREADS, 0, &most)) cannot(gn_last_error());
  for (int round = 0; round < 2; ++round) {
    growing_args args = {};
    args.bytes = BYTES;
    int code = launch_with(s, kernel, {true, BLOCKS, THREADS}, args);
    bool all = args.right == BLOCKS * THREADS * (BYTES / GN_BLOCK_BYTES);
    check(code == 0 && all && !args.without && !args.failed && !args.wrong,
          round ? "the same again, in the pool that has grown"
                : "512 threads that hold 32 MiB of a pool of 8 at once",
          code ? gn_last_error()
               : std::to_string(args.right) + " blocks right, " + std::to_string(args.wrong) + " wrong, " +
                     std::to_string(args.without) + " threads without a buffer, " +
                     std::to_string(args.failed) + " failed");
  }
  growing_args args = {};
  args.bytes = GN_BLOCK_BYTES;
  int code = launch_with(s, kernel, {true, most + 1, THREADS}, args);
  bool told =
      code != 0 && std::string(gn_last_error()).find("at most " + std::to_string(most)) != std::string::npos;
  check(told && args.arrived == 0, "more blocks that wait for each other than fit",
        code ? gn_last_error() : "was launched");
}

// Buffers in pieces, and ranges that many threads read together.
void pieces(const setting& s) {
  enum : unsigned { THREADS = 128, RIGHT = THREADS / 4 * 4 * 16 + 2 * TOGETHER };
  pieces_args args = {};
  int code = launch_with(s, kernel_named("neighbour_pieces"), {false, 1, THREADS}, args);
  check(code == 0 && args.right == RIGHT && !args.without && !args.whole && !args.failed && !args.wrong,
        "buffers in pieces, and ranges that a block and a warp read together",
        code ? gn_last_error()
             : std::to_string(args.right) + " blocks right, " + std::to_string(args.wrong) + " wrong, " +
                   std::to_string(args.failed) + " failed, " + std::to_string(args.without) +
                   " without a buffer, " + std::to_string(args.whole) + " not in pieces");
}

// Requests for which no thread waits.
void callbacks(const setting& s) {
  calling_args args = {};
  args.reads = 100000;
  int code = launch_with(s, kernel_named("neighbour_calling"), {false, 2, 64}, args);
  check(code == 0 && args.right == args.reads && !args.failed && !args.wrong && !args.left,
        "chains of reads whose callbacks begin the next",
        code ? gn_last_error()
             : std::to_string(args.right) + " reads right, " + std::to_string(args.wrong) + " wrong, " +
                   std::to_string(args.failed) + " failed, " + std::to_string(args.left) + " slots taken");
  check(gn_drain(s.file, 1000000000) == 0, "nothing is left in the channel", "");
}

// Grids that want the whole GPU.
void full(const setting& s) {
  ended e = read_volume(s, (unsigned)s.multiprocessors * 12, 256, 0);
  bool all = e.args.reads == (unsigned long long)s.multiprocessors * 12 * 256;
  check(e.well() && all, "a launch of more threads than the GPU holds", e.told());
  unsigned *go, *go_device;
  if (cudaHostAlloc((void**)&go, 4, cudaHostAllocMapped) ||
      cudaHostGetDevicePointer((void**)&go_device, go, 0))
    cannot("no memory");
  cudaStream_t own = stream();
  unsigned room = (unsigned)(s.multiprocessors * per_multiprocessor(s.holding, 1024));

  __atomic_store_n(go, 0u, __ATOMIC_RELEASE);
  int code = launch(s.holding, room, 1024, own, go_device);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  double began = now_s();
  e = read_volume(s, 1, 32, 0);
  double took = now_s() - began;
  bool told = e.code != 0 && e.error.find("did not become resident") != std::string::npos;
  check(code == 0 && told && took < 2 * END_S, "a launch where another kernel holds every multiprocessor",
        e.told() + " after " + seconds(took));
  __atomic_store_n(go, 1u, __ATOMIC_RELEASE);
  code = cudaStreamSynchronize(own);
  e = read_volume(s, 4, 64, 0);
  check(code == 0 && e.well(), "the next launch, when it has gone", e.told());

  code = launch_cooperative(s.holding, room + 1, 1024, own, go_device);
  check(code == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "a cooperative grid that never fits",
        "code " + std::to_string(code));
  during(s, "a cooperative grid of the whole GPU beside a launch", false, [&] {
    int code = launch_cooperative(s.holding, room, 1024, own, go_device);
    return code ? code : (int)cudaStreamSynchronize(own);
  });
  cudaFreeHost(go);
  cudaStreamDestroy(own);
}

void set_up(setting& s, const char* array) {
  if (gn_node_open("cuda", &s.node)) cannot(gn_last_error());
  if (gn_connect(s.node, array, &s.client)) cannot(gn_last_error());
  gn_create_options options = {};
  options.capacity_bytes = VOLUME_BYTES;
  options.replicas = 2;
  if (gn_volume_create(s.client, "neighbour", &options, nullptr)) cannot(gn_last_error());
  if (gn_open(s.client, "neighbour", GN_READ | GN_WRITE, &s.file)) cannot(gn_last_error());
  std::vector<unsigned long long> data(VOLUME_BYTES / 8, 0x5555555555555555ull);
  for (unsigned long long block = 0; block < VOLUME_BYTES / GN_BLOCK_BYTES; ++block)
    data[block * GN_BLOCK_BYTES / 8] = block * BLOCK_SALT;
  if (gn_write_at(s.file, 0, data.data(), VOLUME_BYTES) || gn_flush(s.file)) cannot(gn_last_error());
  if (gn_memory_alloc(s.node, sizeof(reading_args), &s.memory)) cannot(gn_last_error());
  s.kernel = kernel_named("neighbour_reading");
  if (cudaSetDevice(0) || cudaDeviceGetAttribute(&s.multiprocessors, cudaDevAttrMultiProcessorCount, 0))
    cannot("no attribute");
  auto load = driver<decltype(&cuModuleLoadData)>("cuModuleLoadData");
  auto function = driver<decltype(&cuModuleGetFunction)>("cuModuleGetFunction");
  if (load(&s.module, neighbour_image) || function(&s.holding, s.module, "neighbour_holding") ||
      function(&s.adding, s.module, "neighbour_adding"))
    cannot("the program's own kernels cannot be loaded");
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) cannot("usage: neighbour HOST:PORT (of a running gnstor up)");
  alarm(PATIENCE);  // nothing here may hang: then the signal ends it
  setting s;
  set_up(s, words[1]);
  ended e = read_volume(s, 4, 64, 1);
  check(e.well(), "a launch alone", e.told());
  callbacks(s);
  pieces(s);
  growth(s);
  calls(s);
  full(s);
  e = read_volume(s, 4, 64, 1);
  check(e.well(), "a launch after all that", e.told());
  gn_memory_free(s.memory);
  gn_close(s.file);
  check(gn_volume_delete(s.client, "neighbour") == 0, "the volume is deleted", "");
  gn_disconnect(s.client);
  gn_node_close(s.node);
  check(cudaDeviceSynchronize() == cudaSuccess, "the context is sound at the end", "");
  printf("%d failed\n", failures);
  return failures != 0;
}
