// SPDX-License-Identifier: GPL-2.0-only
/*
 * The daemon's commands: VOLUME ADD, LIST, DELETE, CHMOD, MAP SET, GET, LEASE RENEW. Rust:
 * deengine/src/admin/volumes.rs, proto/src/vendor.rs.
 */
#include "gn_dev_inner.h"

#define GN_LIST_TOMBSTONES 1u

static bool gn_is_ours(gn_u8 opcode) {
  switch (opcode) {
    case GNP_VOLUME_ADD:
    case GNP_VOLUME_LIST:
    case GNP_VOLUME_DELETE:
    case GNP_VOLUME_CHMOD:
    case GNP_LEASE_RENEW:
    case GNP_MAP_SET:
    case GNP_MAP_GET:
      return true;
    default:
      return false;
  }
}

/* CDW10: dwords of data, one-based. Returns 0 for a transfer that this SSD does not make. */
static gn_u32 gn_data_bytes(const gnp_sqe *sqe) {
  gn_u64 bytes = (gn_u64)sqe->cdw10 * 4;
  return bytes <= GN_MAP_BYTES ? (gn_u32)bytes : 0;
}

static gn_u8 gn_admin_fault(const struct gn_dev *dev, gn_u16 client, const gnp_sqe *sqe, gn_u32 *bytes) {
  bool has_entry = sqe->opcode == GNP_VOLUME_ADD || sqe->opcode == GNP_VOLUME_CHMOD;
  *bytes = 0;
  if (sqe->flags != (dev->config.keyed ? GNP_FLAGS_SGL : 0)) return GN_INVALID_FIELD;
  if (client != GN_DAEMON && sqe->opcode != GNP_MAP_GET) return GN_NOT_THE_DAEMON;
  if (sqe->nsid != 1) return GN_INVALID_NAMESPACE;
  if (sqe->opcode == GNP_VOLUME_DELETE || sqe->opcode == GNP_LEASE_RENEW) return 0;
  *bytes = gn_data_bytes(sqe);
  if (!*bytes || (has_entry && *bytes != sizeof(gnp_entry))) return GN_INVALID_FIELD;
  if (!dev->config.keyed) return 0;
  if (sqe->dptr.kind != GNP_SGL_KEYED && sqe->dptr.kind != (GNP_SGL_KEYED | 0x0F)) return GN_INVALID_SGL;
  return gnp_sgl_bytes(&sqe->dptr) == *bytes ? 0 : GN_INVALID_SGL;
}

void gn_admin_begin(struct gn_dev *dev, gn_u16 client, const gnp_sqe *sqe, bool *to_ssd,
                    struct gn_verdict *v) {
  gn_u32 bytes;
  gn_answer(dev, v, 0, gn_ok());
  if (!gn_is_ours(sqe->opcode)) {
    v->action = GN_GONE;
    return;
  }
  gn_answer(dev, v, 0, gn_no(gn_admin_fault(dev, client, sqe, &bytes), 0));
  /* Bits 1:0 of an opcode give the direction. */
  *to_ssd = (sqe->opcode & 3) == 1;
  v->bytes = bytes;
}

static gn_u64 gn_join(gn_u32 low, gn_u32 high) { return low | (gn_u64)high << 32; }

/* 0 means no lease, or the end of a lease. */
static bool gn_takes_lease(gn_u32 ms, gn_u32 least, gn_u32 most) {
#ifdef GN_PLANT_LEASE
  return (void)least, ms <= most;
#else
  return ms == 0 || (ms >= least && ms <= most);
#endif
}

static void gn_take_entry(struct gn_dev *dev, gn_u64 now_ns, const gnp_sqe *sqe, const gn_u8 *data,
                          struct gn_verdict *v) {
  struct gn_table *table = dev->table;
  struct gn_refused refused;
  if (!gn_entry_take(data, &table->scratch)) {
    gn_answer(dev, v, 0, gn_no(GN_INVALID_FIELD, 0));
    return;
  }
  if (!gn_takes_lease(table->scratch.lease_ms, GNP_WRITE_LEASE_MIN_MS, GNP_WRITE_LEASE_MAX_MS))
    refused = gn_no(GN_INVALID_FIELD, 0);
  else
    refused = sqe->opcode == GNP_VOLUME_ADD ? gn_table_add(table, now_ns) : gn_table_chmod(table, now_ns);
  if (refused.code)
    gn_answer(dev, v, table->scratch.vid, refused);
  else
    gn_fence(dev, now_ns, table->scratch.vid, v);
}

