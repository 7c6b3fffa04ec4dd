// SPDX-License-Identifier: GPL-2.0-only
/* Reads, writes and related commands: from the 64 bytes of a command to a verdict. Rust:
 * deengine/src/request.rs, deengine/src/io. */
#include "gn_dev_inner.h"

#define GN_ALL_NAMESPACES 0xFFFFFFFFu
/* A keyed descriptor whose key the response may invalidate. */
#define GN_SGL_INVALIDATE 0x4Fu

gn_u8 gn_check_frame(const struct gn_dev *dev, const gnp_sqe *sqe) {
#ifdef GN_PLANT_PRP
  if (!dev->config.keyed && sqe->flags == 0x80) return 0;
#endif
  return sqe->flags == (dev->config.keyed ? GNP_FLAGS_SGL : 0) ? 0 : GN_INVALID_FIELD;
}

gn_u8 gn_check_pointer(const struct gn_dev *dev, const gnp_sqe *sqe, gn_u32 bytes) {
  if (!dev->config.keyed) return 0;
  if (sqe->dptr.kind != GNP_SGL_KEYED && sqe->dptr.kind != GN_SGL_INVALIDATE) return GN_INVALID_SGL;
  return gnp_sgl_bytes(&sqe->dptr) == bytes ? 0 : GN_INVALID_SGL;
}

gn_u8 gn_set_address(struct gn_request *request, gn_u64 slba) {
  request->vid = gnp_slba_vid(slba);
  request->client = gnp_slba_client(slba);
  request->vba = gnp_slba_vba(slba);
  return gnp_id_is_valid(request->vid) && gnp_id_is_valid(request->client) ? 0 : GN_INVALID_FIELD;
}

/* The first step: whether the command is well formed. */
static gn_u8 gn_parse(const struct gn_dev *dev, const gnp_sqe *sqe, struct gn_request *request) {
  gn_u8 fault = gn_check_frame(dev, sqe);
  if (fault) return fault;
  if (sqe->nsid != GN_NSID) return GN_INVALID_NAMESPACE;
  request->blocks = (sqe->cdw12 & 0xFFFF) + 1;
  request->map_epoch = sqe->cdw2;
  request->stamp.lease_epoch = sqe->cdw3;
  request->stamp.sequence = sqe->cdw14 | (gn_u64)sqe->cdw15 << 32;
  request->writes = sqe->opcode == GNP_IO_WRITE || sqe->opcode == GNP_IO_WRITE_ZEROES;
  if (sqe->opcode != GNP_IO_WRITE_ZEROES) {
    if (request->blocks > GN_MAX_BLOCKS) return GN_INVALID_FIELD;
    fault = gn_check_pointer(dev, sqe, request->blocks << GNP_BLOCK_SHIFT);
    if (fault) return fault;
  }
  return gn_set_address(request, sqe->cdw10 | (gn_u64)sqe->cdw11 << 32);
}

static void gn_count_in(struct gn_dev *dev, struct gn_io *io) {
  struct gn_volume *volume = dev->table->slots[io->request.slot];
  io->serial = volume->serial;
  io->generation = volume->entry.generation;
  io->counted = true;
  ++volume->in_flight;
}

/* Pins the pages of the blocks. False: a page belongs to another block. */
static bool gn_resolve(struct gn_dev *dev, struct gn_io *io) {
  gn_u32 index;
  bool right = true;
  for (index = 0; index < io->request.blocks; ++index) {
    gn_u32 *page = &io->pages[index];
    if (!gn_extent(dev, io->request.vid, io->generation, io->request.vba + index, page)) {
      *page = GN_NO_PAGE;
      right = false;
    }
    if (*page != GN_NO_PAGE) ++dev->pages[*page].pins;
  }
  io->has_pages = true;
  return right;
}

