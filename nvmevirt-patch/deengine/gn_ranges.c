// SPDX-License-Identifier: GPL-2.0-only
/* Dataset Management: ranges that are unmapped. Rust: deengine/src/io/trim.rs. */
#include "gn_dev_inner.h"

#define GN_DSM_DEALLOCATE 4u
#define GN_RANGE_BYTES 16u

void gn_begin_ranges(struct gn_dev *dev, gn_u16 client, const gnp_sqe *sqe, struct gn_verdict *v) {
  gn_u32 bytes = ((sqe->cdw10 & 0xFF) + 1) * GN_RANGE_BYTES, handle;
  gn_u8 fault = gn_check_frame(dev, sqe);
  struct gn_io *io;
  if (!fault && sqe->nsid != GN_NSID) fault = GN_INVALID_NAMESPACE;
  if (!fault) fault = gn_check_pointer(dev, sqe, bytes);
  io = fault ? NULL : gn_io_new(dev, &handle);
  if (!io) {
    gn_answer(dev, v, 0, gn_no(fault ? fault : GN_NOT_READY, 0));
    return;
  }
  io->client = client;
  io->action = GN_RANGES;
  io->bytes = bytes;
  io->request.map_epoch = sqe->cdw2;
  io->request.stamp.lease_epoch = sqe->cdw3;
  io->request.stamp.sequence = sqe->cdw14 | (gn_u64)sqe->cdw15 << 32;
  io->request.writes = (sqe->cdw11 & GN_DSM_DEALLOCATE) != 0;
  v->action = GN_RANGES;
  v->handle = handle;
  v->bytes = bytes;
}

static gn_u32 gn_u32_at(const gn_u8 *at) {
  return at[0] | (gn_u32)at[1] << 8 | (gn_u32)at[2] << 16 | (gn_u32)at[3] << 24;
}

static struct gn_refused gn_judge_range(const struct gn_judge *by, const struct gn_io *io, const gn_u8 *range,
                                        struct gn_request *request) {
  gn_u64 slba;
  *request = io->request;
  request->writes = true;
  request->blocks = gn_u32_at(range + 4);
  slba = gn_u32_at(range + 8) | (gn_u64)gn_u32_at(range + 12) << 32;
  if (request->blocks == 0 || gn_set_address(request, slba))
    return gn_no(GN_INVALID_FIELD, 0);
  return gn_table_judge(by, io->client, request);
}

void gn_ranges(struct gn_dev *dev, gn_u64 now_ns, struct gn_transfer ended, const gn_u8 *ranges,
               struct gn_verdict *v) {
  struct gn_io *io = gn_expect(dev, ended.handle, GN_RANGES, v);
  struct gn_judge by = gn_judge_at(dev, now_ns);
  struct gn_refused refused = gn_ok();
  struct gn_request request;
  gn_u32 at, vid = 0;
  if (!io) return;
  if (ended.failed) refused = gn_no(GN_TRANSFER_ERROR, 0);
  /* Every range is judged before any is applied, so a refused command has done nothing. */
  for (at = 0; at < io->bytes && !refused.code && !io->orphan; at += GN_RANGE_BYTES) {
    refused = gn_judge_range(&by, io, ranges + at, &request);
    vid = ranges[at + 14] | (gn_u32)ranges[at + 15] << 8;
  }
  if (ended.failed || !gnp_id_is_valid((gn_u16)vid)) vid = 0;
  for (at = io->bytes; io->request.writes && !refused.code && !io->orphan && at >= GN_RANGE_BYTES;) {
    at -= GN_RANGE_BYTES;
    /* Nothing has changed since then, so the verdict is the same. The call finds the slot. */
    if (gn_judge_range(&by, io, ranges + at, &request).code) continue;
    gn_trim(dev, &request);
  }
  dev->counts.forgets += !refused.code;
  gn_end(dev, io, (gn_u16)vid, refused, v);
}
