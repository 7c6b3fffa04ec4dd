// SPDX-License-Identifier: Apache-2.0 OR MIT
// The host program of read_volume.cu. It opens a volume, launches the kernel, which reads all of it, and
// compares the kernel's sum with the sum of what the host reads.
//
//   read_volume HOST:PORT VOLUME [FATBIN]      with FATBIN on a GPU (see read_volume.cu), else on the CPU
//
// docs/tutorial.md ("A kernel of your own") has the commands that compile and link it.
#include <gnstor.h>
#include <stdio.h>
#include <stdlib.h>

// The kernel's argument: the same layout as in read_volume.cu.
struct read_volume_args {
  gn_kernel_file file;
  uint32_t blocks, failed;
  uint64_t sum;
};
void read_volume(void *launch);  // the kernel, compiled by a C++ compiler

static void check(int result) {
  if (result == 0) return;
  fprintf(stderr, "read_volume: %s\n", gn_last_error());
  exit(1);
}

static void *contents(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  void *data = file && fseek(file, 0, SEEK_END) == 0 ? malloc(*bytes = (size_t)ftell(file)) : NULL;
  if (data) rewind(file);
  if (!data || fread(data, 1, *bytes, file) != *bytes) {
    fprintf(stderr, "read_volume: cannot read %s\n", path);
    exit(1);
  }
  fclose(file);
  return data;
}

// Reads 4 MiB a call. Each call launches a kernel, which has up to 128 requests in flight.
static uint64_t sum_of(gn_file *file, uint64_t bytes) {
  static uint64_t part[(4u << 20) / 8];
  uint64_t sum = 0;
  for (uint64_t at = 0; at < bytes; at += sizeof part) {
    size_t length = bytes - at < sizeof part ? (size_t)(bytes - at) : sizeof part;
    check(gn_read_at(file, at, part, length));
    for (size_t i = 0; i < length / 8; ++i) sum += part[i];
  }
  return sum;
}

int main(int argc, char **argv) {
  enum { BLOCKS = 2, THREADS = 64, SHARED = 128 + 8 * THREADS };  // SHARED is gn::batch_bytes(THREADS)
  const uint64_t minute_ns = 60000000000u;
  gn_kernel kernel = {"read_volume", NULL, 0, read_volume};
  gn_node *node;
  gn_client *client;
  gn_file *file;
  gn_memory *memory;
  gn_volume_info info;
  struct read_volume_args args = {0};
  if (argc < 3) return fprintf(stderr, "usage: read_volume HOST:PORT VOLUME [FATBIN]\n"), 2;
  if (argc > 3) kernel.image = contents(argv[3], &kernel.image_bytes);
  check(gn_node_open(argc > 3 ? "cuda" : "host", &node));
  check(gn_connect(node, argv[1], &client));
  check(gn_open(client, argv[2], GN_READ, &file));
  check(gn_file_info(file, &info));
  check(gn_device_file(file, &args.file));
  args.blocks = (uint32_t)(info.capacity_bytes / GN_BLOCK_BYTES);
  check(gn_memory_alloc(node, sizeof args, &memory));
  check(gn_memory_write(memory, 0, &args, sizeof args));
  check(gn_launch(node, &kernel, BLOCKS, THREADS, SHARED, gn_memory_address(memory), minute_ns));
  check(gn_memory_read(memory, 0, &args, sizeof args));
  uint64_t expected = sum_of(file, info.capacity_bytes);
  printf("%u blocks, %u failed, sum %016llx, the host's %016llx\n", args.blocks, args.failed,
         (unsigned long long)args.sum, (unsigned long long)expected);
  gn_memory_free(memory);
  gn_close(file);
  gn_disconnect(client);
  gn_node_close(node);
  return args.failed || args.sum != expected;
}
