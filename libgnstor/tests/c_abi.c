// SPDX-License-Identifier: Apache-2.0 OR MIT
// The interface as a C program sees it without an array: layouts, error numbers and words, and the order of
// closing. Run by c_abi.rs.
#include <errno.h>
#include <gnstor.h>
#include <stdio.h>
#include <string.h>

static int failed;
static void check(int ok, const char *what, int line) {
  if (ok) return;
  fprintf(stderr, "c_abi.c:%d: %s; last error: '%s'\n", line, what, gn_last_error());
  failed = 1;
}
#define CHECK(WHAT) check((WHAT) != 0, #WHAT, __LINE__)
#define REFUSED(CALL, ERRNO, WORDS) \
  do { \
    CHECK((CALL) == -(ERRNO)); \
    CHECK(strstr(gn_last_error(), WORDS) != NULL); \
  } while (0)

static void layouts_are_those_of_the_header(void) {
  CHECK(sizeof(gn_create_options) == 32 && offsetof(gn_create_options, replicas) == 8);
  CHECK(offsetof(gn_create_options, reserved) == 16);
  CHECK(sizeof(gn_volume_info) == 128 && offsetof(gn_volume_info, vid) == 16);
  CHECK(offsetof(gn_volume_info, writer) == 36);
  CHECK(offsetof(gn_volume_info, reader_count) == 48 && offsetof(gn_volume_info, name) == 56);
  CHECK(sizeof(gn_kernel_file) == 24 && offsetof(gn_kernel_file, timeout_ns) == 16);
  CHECK(sizeof(gn_kernel) == 4 * sizeof(void *));
}

static void null_is_refused_everywhere(void) {
  gn_volume_info info;
  gn_create_options options = {4096, 0, 0, {0, 0}};
  gn_kernel_file device_file;
  gn_kernel kernel = {"k", NULL, 0, NULL};
  gn_node *node = NULL;
  gn_client *client = NULL;
  gn_file *file = NULL;
  gn_memory *memory = NULL;
  size_t count;
  uint32_t number;
  char block[8];
  REFUSED(gn_node_open(NULL, &node), EINVAL, "device's name is null");
  REFUSED(gn_node_open("host", NULL), EINVAL, "is null");
  REFUSED(gn_connect(NULL, "localhost:1", &client), EINVAL, "node is null");
  REFUSED(gn_connect(NULL, "localhost:1", NULL), EINVAL, "is null");
  REFUSED(gn_volume_create(NULL, "v", &options, &info), EINVAL, "client is null");
  REFUSED(gn_volume_list(NULL, &info, 1, &count), EINVAL, "client is null");
  REFUSED(gn_volume_list(NULL, NULL, 1, &count), EINVAL, "is null");
  REFUSED(gn_volume_list(NULL, NULL, 0, NULL), EINVAL, "is null");
  REFUSED(gn_volume_get(NULL, "v", &info), EINVAL, "client is null");
  REFUSED(gn_volume_delete(NULL, "v"), EINVAL, "client is null");
  REFUSED(gn_open(NULL, "v", GN_READ, &file), EINVAL, "client is null");
  REFUSED(gn_file_info(NULL, &info), EINVAL, "file is null");
  REFUSED(gn_read_at(NULL, 0, block, sizeof block), EINVAL, "file is null");
  REFUSED(gn_write_at(NULL, 0, block, sizeof block), EINVAL, "file is null");
  REFUSED(gn_flush(NULL), EINVAL, "file is null");
  REFUSED(gn_device_file(NULL, &device_file), EINVAL, "file is null");
  REFUSED(gn_memory_alloc(NULL, 64, &memory), EINVAL, "node is null");
  REFUSED(gn_memory_write(NULL, 0, block, sizeof block), EINVAL, "memory is null");
  REFUSED(gn_memory_read(NULL, 0, block, sizeof block), EINVAL, "memory is null");
  REFUSED(gn_launch(NULL, &kernel, 1, 32, 0, 0, 1), EINVAL, "node is null");
  REFUSED(gn_launch_together(NULL, &kernel, 1, 32, 0, 0, 1), EINVAL, "node is null");
  REFUSED(gn_max_blocks(NULL, &kernel, 32, 0, &number), EINVAL, "node is null");
  REFUSED(gn_max_blocks(NULL, &kernel, 32, 0, NULL), EINVAL, "is null");
  REFUSED(gn_drain(NULL, 1), EINVAL, "file is null");
  REFUSED(gn_register_buffer(NULL, 4096, 4096, &number), EINVAL, "client is null");
  REFUSED(gn_register_buffer(NULL, 4096, 4096, NULL), EINVAL, "is null");
  REFUSED(gn_deregister_buffer(NULL, 1), EINVAL, "client is null");
  CHECK(node == NULL && client == NULL && file == NULL && memory == NULL);
  CHECK(gn_node_device(NULL) == NULL && gn_client_id(NULL) == 0 && gn_memory_address(NULL) == 0);
  gn_close(NULL);
  gn_disconnect(NULL);
  gn_node_close(NULL);
  gn_memory_free(NULL);
}

