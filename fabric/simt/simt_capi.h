/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The CPU runtime for other languages: plain structs, no C++ types, and no failure ends the process.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What gn_simt_run returns. */
#define GN_SIMT_OK 0
#define GN_SIMT_ARGUMENT 1 /* asked for something impossible */
#define GN_SIMT_MISUSE 2   /* device code broke a CUDA rule, or a scope is too narrow */
#define GN_SIMT_DEADLOCK 3 /* every lane waits in a collective that cannot complete */
#define GN_SIMT_LIVELOCK 4 /* max_steps used up */
#define GN_SIMT_DEADLINE 5 /* deadline_ns exceeded */

#define GN_SIMT_MESSAGE_BYTES 512

typedef struct gn_simt_grid {
  uint32_t grid;            /* blocks */
  uint32_t block;           /* lanes a block, at most 1024; 16384 lanes in all grids of a run */
  uint64_t smem_bytes;      /* dynamic shared memory a block, filled with 0xA5 */
  void (*body)(void* arg);  /* called once per lane */
  void* arg;
  void (*on_done)(void* done_arg); /* may be null; after the grid's last lane */
  void* done_arg;
} gn_simt_grid;

typedef struct gn_simt_region {
  const void* lo;
  uint64_t len_bytes;
} gn_simt_region;

/* Start from gn_simt_default_options. Callbacks must not unwind. */
typedef struct gn_simt_options {
  uint64_t seed;
  uint64_t max_steps;       /* 0 = no limit */
  uint64_t deadline_ns;     /* wall clock; 0 = none */
  uint64_t stack_bytes;     /* a lane; 0 = default */
  uint32_t preempt; /* switch at 1 of N accesses; 0 = only where a lane waits (fastest; the default here) */
  uint32_t weak;            /* nonzero: store buffers */
  uint32_t idle_yields;     /* fruitless pauses before sched_yield(), later a nap; 0 = never */
  uint32_t nregions;
  const gn_simt_region* regions; /* host-visible memory, for the scope check; may be null */
  uint32_t (*host_step)(void* host_arg); /* may be null; nonzero: did something */
  void* host_arg;
} gn_simt_options;

typedef struct gn_simt_result {
  uint64_t yields;
  uint64_t switches;
  uint64_t os_yields;
  uint32_t failure; /* as returned */
  uint32_t reserved;
  char message[GN_SIMT_MESSAGE_BYTES]; /* NUL-terminated; empty on success */
} gn_simt_result;

void gn_simt_default_options(gn_simt_options* options);

/* Runs all grids to their end on the calling thread. `options` null: defaults; `result` may be null. On
 * failure the lanes are dropped where they stand, and on_done of grids that had not ended is not called. */
int gn_simt_run(const gn_simt_grid* grids, size_t ngrids, const gn_simt_options* options,
                gn_simt_result* result);

/* What now_ns() reads in device code; null: CLOCK_BOOTTIME. Not while a run is going on. */
void gn_simt_set_clock(uint64_t (*clock_ns)(void));

#ifdef __cplusplus
}
#endif