static void gn_delete(struct gn_dev *dev, gn_u64 now_ns, const gnp_sqe *sqe, struct gn_verdict *v) {
  gn_u16 vid = sqe->cdw12 > 0xFFFF ? 0 : (gn_u16)sqe->cdw12;
  struct gn_refused refused = gn_no(GN_INVALID_FIELD, 0);
  struct gn_deletion order = {vid, sqe->cdw13, gn_join(sqe->cdw2, sqe->cdw3),
                              gn_join(sqe->cdw14, sqe->cdw15)};
  bool gone = false;
  if (gnp_id_is_valid(vid)) refused = gn_table_remove(dev->table, &order, &gone);
  gn_answer(dev, v, vid, refused);
  if (refused.code || gone) return;
  gn_sweep_start(dev, now_ns, vid, sqe->cdw13);
  gn_fence(dev, now_ns, vid, v);
}

static struct gn_refused gn_renew(struct gn_dev *dev, gn_u64 now_ns, const gnp_sqe *sqe) {
  gn_u64 version = gn_join(sqe->cdw2, sqe->cdw3), term = gn_join(sqe->cdw14, sqe->cdw15);
  struct gn_fleet *fleet = &dev->fleet;
  struct gn_refused refused;
  if (fleet->voted) return gn_no(GN_INVALID_OPCODE, 0);
  if (!gn_takes_lease(sqe->cdw12, GNP_SERVING_LEASE_MIN_MS, GNP_SERVING_LEASE_MAX_MS))
    return gn_no(GN_INVALID_FIELD, 0);
  refused = gn_table_term(dev->table, term);
  if (refused.code) return refused;
  if (term < fleet->lease_term || (term == fleet->lease_term && version < fleet->lease_version))
    return gn_no(GN_STALE_VERSION, 0);
  fleet->lease_term = term;
  fleet->lease_version = version;
  fleet->has_lease = true;
  fleet->until_ns = gn_lease_end(now_ns, sqe->cdw12);
  return gn_ok();
}

static struct gn_refused gn_set_map(struct gn_dev *dev, struct gn_buffer data) {
  gn_u64 term, epoch;
  gn_u32 len = gn_fleet_check(data.at, data.bytes, &term, &epoch);
  struct gn_refused refused;
  if (!len || !gn_fleet_is_ours(&dev->fleet, data.at)) return gn_no(GN_INVALID_FIELD, 0);
  refused = gn_table_check_term(dev->table, term);
  if (refused.code) return refused;
  if (dev->fleet.bytes && epoch < dev->fleet.epoch) return gn_no(GN_STALE_VERSION, (gn_u32)dev->fleet.epoch);
  if (!gn_fleet_take(&dev->fleet, data.at, len, dev->config.id)) return gn_no(GN_NOT_READY, 0);
  return gn_table_term(dev->table, term);
}

static void gn_list(struct gn_dev *dev, gn_u64 now_ns, const gnp_sqe *sqe, struct gn_buffer data,
                    struct gn_verdict *v) {
  gn_u16 first = (gn_u16)sqe->cdw12, skip = (gn_u16)(sqe->cdw12 >> 16);
  gn_answer(dev, v, 0, gn_ok());
  memset(data.at, 0, data.bytes);
  v->bytes = data.bytes;
  v->dw0 = sqe->cdw13 & GN_LIST_TOMBSTONES
               ? gn_table_list_dead(dev->table, now_ns, first, skip, data)
               : gn_table_list(dev->table, first, data);
}

/* CDW12 bit 0 asks for the map that a voter holds. This SSD is no voter. */
static void gn_get_map(struct gn_dev *dev, const gnp_sqe *sqe, struct gn_buffer data,
                       struct gn_verdict *v) {
  gn_u32 len = dev->fleet.bytes && !(sqe->cdw12 & 1) ? dev->fleet.len : 0;
  gn_answer(dev, v, 0, gn_ok());
  memset(data.at, 0, data.bytes);
  if (len) memcpy(data.at, dev->fleet.bytes, len < data.bytes ? len : data.bytes);
  v->bytes = data.bytes;
  v->dw0 = len;
}

void gn_admin(struct gn_dev *dev, gn_u64 now_ns, const gnp_sqe *sqe, struct gn_buffer data,
              struct gn_verdict *v) {
  switch (sqe->opcode) {
    case GNP_VOLUME_ADD:
    case GNP_VOLUME_CHMOD:
      gn_take_entry(dev, now_ns, sqe, data.at, v);
      return;
    case GNP_VOLUME_DELETE:
      gn_delete(dev, now_ns, sqe, v);
      return;
    case GNP_LEASE_RENEW:
      gn_answer(dev, v, 0, gn_renew(dev, now_ns, sqe));
      return;
    case GNP_MAP_SET:
      gn_answer(dev, v, 0, gn_set_map(dev, data));
      return;
    case GNP_VOLUME_LIST:
      gn_list(dev, now_ns, sqe, data, v);
      return;
    case GNP_MAP_GET:
      gn_get_map(dev, sqe, data, v);
      return;
    default:
      gn_answer(dev, v, 0, gn_no(GN_INVALID_OPCODE, 0));
  }
}
