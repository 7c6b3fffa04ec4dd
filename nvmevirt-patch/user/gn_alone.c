// SPDX-License-Identifier: GPL-2.0-only
/* Plays the states of gn_alone.h, and prints which are right. */
#include "gn_alone.h"

gnp_entry gn_alone_entry;
gn_u8 gn_alone_data[GN_MAP_BYTES];

static struct gn_dev *gn_make_dev(gn_u32 commands, gn_u64 pages, bool keyed) {
  struct gn_config config;
  memset(&config, 0, sizeof config);
  config.logical_pages = GN_BLOCKS;
  config.pages = pages;
  config.commands = commands;
  config.sweep_buckets = 64;
  config.keyed = keyed;
  return gn_dev_new(&config);
}

gn_u8 gn_alone_send(struct gn_dev *dev, gn_u64 now, struct gn_order order, struct gn_verdict *v) {
  struct gn_buffer data = {gn_alone_data, order.bytes};
  gnp_sqe sqe;
  bool to_ssd;
  memset(&sqe, 0, sizeof sqe);
  sqe.opcode = order.opcode;
  sqe.nsid = 1;
  sqe.cdw10 = order.bytes / 4;
  gn_admin_begin(dev, order.client, &sqe, &to_ssd, v);
  if (v->action != GN_DONE) return (gn_u8)v->dw0;
  if (order.data) memcpy(gn_alone_data, order.data, order.bytes);
  gn_admin(dev, now, &sqe, data, v);
  return (gn_u8)v->dw0;
}

gn_u8 gn_alone_change(struct gn_dev *dev, gn_u64 now, gn_u8 opcode, struct gn_verdict *v) {
  struct gn_order order = {GN_DAEMON, opcode, &gn_alone_entry, sizeof gn_alone_entry};
  gn_entry_seal(&gn_alone_entry);
  return gn_alone_send(dev, now, order, v);
}

gn_u8 gn_alone_delete(struct gn_dev *dev, gn_u64 now, gn_u16 vid, gn_u32 generation, struct gn_verdict *v) {
  struct gn_buffer none = {gn_alone_data, 0};
  gnp_sqe sqe;
  memset(&sqe, 0, sizeof sqe);
  sqe.opcode = GNP_VOLUME_DELETE;
  sqe.cdw12 = vid;
  sqe.cdw13 = generation;
  sqe.cdw2 = sqe.cdw3 = 0xFFFFFFFF;
  sqe.cdw14 = 1;
  gn_admin(dev, now, &sqe, none, v);
  return (gn_u8)v->dw0;
}

struct gn_dev *gn_alone_ready(gn_u64 now, gn_u32 commands, gn_u64 pages) {
  static gn_u8 map[GN_FRESH_MAP_BYTES];
  struct gn_order map_set = {GN_DAEMON, GNP_MAP_SET, map, sizeof map};
  struct gn_dev *dev = gn_make_dev(commands, pages, false);
  struct gn_verdict v;
  if (!dev) return NULL;
  gn_make_map(map);
  gn_make_entry(&gn_alone_entry, GN_BLOCKS);
  if (gn_alone_send(dev, now, map_set, &v) || gn_alone_change(dev, now, GNP_VOLUME_ADD, &v)) {
    gn_dev_delete(dev);
    return NULL;
  }
  return dev;
}

gnp_sqe gn_alone_io(gn_u8 opcode, gn_u16 client, gn_u32 vba, gn_u32 blocks) {
  static gn_u32 sequence;
  gnp_sqe sqe;
  memset(&sqe, 0, sizeof sqe);
  sqe.opcode = opcode;
  sqe.nsid = 1;
  sqe.cdw2 = sqe.cdw3 = 1;
  sqe.cdw10 = vba;
  sqe.cdw11 = 1u << 16 | client;
  sqe.cdw12 = blocks - 1;
  sqe.cdw14 = ++sequence;
  return sqe;
}

gn_u8 gn_alone_ask(struct gn_dev *dev, gn_u64 now, gn_u16 from, gnp_sqe sqe, struct gn_verdict *v) {
  gn_command(dev, now, from, &sqe, v);
  return (gn_u8)v->dw0;
}

struct gn_state {
  const char *name;
  bool (*is_right)(struct gn_dev *dev);
  gn_u64 now_ns;
  gn_u32 commands;
  gn_u32 spare;
};

int gn_alone(void) {
  static const struct gn_state states[] = {
      {"NotReady: the 257th fence", gn_state_fences, GN_T0, 8, 64},
      {"NotReady: no slot for a command", gn_state_slots, GN_T0, 1, 64},
      {"NotReady: no page for a write", gn_state_no_page, GN_T0, 8, 0},
      {"an overdue fence and queues without a client", gn_state_unbound, GN_T0, 8, 64},
      {"queues of clients 0 and FFFFh", gn_state_no_client, GN_T0, 8, 64},
      {"WrongKey: a record of another block", gn_state_wrong_key, GN_T0, 8, 64},
      {"times up to 2^64 ns", gn_state_end_of_time, GN_LAST_NS - 3000000000ull, 8, 64},
      {"PRP: lengths by blocks, flags, MDTS", gn_state_prp, GN_T0, 8, 64},
      {"66,000 deaths, and a day", gn_state_many_deaths, GN_T0, 8, 64},
      {"operations that are cut short", gn_state_cut_short, GN_T0, 8, 64},
      {"the longest answer", gn_state_long_answer, GN_T0, 8, 64},
  };
  gn_u32 at, wrong = 0;
  for (at = 0; at < sizeof states / sizeof *states; ++at) {
    struct gn_dev *dev = gn_alone_ready(states[at].now_ns, states[at].commands, GN_BLOCKS + states[at].spare);
    bool right = dev && states[at].is_right(dev);
    printf("%s    %s\n", right ? "right" : "WRONG", states[at].name);
    wrong += !right;
    gn_dev_delete(dev);
  }
  if (gn_os_bytes) return gn_complain("memory", "bytes are left that were never taken back");
  return wrong != 0;
}
