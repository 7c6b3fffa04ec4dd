// SPDX-License-Identifier: GPL-2.0-only
/* The states of gn_alone.h. */
#include "gn_alone.h"

#define GN_DAY (24ull * 3600 * 1000000000)

bool gn_state_fences(struct gn_dev *dev) {
  struct gn_verdict v;
  gn_u32 reader, handle, count, done = 0;
  GN_IS(!gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_READ, 7, 0, 1), &v));
  reader = v.handle;
  for (count = 0; count < GN_MAX_FENCES; ++count) {
    ++gn_alone_entry.version;
    GN_IS(!gn_alone_change(dev, GN_T0, GNP_VOLUME_CHMOD, &v) && v.action == GN_WAIT);
  }
  ++gn_alone_entry.version;
  GN_IS(gn_alone_change(dev, GN_T0, GNP_VOLUME_CHMOD, &v) == GN_NOT_READY);
  /* The change has taken effect. */
  GN_IS(gn_alone_change(dev, GN_T0, GNP_VOLUME_CHMOD, &v) == GN_STALE_VERSION);
  GN_IS(!gn_poll(dev, &handle));
  gn_done(dev, GN_T0, gn_ended(reader, false), &v);
  while (gn_poll(dev, &handle)) ++done;
  GN_IS(done == GN_MAX_FENCES);
  return true;
}

bool gn_state_slots(struct gn_dev *dev) {
  struct gn_verdict v, other;
  GN_IS(!gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_READ, 7, 0, 1), &v));
  GN_IS(gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_READ, 7, 1, 1), &other) == GN_NOT_READY);
  GN_IS(gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_COMPARE, 7, 1, 1), &other) == GN_NOT_READY);
  GN_IS(gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_DATASET_MANAGEMENT, 7, 0, 1), &other) == GN_NOT_READY);
  /* Commands that need no slot, and commands that are refused in any case. */
  GN_IS(!gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_WRITE_ZEROES, 7, 2, 1), &other));
  GN_IS(other.action == GN_FORGET);
  GN_IS(gn_alone_ask(dev, GN_T0, 9, gn_alone_io(GNP_IO_READ, 9, 1, 1), &other) == GN_NOT_A_READER);
  gn_done(dev, GN_T0, gn_ended(v.handle, false), &v);
  GN_IS(!gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_READ, 7, 1, 1), &v) && gn_in_flight(dev) == 1);
  return true;
}

bool gn_state_no_page(struct gn_dev *dev) {
  struct gn_verdict v, other;
  gn_u32 vba;
  for (vba = 0; vba < GN_BLOCKS; vba += 16)
    GN_IS(!gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_WRITE, 7, vba, 16), &v));
  GN_IS(gn_free_pages(dev) == 0);
  GN_IS(gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_WRITE, 7, 0, 1), &other) == GN_NOT_READY);
  GN_IS(!gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_READ, 7, 0, 1), &other));
  gn_data(dev, GN_T0, gn_ended(v.handle, true), NULL, &v);
  GN_IS((gn_u8)v.dw0 == GN_TRANSFER_ERROR && gn_free_pages(dev) == 16);
  GN_IS(!gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_WRITE, 7, 0, 1), &v));
  return true;
}

/* An overdue fence treats all queues without a client as one. It does not close a queue with a client. */
bool gn_state_unbound(struct gn_dev *dev) {
  struct gn_verdict v, others[3];
  gn_u16 client;
  gn_u32 handle;
  gn_alone_entry.any_reader = 1;
  ++gn_alone_entry.version;
  GN_IS(!gn_alone_change(dev, GN_T0, GNP_VOLUME_CHMOD, &v));
  GN_IS(!gn_alone_ask(dev, GN_T0, 0, gn_alone_io(GNP_IO_READ, 7, 0, 1), &others[0]));
  GN_IS(!gn_alone_ask(dev, GN_T0, 0, gn_alone_io(GNP_IO_READ, 0xFFFE, 0, 1), &others[1]));
  GN_IS(gn_counts_of(dev)->believed == 2);
  ++gn_alone_entry.version;
  GN_IS(!gn_alone_change(dev, GN_T0, GNP_VOLUME_CHMOD, &v) && v.action == GN_WAIT);
  GN_IS(!gn_alone_ask(dev, GN_T0, 8, gn_alone_io(GNP_IO_READ, 8, 0, 1), &others[2]));
  GN_IS(gn_next_ns(dev) == GN_T0 + GN_FENCE_NS);
  gn_tick(dev, GN_T0 + GN_FENCE_NS - 1);
  GN_IS(!gn_closed(dev, &client) && !gn_poll(dev, &handle));
  gn_tick(dev, GN_T0 + GN_FENCE_NS);
  GN_IS(gn_closed(dev, &client) && client == 0 && !gn_closed(dev, &client));
  GN_IS(gn_poll(dev, &handle) && handle == v.handle);
  gn_done(dev, GN_T0, gn_ended(others[0].handle, false), &v);
  GN_IS(v.action == GN_GONE);
  gn_done(dev, GN_T0, gn_ended(others[1].handle, false), &v);
  GN_IS(v.action == GN_GONE);
  gn_done(dev, GN_T0, gn_ended(others[2].handle, false), &v);
  GN_IS(v.action == GN_DONE && gn_in_flight(dev) == 0);
  return true;
}