static bool gn_take_pages(struct gn_dev *dev, struct gn_io *io) {
  gn_u32 index;
  if (dev->free_count < io->request.blocks) return false;
  for (index = 0; index < io->request.blocks; ++index) io->pages[index] = gn_take_page(dev);
  io->has_pages = true;
  return true;
}

static void gn_say_pages(const struct gn_io *io, struct gn_verdict *v) {
  v->blocks = io->request.blocks;
  v->bytes = io->request.blocks << GNP_BLOCK_SHIFT;
  v->pages = io->pages;
}

void gn_end(struct gn_dev *dev, struct gn_io *io, gn_u16 vid, struct gn_refused refused,
            struct gn_verdict *v) {
  bool orphan = io->orphan;
  gn_io_end(dev, io);
  gn_answer(dev, v, vid, refused);
  if (orphan) v->action = GN_GONE;
}

static void gn_begin(struct gn_dev *dev, gn_u16 client, const gnp_sqe *sqe, const struct gn_request *request,
                     struct gn_verdict *v) {
  struct gn_io *io;
  gn_u32 handle;
  if (sqe->opcode == GNP_IO_WRITE_ZEROES) {
    gn_trim(dev, request);
    ++dev->counts.forgets;
    v->action = GN_FORGET;
    return;
  }
  io = gn_io_new(dev, &handle);
  if (!io) {
    gn_answer(dev, v, request->vid, gn_no(GN_NOT_READY, 0));
    return;
  }
  io->client = client;
  io->request = *request;
  io->action = sqe->opcode == GNP_IO_READ ? GN_READ : sqe->opcode == GNP_IO_WRITE ? GN_WRITE : GN_COMPARE;
  gn_count_in(dev, io);
  if (io->action == GN_READ && !gn_resolve(dev, io)) {
    gn_end(dev, io, request->vid, gn_no(GN_WRONG_KEY, 0), v);
    return;
  }
  if (io->action == GN_WRITE && !gn_take_pages(dev, io)) {
    gn_end(dev, io, request->vid, gn_no(GN_NOT_READY, 0), v);
    return;
  }
  v->action = io->action;
  v->handle = handle;
  gn_say_pages(io, v);
}

void gn_announce(const struct gn_dev *dev, const gnp_sqe *sqes, gn_u32 count) {
  gn_u32 at;
  for (at = 0; at < count; ++at) {
    struct gn_probe probe = gn_map_place(dev->map, (gn_u16)(sqes[at].cdw11 >> 16), sqes[at].cdw10);
    gn_map_prefetch(dev->map, &probe);
  }
  for (at = 0; at < count; ++at) {
    struct gn_probe probe = gn_map_place(dev->map, (gn_u16)(sqes[at].cdw11 >> 16), sqes[at].cdw10);
    gn_u32 page = gn_map_find(dev->map, &probe);
    if (page != GN_NO_PAGE) __builtin_prefetch(&dev->pages[page]);
  }
}

void gn_command(struct gn_dev *dev, gn_u64 now_ns, gn_u16 client, const gnp_sqe *sqe, struct gn_verdict *v) {
  struct gn_request request;
  struct gn_refused refused = gn_ok();
  struct gn_judge by = gn_judge_at(dev, now_ns);
  gn_answer(dev, v, 0, refused);
  dev->counts.believed += client == GN_UNKNOWN_CLIENT;
  switch (sqe->opcode) {
    case GNP_IO_FLUSH:
      refused.code = gn_check_frame(dev, sqe);
      if (!refused.code && sqe->nsid != GN_NSID && sqe->nsid != GN_ALL_NAMESPACES)
        refused.code = GN_INVALID_NAMESPACE;
      gn_answer(dev, v, 0, refused);
      return;
    case GNP_IO_DATASET_MANAGEMENT:
      gn_begin_ranges(dev, client, sqe, v);
      return;
    case GNP_IO_READ:
    case GNP_IO_WRITE:
    case GNP_IO_WRITE_ZEROES:
    case GNP_IO_COMPARE:
      refused.code = gn_parse(dev, sqe, &request);
      if (!refused.code) refused = gn_table_judge(&by, client, &request);
      if (refused.code)
        gn_answer(dev, v, (gn_u16)(sqe->cdw11 >> 16), refused);
      else
        gn_begin(dev, client, sqe, &request, v);
      return;
    default:
      gn_answer(dev, v, 0, gn_no(GN_INVALID_OPCODE, 0));
  }
}

