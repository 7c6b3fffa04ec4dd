/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One SSD: the firmware's checks and map for an emulator that moves the data itself. No clock, no lock, no
 * allocation on the way of a read or write; one caller at a time. Times are nanoseconds of any start.
 *
 *   gn_command ---> GN_REFUSE, GN_DONE, GN_FORGET   complete the command with status, dw0, dw1
 *               |-> GN_READ     copy the pages to the host, then gn_done; complete with its verdict
 *               |-> GN_WRITE    copy the host's data to the pages, then gn_data; complete with its verdict
 *               |-> GN_RANGES   fetch `bytes` bytes, then gn_ranges; complete with its verdict
 *               `-> GN_COMPARE  fetch the host's data, then gn_compare: GN_READ says the pages to look at;
 *                               then gn_compared; complete with its verdict
 *   gn_admin_begin --> how many bytes go which way --> gn_admin --> GN_REFUSE, GN_DONE, GN_WAIT
 *   gn_poll, after each call: commands of the daemon that waited (GN_WAIT) and are done now
 */
#ifndef GN_DEV_H
#define GN_DEV_H

#include "gn_map.h"
#include "gn_oob.h"
#include "gn_table.h"

/* Most blocks of a read, write or compare: 1 MiB. */
#define GN_MAX_BLOCKS 256u
/* The client of a command: a client id, or one of these. */
#define GN_UNKNOWN_CLIENT 0u
#define GN_DAEMON 0xFFFFu
#define GN_MAX_FENCES 256u
/* How long a CHMOD or DELETE waits for commands judged by an older entry. */
#define GN_FENCE_NS 2000000000ull
/* Between two steps of a sweep. */
#define GN_SWEEP_PAUSE_NS 100000ull

enum gn_action {
  GN_REFUSE,
  GN_DONE,
  GN_FORGET,
  GN_READ,
  GN_WRITE,
  GN_COMPARE,
  GN_RANGES,
  GN_WAIT,
  /* The command has been removed. It gets no completion. */
  GN_GONE
};

struct gn_verdict {
  enum gn_action action;
  /* Without the phase bit. */
  gn_u16 status;
  gn_u32 dw0;
  gn_u32 dw1;
  /* Names the command in the calls that follow. */
  gn_u32 handle;
  gn_u32 bytes;
  gn_u32 blocks;
  /* A page for each block; GN_NO_PAGE reads as zeros. The list is valid until the command ends. */
  const gn_u32 *pages;
};

struct gn_config {
  /* Blocks that the SSD promises, and its pages. It has more pages, for writes under way. */
  gn_u64 logical_pages;
  gn_u64 pages;
  /* Key of the map. */
  gn_u64 seed;
  /* Number of the SSD in the fleet map. */
  gn_u16 id;
  /* Most commands under way at a time, and buckets in a step of a sweep. */
  gn_u32 commands;
  gn_u32 sweep_buckets;
  /* Commands carry one keyed SGL descriptor; false: PRP, which the emulator checks. */
  bool keyed;
};

struct gn_counts {
  gn_u64 refusals[GN_REFUSALS_END];
  gn_u64 reads;
  gn_u64 writes;
  gn_u64 forgets;
  /* Commands of queues without a client. */
  gn_u64 believed;
  /* Writes of blocks whose stamp was not above the stamp that the SSD held. */
  gn_u64 overtaken;
  gn_u64 moved;
  gn_u64 swept;
  gn_u64 closed;
};

struct gn_dev;

/* NULL: no memory, or impossible sizes. */
struct gn_dev *gn_dev_new(const struct gn_config *config);
void gn_dev_delete(struct gn_dev *dev);

/* Prefetches memory that these commands will need: first all buckets, then the records of the pages found
 * there. A dispatcher that has several commands calls it before the first gn_command. */
void gn_announce(const struct gn_dev *dev, const gnp_sqe *sqes, gn_u32 count);
/* Begins a read, write, compare, write zeroes, flush or dataset management. */
void gn_command(struct gn_dev *dev, gn_u64 now_ns, gn_u16 client, const gnp_sqe *sqe, struct gn_verdict *v);
/* A transfer that has ended: the command's, and whether its data has not arrived. */
struct gn_transfer {
  gn_u32 handle;
  bool failed;
};
static inline struct gn_transfer gn_ended(gn_u32 handle, bool failed) {
  struct gn_transfer transfer = {handle, failed};
  return transfer;
}
/* The data of a GN_WRITE is in its pages, with these block sums (NULL: not computed). */
void gn_data(struct gn_dev *dev, gn_u64 now_ns, struct gn_transfer ended, const gn_u32 *sums,
             struct gn_verdict *v);
/* The data of a GN_READ has reached the host, or has failed to. */
void gn_done(struct gn_dev *dev, gn_u64 now_ns, struct gn_transfer ended, struct gn_verdict *v);
/* The ranges of a GN_RANGES. Their length is the one that it asked for. */
void gn_ranges(struct gn_dev *dev, gn_u64 now_ns, struct gn_transfer ended, const gn_u8 *ranges,
               struct gn_verdict *v);
/* The data of a GN_COMPARE. The verdict is the pages to compare it with, or the end of the command. */
void gn_compare(struct gn_dev *dev, gn_u64 now_ns, struct gn_transfer ended, struct gn_verdict *v);
void gn_compared(struct gn_dev *dev, gn_u32 handle, bool differs, struct gn_verdict *v);

/* A command of the daemon from `client`. GN_DONE: the emulator moves `bytes` bytes, to the SSD if `to_ssd`,
 * and then calls gn_admin. GN_GONE: the opcode is not the daemon's, so the emulator handles it. */
void gn_admin_begin(struct gn_dev *dev, gn_u16 client, const gnp_sqe *sqe, bool *to_ssd,
                    struct gn_verdict *v);
/* `data` holds the bytes. LIST and GET write their result there. */
void gn_admin(struct gn_dev *dev, gn_u64 now_ns, const gnp_sqe *sqe, struct gn_buffer data,
              struct gn_verdict *v);
/* Returns the handle of the oldest GN_WAIT that is done. The caller completes it with success. */
bool gn_poll(struct gn_dev *dev, gn_u32 *handle);

/* Called as time passes. Continues sweeps, and closes the queues of commands that delay an overdue fence. */
void gn_tick(struct gn_dev *dev, gn_u64 now_ns);
/* The time at which gn_tick has work again; ~0 for never. */
gn_u64 gn_next_ns(const struct gn_dev *dev);
/* Returns a client whose commands ended because a fence was overdue. The caller closes its queues. */
bool gn_closed(struct gn_dev *dev, gn_u16 *client);

/* A page for a collector to copy to, or GN_NO_PAGE. */
gn_u32 gn_take_page(struct gn_dev *dev);
/* The collector has copied page `from` to `to`, which gn_take_page returned. False: `from` is not mapped. */
bool gn_moved(struct gn_dev *dev, gn_u32 from, gn_u32 to);

const struct gn_oob *gn_page(const struct gn_dev *dev, gn_u32 page);
const struct gn_counts *gn_counts_of(const struct gn_dev *dev);
const struct gn_map *gn_map_of(const struct gn_dev *dev);
/* Commands under way. */
gn_u32 gn_in_flight(const struct gn_dev *dev);
gn_u32 gn_free_pages(const struct gn_dev *dev);
gn_u64 gn_pages_of(const struct gn_dev *dev);

#endif