/* The firmware connects no queue with such a client, so it never gets such a command. */
bool gn_state_no_client(struct gn_dev *dev) {
  static const gn_u8 verbs[] = {GNP_IO_READ, GNP_IO_WRITE, GNP_IO_COMPARE, GNP_IO_WRITE_ZEROES};
  static const gn_u8 orders[] = {GNP_VOLUME_ADD, GNP_VOLUME_LIST, GNP_VOLUME_DELETE, GNP_VOLUME_CHMOD,
                                 GNP_LEASE_RENEW, GNP_MAP_SET};
  struct gn_order order = {0, 0, NULL, 4096};
  struct gn_verdict v;
  gn_u32 at;
  for (at = 0; at < sizeof verbs; ++at) {
    GN_IS(gn_alone_ask(dev, GN_T0, GN_DAEMON, gn_alone_io(verbs[at], 7, 0, 1), &v) == GN_WRONG_IDENTITY);
    GN_IS(gn_alone_ask(dev, GN_T0, GN_DAEMON, gn_alone_io(verbs[at], 0xFFFF, 0, 1), &v) == GN_INVALID_FIELD);
    GN_IS(gn_alone_ask(dev, GN_T0, 0, gn_alone_io(verbs[at], 0, 0, 1), &v) == GN_INVALID_FIELD);
  }
  for (at = 0; at < sizeof orders; ++at) {
    order.opcode = orders[at];
    order.client = 0;
    GN_IS(gn_alone_send(dev, GN_T0, order, &v) == GN_NOT_THE_DAEMON);
    order.client = 7;
    GN_IS(gn_alone_send(dev, GN_T0, order, &v) == GN_NOT_THE_DAEMON);
  }
  order.opcode = GNP_MAP_GET;
  gn_alone_send(dev, GN_T0, order, &v);
  GN_IS(v.status == 0 && v.dw0 != 0);
  return true;
}

/* A record that names another block. Only damaged memory causes it. */
bool gn_state_wrong_key(struct gn_dev *dev) {
  struct gn_verdict v;
  struct gn_oob *record;
  gn_u32 page;
  GN_IS(!gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_WRITE, 7, 0, 2), &v));
  page = v.pages[0];
  gn_data(dev, GN_T0, gn_ended(v.handle, false), NULL, &v);
  GN_IS(v.action == GN_DONE);
  record = (struct gn_oob *)(uintptr_t)gn_page(dev, page);
  record->vba ^= 1;
  GN_IS(gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_READ, 7, 0, 2), &v) == GN_WRONG_KEY);
  GN_IS(v.status == 0x0281);
  GN_IS(!gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_COMPARE, 7, 0, 1), &v));
  gn_compare(dev, GN_T0, gn_ended(v.handle, false), &v);
  GN_IS((gn_u8)v.dw0 == GN_WRONG_KEY && gn_in_flight(dev) == 0);
  GN_IS(!gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_READ, 7, 1, 1), &v));
  record->vba ^= 1;
  GN_IS(!gn_alone_ask(dev, GN_T0, 7, gn_alone_io(GNP_IO_READ, 7, 0, 1), &v));
  return true;
}