/* Judges a command again when its data is there, before it changes a block (protocol rules 2, 8). */
static struct gn_refused gn_confirm(struct gn_dev *dev, gn_u64 now_ns, const struct gn_io *io, bool failed) {
  struct gn_judge by = gn_judge_at(dev, now_ns);
  struct gn_request again = io->request;
  struct gn_refused refused;
  if (failed) return gn_no(GN_TRANSFER_ERROR, 0);
  refused = gn_table_judge(&by, io->client, &again);
  if (!refused.code && dev->table->slots[again.slot]->entry.generation != io->generation)
    refused = gn_no(GN_UNKNOWN_VOLUME, 0);
  return refused;
}

struct gn_io *gn_expect(struct gn_dev *dev, gn_u32 handle, enum gn_action action, struct gn_verdict *v) {
  struct gn_io *io = gn_io_of(dev, handle);
  gn_answer(dev, v, 0, gn_ok());
  v->action = GN_GONE;
  return io && io->action == action ? io : NULL;
}

void gn_data(struct gn_dev *dev, gn_u64 now_ns, struct gn_transfer ended, const gn_u32 *sums,
             struct gn_verdict *v) {
  struct gn_io *io = gn_expect(dev, ended.handle, GN_WRITE, v);
  struct gn_refused refused = gn_ok();
  if (!io) return;
  if (!io->orphan) {
    refused = gn_confirm(dev, now_ns, io, ended.failed);
    if (!refused.code) refused = gn_commit(dev, io, sums);
    dev->counts.writes += !refused.code;
  }
  gn_end(dev, io, io->request.vid, refused, v);
}

void gn_done(struct gn_dev *dev, gn_u64 now_ns, struct gn_transfer ended, struct gn_verdict *v) {
  struct gn_io *io = gn_expect(dev, ended.handle, GN_READ, v);
  (void)now_ns;
  if (!io) return;
  dev->counts.reads += !ended.failed;
  gn_end(dev, io, io->request.vid, ended.failed ? gn_no(GN_TRANSFER_ERROR, 0) : gn_ok(), v);
}

void gn_compare(struct gn_dev *dev, gn_u64 now_ns, struct gn_transfer ended, struct gn_verdict *v) {
  struct gn_io *io = gn_expect(dev, ended.handle, GN_COMPARE, v);
  struct gn_refused refused = gn_ok();
  if (!io || io->has_pages) return;
  if (!io->orphan) {
    refused = gn_confirm(dev, now_ns, io, ended.failed);
    if (!refused.code && !gn_resolve(dev, io)) refused = gn_no(GN_WRONG_KEY, 0);
    /* The firmware checks the serving lease last, so it overrides every other error. */
    if (!gn_serves(&dev->fleet, now_ns)) refused = gn_no(GN_NOT_SERVING, 0);
  }
  if (io->orphan || refused.code) {
    gn_end(dev, io, io->request.vid, refused, v);
    return;
  }
  v->action = GN_READ;
  v->handle = ended.handle;
  gn_say_pages(io, v);
}

void gn_compared(struct gn_dev *dev, gn_u32 handle, bool differs, struct gn_verdict *v) {
  struct gn_io *io = gn_expect(dev, handle, GN_COMPARE, v);
  if (!io || !io->has_pages) return;
  gn_end(dev, io, io->request.vid, differs ? gn_no(GN_COMPARE_FAILED, 0) : gn_ok(), v);
}
