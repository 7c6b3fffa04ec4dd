// SPDX-License-Identifier: GPL-2.0-only
/* Measures the CPU time of a verdict with its look-up. scripts/checks-cost compares it with the
 * firmware's. */
#define _POSIX_C_SOURCE 200809L
#include "gn_user.h"

#include <time.h>

/* The paper's time for the firmware of a read, in nanoseconds. */
#define GN_PAPER_NS 276.0
#define GN_ROUNDS 5
#define GN_READS (1u << 20)
#define GN_BATCH 64u
#define GN_NOW_NS 1000000u

static double gn_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Runs a command of the daemon's. */
static void gn_order(struct gn_dev *dev, gn_u8 opcode, gn_u8 *data, gn_u32 bytes) {
  struct gn_buffer whole = {data, bytes};
  struct gn_verdict v;
  gnp_sqe sqe;
  bool to_ssd;
  memset(&sqe, 0, sizeof sqe);
  sqe.opcode = opcode;
  sqe.nsid = 1;
  sqe.cdw10 = bytes / 4;
  gn_admin_begin(dev, GN_DAEMON, &sqe, &to_ssd, &v);
  if (v.action == GN_DONE) gn_admin(dev, GN_NOW_NS, &sqe, whole, &v);
  if (v.action != GN_DONE) {
    gn_complain("cost", "a command of the daemon's was refused");
    exit(1);
  }
}

static void gn_prepare(struct gn_dev *dev, gn_u64 blocks) {
  static gn_u8 map[GN_FRESH_MAP_BYTES];
  static gnp_entry entry;
  gn_make_map(map);
  gn_order(dev, GNP_MAP_SET, map, sizeof map);
  gn_make_entry(&entry, blocks);
  gn_order(dev, GNP_VOLUME_ADD, (gn_u8 *)&entry, sizeof entry);
}

static void gn_make_io(gnp_sqe *sqe, gn_u8 opcode, gn_u32 vba, gn_u64 sequence) {
  memset(sqe, 0, sizeof *sqe);
  sqe->opcode = opcode;
  sqe->nsid = 1;
  sqe->cdw2 = sqe->cdw3 = 1;
  sqe->cdw10 = vba;
  sqe->cdw11 = 1u << 16 | 7;
  sqe->cdw14 = (gn_u32)sequence;
}

static void gn_must(const struct gn_verdict *v, enum gn_action action) {
  if (v->action == action) return;
  gn_complain("cost", "a read or write was refused");
  exit(1);
}

static struct gn_dev *gn_filled(gn_u64 blocks) {
  struct gn_config config;
  struct gn_dev *dev;
  gn_u64 vba;
  memset(&config, 0, sizeof config);
  config.logical_pages = blocks;
  config.pages = blocks + 4096;
  config.seed = 1;
  config.commands = 64;
  config.sweep_buckets = 2048;
  dev = gn_dev_new(&config);
  if (!dev) return NULL;
  gn_prepare(dev, blocks);
  for (vba = 0; vba < blocks; ++vba) {
    struct gn_verdict v;
    gnp_sqe sqe;
    gn_make_io(&sqe, GNP_IO_WRITE, (gn_u32)vba, vba + 1);
    gn_command(dev, GN_NOW_NS, 7, &sqe, &v);
    gn_must(&v, GN_WRITE);
    gn_data(dev, GN_NOW_NS, gn_ended(v.handle, false), NULL, &v);
    gn_must(&v, GN_DONE);
  }
  return dev;
}

int gn_cost(gn_u64 blocks) {
  struct gn_dev *dev;
  gnp_sqe *reads = calloc(GN_READS, sizeof *reads);
  double best = 1e9;
  gn_u32 round, at;
  if (!blocks) blocks = 1u << 18;
  if (blocks > 1u << 26) return gn_complain("--cost", "at most 2^26 blocks");
  dev = gn_filled(blocks);
  if (!dev || !reads) return gn_complain("memory", "there is not enough");
  for (at = 0; at < GN_READS; ++at) gn_make_io(&reads[at], GNP_IO_READ, (gn_u32)(gnp_mix64(at) % blocks), 0);
  for (round = 0; round < GN_ROUNDS; ++round) {
    double begin = gn_seconds(), ns;
    for (at = 0; at < GN_READS; ++at) {
      struct gn_verdict v;
      /* Announces batches as firmware_rate does. */
      if (at % GN_BATCH == 0) gn_announce(dev, &reads[at], GN_BATCH);
      gn_command(dev, GN_NOW_NS, 7, &reads[at], &v);
      gn_must(&v, GN_READ);
      gn_done(dev, GN_NOW_NS, gn_ended(v.handle, false), &v);
    }
    ns = (gn_seconds() - begin) * 1e9 / GN_READS;
    if (ns < best) best = ns;
  }
  printf("verdict and look-up of a mapped 4 KiB read: %.0f ns, %.2f of the paper's %.0f ns"
         " (best of %d rounds, %llu blocks)\n", best, best / GN_PAPER_NS, GN_PAPER_NS, GN_ROUNDS,
         (unsigned long long)blocks);
  gn_dev_delete(dev);
  free(reads);
  return 0;
}