/* The firmware's clock ends at 2^64 ps, this one at 2^64 ns: no sum wraps. `dev` was made 3 s before. */
bool gn_state_end_of_time(struct gn_dev *dev) {
  gn_u64 now = GN_LAST_NS - 3000000000ull;
  struct gn_verdict v;
  gn_u32 handle;
  gn_u16 client;
  GN_IS(!gn_alone_ask(dev, now, 7, gn_alone_io(GNP_IO_WRITE, 7, 0, 1), &v));
  now = GN_LAST_NS - 1;
  gn_data(dev, now, gn_ended(v.handle, false), NULL, &v);
  GN_IS(v.action == GN_DONE);
  GN_IS(!gn_alone_ask(dev, now, 7, gn_alone_io(GNP_IO_READ, 7, 0, 1), &v));
  ++gn_alone_entry.version;
  GN_IS(!gn_alone_change(dev, now, GNP_VOLUME_CHMOD, &v) && v.action == GN_WAIT);
  GN_IS(gn_next_ns(dev) == GN_LAST_NS);
  gn_tick(dev, now);
  GN_IS(!gn_closed(dev, &client) && !gn_poll(dev, &handle));
  gn_tick(dev, GN_LAST_NS);
  GN_IS(gn_closed(dev, &client) && client == 7 && gn_poll(dev, &handle));
  /* A lease ends with time itself. */
  GN_IS(gn_alone_ask(dev, GN_LAST_NS, 7, gn_alone_io(GNP_IO_WRITE, 7, 0, 1), &v) == GN_LEASE_EXPIRED);
  GN_IS(!gn_alone_delete(dev, now, 1, 1, &v));
  gn_tick(dev, GN_LAST_NS);
  GN_IS(gn_map_len(gn_map_of(dev)) == 0);
  return true;
}

/* With PRP the length of a command is that of its blocks. The checks use no pointer. */
bool gn_state_prp(struct gn_dev *dev) {
  gn_u32 blocks, kind;
  struct gn_verdict v;
  gnp_sqe sqe;
  gn_alone_entry.chunk_shift = 12;
  gn_alone_entry.vid = 2;
  gn_alone_entry.capacity_blocks = 1u << 20;
  GN_IS(!gn_alone_change(dev, GN_T0, GNP_VOLUME_ADD, &v));
  for (blocks = 1; blocks <= GN_MAX_BLOCKS; ++blocks) {
    for (kind = 0; kind < 256; kind += 15) {
      sqe = gn_alone_io(GNP_IO_READ, 7, 0, blocks);
      sqe.cdw11 = 2u << 16 | 7;
      memset(&sqe.dptr, (int)kind, sizeof sqe.dptr);
      GN_IS(!gn_alone_ask(dev, GN_T0, 7, sqe, &v) && v.blocks == blocks && v.bytes == blocks * 4096);
      gn_done(dev, GN_T0, gn_ended(v.handle, false), &v);
    }
  }
  for (kind = 0; kind < 256; ++kind) {
    sqe = gn_alone_io(GNP_IO_READ, 7, 0, 1);
    sqe.flags = (gn_u8)kind;
    GN_IS(gn_alone_ask(dev, GN_T0, 7, sqe, &v) == (kind ? GN_INVALID_FIELD : 0));
    if (!kind) gn_done(dev, GN_T0, gn_ended(v.handle, false), &v);
  }
  sqe = gn_alone_io(GNP_IO_READ, 7, 0, GN_MAX_BLOCKS + 1);
  sqe.cdw11 = 2u << 16 | 7;
  GN_IS(gn_alone_ask(dev, GN_T0, 7, sqe, &v) == GN_INVALID_FIELD);
  sqe.opcode = GNP_IO_WRITE_ZEROES;
  GN_IS(!gn_alone_ask(dev, GN_T0, 7, sqe, &v));
  return true;
}

#define GN_LIVES 66000u

/* More deleted volumes than there is room for. The oldest are forgotten first, and all of them after a
 * day. */
bool gn_state_many_deaths(struct gn_dev *dev) {
  const gn_u32 room = GN_MAP_BYTES / GN_TOMBSTONE_BYTES;
  gn_u64 now = GN_T0;
  struct gn_verdict v;
  gn_u32 life;
  struct gn_buffer all = {gn_alone_data, GN_MAP_BYTES};
  gnp_sqe list;
  for (life = 0; life < GN_LIVES; ++life) {
    gn_alone_entry.vid = (gn_u16)(3 + life % 3);
    gn_alone_entry.generation = 1 + life / 3;
    GN_IS(!gn_alone_change(dev, now, GNP_VOLUME_ADD, &v));
    GN_IS(!gn_alone_delete(dev, now, gn_alone_entry.vid, gn_alone_entry.generation, &v));
    now += 1000000;
    gn_tick(dev, now);
  }
  memset(&list, 0, sizeof list);
  list.opcode = GNP_VOLUME_LIST;
  list.cdw13 = 1;
  gn_admin(dev, now, &list, all, &v);
  /* The first 464 deaths are forgotten: of volume 3 the generations up to 155. */
  GN_IS(v.dw0 == room && gn_u32_of(gn_alone_data + 8) == (GN_LIVES - GN_MAX_RECENT + 2) / 3 + 1);
  gn_admin(dev, now + GN_DAY - 100 * 1000000ull, &list, all, &v);
  GN_IS(v.dw0 == 100);
  gn_admin(dev, now + GN_DAY, &list, all, &v);
  GN_IS(v.dw0 == 0);
  return true;
}
