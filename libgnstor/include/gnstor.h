// SPDX-License-Identifier: Apache-2.0 OR MIT
// GNStor in C: volumes of an array of SSDs, read and written by device kernels.
//
//   gn_node *node;  gn_client *client;  gn_file *file;
//   if (gn_node_open("auto", &node) || gn_connect(node, "array-host:7117", &client) ||
//       gn_open(client, "corpus", GN_READ, &file) || gn_read_at(file, 0, buffer, 65536))
//     fprintf(stderr, "%s\n", gn_last_error());
//
// Link with liblibgnstor.so or liblibgnstor.a (the crate is named libgnstor); a program with kernels for
// "host" links the latter, which contains the CPU execution. A kernel uses <gnstor/gnstor.cuh> and gets what
// gn_device_file() fills in.
//
// Results. Every function that returns int gives 0, or a negative errno of Linux. gn_last_error() then says
// in words what was asked and what is wrong. A null pointer where an object, a name or a result is expected
// is -EINVAL.
//
// Objects. A client keeps its node alive and a file its client: they may be closed in any order. Closing null
// does nothing. A handle is not used after, or by another thread during, its close; otherwise all functions
// may be called from several threads at once. Host reads and writes of one client, and launches of one node,
// run one after the other.
//
// Units. Offsets and lengths are bytes and multiples of GN_BLOCK_BYTES.
#ifndef GNSTOR_H
#define GNSTOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GN_BLOCK_BYTES 4096u
#define GN_NAME_BYTES 64u // longest volume name, without its NUL

typedef struct gn_node gn_node;     // a device (a GPU, or the CPU in its place) with its own fabric engine
typedef struct gn_client gn_client; // an identity at an array, with a queue to every SSD
typedef struct gn_file gn_file;     // an open volume
typedef struct gn_memory gn_memory; // device memory

// What went wrong in this thread's last call that failed; empty if none did. Valid until the thread's next
// failing call.
const char *gn_last_error(void);

// `device` is "auto" (a GPU if there is one, else the CPU), "cuda" or "host". -ENODEV: no CUDA device.
int gn_node_open(const char *device, gn_node **node);

// "cuda" or "host"; null for a null node. Valid for ever.
const char *gn_node_device(const gn_node *node);

void gn_node_close(gn_node *node);

// Connects to the daemon at "host:port", and over TCP to every SSD it names. -ECONNREFUSED: it cannot be
// reached.
int gn_connect(gn_node *node, const char *endpoint, gn_client **client);

// The client id, 1 to 65534; 0 for a null client.
uint32_t gn_client_id(const gn_client *client);

// Returns the client's channel once its files are closed, too.
void gn_disconnect(gn_client *client);

typedef struct gn_create_options {
  uint64_t capacity_bytes;
  uint32_t replicas;    // 0: two
  uint32_t chunk_bytes; // 0: 64 KiB
  uint64_t reserved[2]; // 0
} gn_create_options;

typedef struct gn_volume_info {
  uint64_t capacity_bytes;
  uint64_t factor; // of the placement hash
  uint32_t vid;
  uint32_t generation;
  uint32_t replicas;
  uint32_t chunk_bytes;
  uint32_t owner;  // client that created it
  uint32_t writer; // client that holds the write lease, 0 = none
  uint32_t lease_epoch;
  uint32_t any_reader; // 1: every client may read
  uint32_t reader_count;
  uint32_t reserved;
  char name[72]; // UTF-8, NUL-terminated
} gn_volume_info;

// -EEXIST: the name is taken. -ENOSPC: the array is full. `info` may be null.
int gn_volume_create(gn_client *client, const char *name, const gn_create_options *options,
                     gn_volume_info *info);

// Describes the first `capacity` volumes in `infos` (null if `capacity` is 0); `*count` is how many there
// are.
int gn_volume_list(gn_client *client, gn_volume_info *infos, size_t capacity, size_t *count);

// -ENOENT: there is no volume of this name.
int gn_volume_get(gn_client *client, const char *name, gn_volume_info *info);

// -EBUSY: another client writes to it.
int gn_volume_delete(gn_client *client, const char *name);

#define GN_READ 1u
#define GN_WRITE 2u // includes reading; takes the write lease, which one client at a time can hold

// Opens a volume. `rights` is GN_READ, GN_WRITE or both. -EBUSY: another client holds the write lease. The
// lease is renewed in the background until gn_close.
int gn_open(gn_client *client, const char *name, uint32_t rights, gn_file **file);

// Gives the rights back.
void gn_close(gn_file *file);

