// SPDX-License-Identifier: GPL-2.0-only
/* /sys/kernel/debug/gn_check/: refusals by rule, load of the map, moves, of the script that played last. */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "gn_check.h"

static struct dentry *gn_folder;

/* Counters of the last script. They stay when its file is closed. */
static struct {
  struct gn_counts counts;
  gn_u64 keys;
  gn_u64 slots;
  gn_u64 moves;
  gn_u32 stashed;
} gn_seen;

void gn_check_look(void) {
  struct gn_dev *dev = gn_check_shown ? gn_player_device(gn_check_shown) : NULL;
  if (!dev) return;
  gn_seen.counts = *gn_counts_of(dev);
  gn_seen.keys = gn_map_len(gn_map_of(dev));
  gn_seen.slots = gn_map_buckets(gn_map_of(dev)) * GN_SLOTS;
  gn_seen.moves = gn_map_moves(gn_map_of(dev));
  gn_seen.stashed = gn_map_stashed(gn_map_of(dev));
}

static void gn_begin_show(void) {
  mutex_lock(&gn_check_lock);
  gn_check_look();
}

static int refusals_show(struct seq_file *out, void *unused) {
  gn_u32 code;
  gn_begin_show();
  for (code = 1; code < GN_REFUSALS_END; ++code)
    seq_printf(out, "%llu %s (%s)\n", gn_seen.counts.refusals[code], gn_name_of(code), gn_rule_of(code));
  mutex_unlock(&gn_check_lock);
  return 0;
}
DEFINE_SHOW_ATTRIBUTE(refusals);

static int load_show(struct seq_file *out, void *unused) {
  gn_begin_show();
  seq_printf(out, "%llu keys in %llu slots, %u in the stash\n", gn_seen.keys, gn_seen.slots, gn_seen.stashed);
  mutex_unlock(&gn_check_lock);
  return 0;
}
DEFINE_SHOW_ATTRIBUTE(load);

static int moves_show(struct seq_file *out, void *unused) {
  gn_begin_show();
  seq_printf(out, "%llu slots of the map, %llu pages of the collector, %llu blocks swept\n", gn_seen.moves,
             gn_seen.counts.moved, gn_seen.counts.swept);
  mutex_unlock(&gn_check_lock);
  return 0;
}
DEFINE_SHOW_ATTRIBUTE(moves);

static int commands_show(struct seq_file *out, void *unused) {
  const struct gn_counts *counts = &gn_seen.counts;
  gn_begin_show();
  seq_printf(out,
             "reads %llu\nwrites %llu\nforgets %llu\novertaken blocks %llu\nbelieved %llu\nclosed %llu\n",
             counts->reads, counts->writes, counts->forgets, counts->overtaken, counts->believed,
             counts->closed);
  mutex_unlock(&gn_check_lock);
  return 0;
}
DEFINE_SHOW_ATTRIBUTE(commands);

/* Vector files since the module was loaded. */
static int vectors_show(struct seq_file *out, void *unused) {
  mutex_lock(&gn_check_lock);
  seq_printf(out, "taken %llu\ndiffered %llu\nrefused %llu\n", gn_check_vectors.taken,
             gn_check_vectors.differed, gn_check_vectors.refused);
  mutex_unlock(&gn_check_lock);
  return 0;
}
DEFINE_SHOW_ATTRIBUTE(vectors);

static int bytes_show(struct seq_file *out, void *unused) {
  seq_printf(out, "%llu\n", gn_os_bytes);
  return 0;
}
DEFINE_SHOW_ATTRIBUTE(bytes);

int gn_check_stats_start(void) {
  gn_folder = debugfs_create_dir("gn_check", NULL);
  if (IS_ERR(gn_folder)) return PTR_ERR(gn_folder);
  debugfs_create_file("refusals", 0400, gn_folder, NULL, &refusals_fops);
  debugfs_create_file("load", 0400, gn_folder, NULL, &load_fops);
  debugfs_create_file("moves", 0400, gn_folder, NULL, &moves_fops);
  debugfs_create_file("commands", 0400, gn_folder, NULL, &commands_fops);
  debugfs_create_file("vectors", 0400, gn_folder, NULL, &vectors_fops);
  debugfs_create_file("bytes", 0400, gn_folder, NULL, &bytes_fops);
  return 0;
}

void gn_check_stats_end(void) {
  debugfs_remove_recursive(gn_folder);
}
