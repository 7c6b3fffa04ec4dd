/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The only file that knows where it runs: a user program or the Linux kernel. Memory, logging and 128-bit
 * products. Every byte of memory is counted, so that a leak shows when a device is gone.
 */
#ifndef GN_OS_H
#define GN_OS_H

#include <gnproto/nvme.h>

#ifdef __KERNEL__

#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/vmalloc.h>

#define gn_log(...) pr_info("gn: " __VA_ARGS__)
/* Returns NULL for a length that is too large. It neither warns in the log nor kills another process. */
#define GN_LARGE_ALLOC(BYTES) __vmalloc(BYTES, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN | __GFP_RETRY_MAYFAIL)
#define GN_LARGE_FREE(AT) vfree(AT)
/* Lets other threads run during a long loop. */
#define gn_rest() cond_resched()

#else

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define gn_log(...) fprintf(stderr, "gn: " __VA_ARGS__)
#define GN_LARGE_ALLOC(BYTES) calloc(1, BYTES)
#define GN_LARGE_FREE(AT) free(AT)
#define gn_rest() ((void)0)

#endif

typedef gnp_u8 gn_u8;
typedef gnp_u16 gn_u16;
typedef gnp_u32 gn_u32;
typedef gnp_u64 gn_u64;
__extension__ typedef unsigned __int128 gn_u128;

/* The data of a command of the daemon. */
struct gn_buffer {
  gn_u8 *at;
  gn_u32 bytes;
};

/* Bytes that gn_alloc has allocated and gn_free has not freed. One caller at a time. */
extern gn_u64 gn_os_bytes;

/* Allocates zeroed memory, or returns NULL. Reads and writes never call it. */
void *gn_alloc(gn_u64 bytes);
/* Frees memory of gn_alloc. NULL is allowed. */
void gn_free(void *memory);

/* The time `span_ns` later, or the end of time. */
static inline gn_u64 gn_after(gn_u64 now_ns, gn_u64 span_ns) {
  return now_ns > ~0ull - span_ns ? ~0ull : now_ns + span_ns;
}

/* The upper half of a product. */
static inline gn_u64 gn_high(gn_u64 a, gn_u64 b) { return (gn_u64)((gn_u128)a * b >> 64); }

/* CRC-32C (Castagnoli) of bytes that follow others whose CRC is `crc`. Begin with 0. */
gn_u32 gn_crc32c(gn_u32 crc, const void *data, gn_u64 bytes);

#endif
