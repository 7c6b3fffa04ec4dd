/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the device share. */
#ifndef GN_DEV_INNER_H
#define GN_DEV_INNER_H

#include "gn_dev.h"

#define GN_NSID 1u

/* A command under way. */
struct gn_io {
  gn_u32 age;
  gn_u32 next_free;
  bool used;
  /* The command was judged and counted. gn_leave must follow. */
  bool counted;
  /* Its queue was closed: no completion. */
  bool orphan;
  /* Its queue is being closed: an orphan at the end of the step. */
  bool closing;
  /* Pages of a read are pinned; pages of a write are taken. */
  bool has_pages;
  gn_u16 client;
  gn_u32 generation;
  gn_u64 serial;
  enum gn_action action;
  gn_u32 bytes;
  struct gn_request request;
  gn_u32 *pages;
};

/* A command of the daemon. It waits until no command that was judged by an older entry is in flight. */
struct gn_fence {
  gn_u32 handle;
  gn_u16 vid;
  gn_u64 deadline_ns;
  bool done;
};

#define GN_MAX_WRITTEN 1024u

/* A volume whose blocks are being unmapped. */
struct gn_sweep {
  gn_u16 vid;
  bool ended;
  gn_u32 generation;
  gn_u64 next_bucket;
};

struct gn_dev {
  struct gn_config config;
  struct gn_map *map;
  struct gn_table *table;
  struct gn_fleet fleet;
  struct gn_oob *pages;
  gn_u32 *free_pages;
  gn_u32 free_count;
  struct gn_io *ios;
  gn_u32 *io_pages;
  gn_u32 free_io;
  gn_u32 in_flight;
  struct gn_fence fences[GN_MAX_FENCES];
  gn_u32 fence_count;
  gn_u32 next_fence;
  struct gn_sweep sweeps[GN_MAX_VOLUMES];
  gn_u32 sweep_count;
  gn_u64 sweep_at_ns;
  /* Blocks that a step of a sweep has found. */
  gn_u32 *found;
  gn_u32 found_count;
  gn_u32 found_most;
  struct gn_sweep *finding;
  /* Words of insertions and removals that the sweeps must check. */
  struct gn_change written[GN_MAX_WRITTEN];
  gn_u32 written_count;
  /* Clients whose queues this step closes, as bits. */
  gn_u8 closing[8192];
  /* At the end of this step a command of these clients ends. */
  bool ends_closing;
  /* Clients to be closed, as bits. */
  gn_u8 closed[65536 / 8];
  gn_u32 closed_count;
  gn_u64 now_ns;
  struct gn_counts counts;
};

/* Sets a refusal, or success if the code is 0. */
void gn_answer(struct gn_dev *dev, struct gn_verdict *v, gn_u16 vid, struct gn_refused refused);
/* What this SSD judges by at a time. */
struct gn_judge gn_judge_at(const struct gn_dev *dev, gn_u64 now_ns);
/* The command of a handle; NULL if there is none. */
struct gn_io *gn_io_of(struct gn_dev *dev, gn_u32 handle);
struct gn_io *gn_io_new(struct gn_dev *dev, gn_u32 *handle);
void gn_io_end(struct gn_dev *dev, struct gn_io *io);
/* Removes the command from those in flight. Fences may then be done. */
void gn_leave(struct gn_dev *dev, struct gn_io *io);
void gn_complete_fences(struct gn_dev *dev);
void gn_fence(struct gn_dev *dev, gn_u64 now_ns, gn_u16 vid, struct gn_verdict *v);

/* The page of a block: GN_NO_PAGE reads as zeros; false: the page is another block's. */
bool gn_extent(const struct gn_dev *dev, gn_u16 vid, gn_u32 generation, gn_u32 vba, gn_u32 *page);
/* Releases a page that the map no longer names. */
void gn_release_page(struct gn_dev *dev, gn_u32 page);
void gn_give_page(struct gn_dev *dev, gn_u32 page);
void gn_unpin(struct gn_dev *dev, gn_u32 page);
/* Whether the stamp of a request is above the block's current stamp (protocol rule 6). */
bool gn_is_newer(const struct gn_dev *dev, const struct gn_volume *volume, const struct gn_request *request,
                 gn_u32 vba, const struct gn_probe *probe);
struct gn_refused gn_commit(struct gn_dev *dev, struct gn_io *io, const gn_u32 *sums);
void gn_trim(struct gn_dev *dev, const struct gn_request *request);

/* Checks that flags and data pointer fit this transport, and that the ids of an SLBA are valid. Returns 0 or
 * the refusal. */
gn_u8 gn_check_frame(const struct gn_dev *dev, const gnp_sqe *sqe);
gn_u8 gn_check_pointer(const struct gn_dev *dev, const gnp_sqe *sqe, gn_u32 bytes);
gn_u8 gn_set_address(struct gn_request *request, gn_u64 slba);
/* Returns the command of a handle that waits for this call. If there is none, the verdict says so. */
struct gn_io *gn_expect(struct gn_dev *dev, gn_u32 handle, enum gn_action action, struct gn_verdict *v);
/* Ends the command with the verdict of `refused`. */
void gn_end(struct gn_dev *dev, struct gn_io *io, gn_u16 vid, struct gn_refused refused,
            struct gn_verdict *v);
void gn_begin_ranges(struct gn_dev *dev, gn_u16 client, const gnp_sqe *sqe, struct gn_verdict *v);

void gn_sweep_start(struct gn_dev *dev, gn_u64 now_ns, gn_u16 vid, gn_u32 generation);
/* Handles words that an insertion has written in buckets which a sweep has passed. */
void gn_sweep_written(struct gn_dev *dev);

#endif