static void words_name_what_is_wrong(void) {
  gn_node *node = NULL;
  gn_client *client = NULL;
  REFUSED(gn_node_open("gpu0", &node), EINVAL, "'gpu0' is not one of auto, cuda, host");
  REFUSED(gn_node_open("\xff", &node), EINVAL, "not UTF-8");
  CHECK(node == NULL);
  CHECK(gn_node_open("host", &node) == 0);
  CHECK(strcmp(gn_node_device(node), "host") == 0);
  // No process listens on port 1.
  REFUSED(gn_connect(node, "127.0.0.1:1", &client), ECONNREFUSED, "127.0.0.1:1");
  REFUSED(gn_connect(node, "not an endpoint", &client), ECONNREFUSED, "not an endpoint");
  REFUSED(gn_connect(node, NULL, &client), EINVAL, "endpoint is null");
  CHECK(client == NULL);
  gn_node_close(node);
}

static void memory_outlives_its_node_and_keeps_its_bounds(void) {
  gn_node *node = NULL;
  gn_memory *memory = NULL;
  char in[16] = "0123456789abcdef", out[16];
  CHECK(gn_node_open("host", &node) == 0);
  REFUSED(gn_memory_alloc(node, 0, &memory), EINVAL, "0 bytes");
  REFUSED(gn_memory_alloc(node, (size_t)-1, &memory), EINVAL, "cannot be had");
  CHECK(gn_memory_alloc(node, 4096, &memory) == 0);
  CHECK(gn_memory_address(memory) != 0);
  gn_node_close(node);
  CHECK(gn_memory_write(memory, 4080, in, 16) == 0);
  CHECK(gn_memory_read(memory, 4080, out, 16) == 0 && memcmp(in, out, 16) == 0);
  CHECK(gn_memory_read(memory, 0, out, 16) == 0 && out[0] == 0);
  CHECK(gn_memory_write(memory, 0, NULL, 0) == 0);
  REFUSED(gn_memory_write(memory, 0, NULL, 1), EINVAL, "data is null");
  REFUSED(gn_memory_write(memory, 4081, in, 16), ERANGE, "leave the memory");
  REFUSED(gn_memory_read(memory, (size_t)-8, out, 16), ERANGE, "leave the memory");
  gn_memory_free(memory);
}

static void does_nothing(void *argument) { (void)argument; }

static void launches_are_checked(void) {
  gn_node *node = NULL;
  gn_kernel gpu_only = {"gpu_only", "x", 1, NULL}, unnamed = {NULL, NULL, 0, NULL};
  gn_kernel both = {"both", "x", 1, does_nothing};
  uint32_t most = 0;
  CHECK(gn_node_open("host", &node) == 0);
  REFUSED(gn_launch(node, NULL, 1, 32, 0, 0, 1), EINVAL, "kernel is null");
  REFUSED(gn_launch(node, &unnamed, 1, 32, 0, 0, 1), EINVAL, "name is null");
  REFUSED(gn_launch(node, &gpu_only, 1, 32, 0, 0, 1), EINVAL, "no form for the host device");
  REFUSED(gn_launch(node, &both, 0, 32, 0, 0, 1), EINVAL, "no blocks");
  REFUSED(gn_launch(node, &both, 1, 33, 0, 0, 1), EINVAL, "33 threads");
  // On the CPU all blocks run at once. A grid without blocks is refused nevertheless.
  CHECK(gn_max_blocks(node, &both, 32, 0, &most) == 0 && most == INT32_MAX);
  REFUSED(gn_launch_together(node, &both, 0, 32, 0, 0, 1), EINVAL, "at most 2147483647");
  REFUSED(gn_launch_together(node, &both, UINT32_MAX, 32, 0, 0, 1), EINVAL, "do not fit");
  gn_node_close(node);
}

int main(void) {
  CHECK(gn_last_error()[0] == 0);
  layouts_are_those_of_the_header();
  null_is_refused_everywhere();
  words_name_what_is_wrong();
  memory_outlives_its_node_and_keeps_its_bounds();
  launches_are_checked();
  return failed;
}