// Properties of the volume at the time of the open.
int gn_file_info(const gn_file *file, gn_volume_info *info);

// Reads or writes all of the range or fails. `data` may be null if `bytes` is 0. -EINVAL: not whole blocks,
// or beyond the volume; -ESTALE: the write lease is lost; -EROFS, -EACCES: an SSD refused; -ETIMEDOUT: no
// answer; -EIO.
int gn_read_at(gn_file *file, uint64_t offset, void *data, size_t bytes);
int gn_write_at(gn_file *file, uint64_t offset, const void *data, size_t bytes);

// When it returns, what this client has written is durable on every replica. So is what others have written
// to the volumes that it may write.
int gn_flush(gn_file *file);

// What a kernel takes by value: gn::file of <gnstor/gnstor.cuh>. Device addresses; valid until gn_close.
typedef struct gn_kernel_file {
  uint64_t channel;
  uint64_t volume;
  uint64_t timeout_ns; // of one request
} gn_kernel_file;

int gn_device_file(const gn_file *file, gn_kernel_file *out);

// Waits until nothing of the client's channel is in flight, including requests that ended kernels left behind
// (gn::submit_async). It does not call their callbacks. -ETIMEDOUT: something is left after timeout_ns.
int gn_drain(gn_file *file, uint64_t timeout_ns);

// Registers device memory of the caller's (cudaMalloc) for the client's I/O: kernels name it by *key, instead
// of f.pool_key(). The key is valid until gn_deregister_buffer or the end of the client. Both wait until no
// kernel runs. -EINVAL: it is not memory of the node's device, too much is registered, or there is no such
// key.
int gn_register_buffer(gn_client *client, uint64_t address, size_t bytes, uint32_t *key);
int gn_deregister_buffer(gn_client *client, uint32_t key);

// Zeroed device memory. It is not registered for I/O: kernels use gn::alloc's buffers, or what
// gn_register_buffer has registered.
int gn_memory_alloc(gn_node *node, size_t bytes, gn_memory **memory);
void gn_memory_free(gn_memory *memory);
uint64_t gn_memory_address(const gn_memory *memory); // in device code; 0 for null
// Copies in and out, between launches. -ERANGE: the range leaves the memory.
int gn_memory_write(gn_memory *memory, size_t offset, const void *data, size_t bytes);
int gn_memory_read(const gn_memory *memory, size_t offset, void *data, size_t bytes);

// A kernel that GN_CLIENT(name, ...) of <gnor/kernel.cuh> defines.
typedef struct gn_kernel {
  const char *name;      // unique in the process: the first image of a name is kept
  const void *image;     // fat binary or cubin, for a GPU; null without one
  size_t image_bytes;
  void (*host)(void *);  // the same kernel compiled with GN_SIMT_HOST, for "host"; null without one
} gn_kernel;

// Runs a kernel with the HCA beside it and waits for its end. `threads` is a multiple of 32, at most 1024;
// `args` is the device address of the kernel's argument. I/O happens only in a launch: CUDA's own <<<>>> does
// not start the HCA. -ETIMEDOUT: the kernel did not end.
int gn_launch(gn_node *node, const gn_kernel *kernel, uint32_t blocks, uint32_t threads, uint32_t smem_bytes,
              uint64_t args, uint64_t timeout_ns);

// How many blocks of a kernel are on the device at once, beside the HCA's.
int gn_max_blocks(gn_node *node, const gn_kernel *kernel, uint32_t threads, uint32_t smem_bytes,
                  uint32_t *blocks);

// As gn_launch, for a grid whose blocks wait for each other. -EINVAL: they do not all fit; gn_last_error()
// says how many do.
int gn_launch_together(gn_node *node, const gn_kernel *kernel, uint32_t blocks, uint32_t threads,
                       uint32_t smem_bytes, uint64_t args, uint64_t timeout_ns);

#if defined(__cplusplus) && __cplusplus >= 201103L
#define GN_LAYOUT(WHAT) static_assert(WHAT, #WHAT)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define GN_LAYOUT(WHAT) _Static_assert(WHAT, #WHAT)
#endif
#ifdef GN_LAYOUT
GN_LAYOUT(sizeof(gn_create_options) == 32);
GN_LAYOUT(sizeof(gn_volume_info) == 128);
GN_LAYOUT(offsetof(gn_volume_info, vid) == 16 && offsetof(gn_volume_info, name) == 56);
GN_LAYOUT(sizeof(gn_kernel_file) == 24);
#undef GN_LAYOUT
#endif

#ifdef __cplusplus
}
#endif
#endif // GNSTOR_H
