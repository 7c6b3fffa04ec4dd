// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/gn_check: the checks in a real kernel. Each open file is a script of its own. What is written are
 * operations, each behind its length in four bytes; what is read are the answers, behind theirs. A write
 * takes as many whole operations as there is room for answers, and keeps the beginning of the next one.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "gn_check.h"

#define GN_ANSWERS (256u << 10)

DEFINE_MUTEX(gn_check_lock);
struct gn_player *gn_check_shown;

struct gn_file {
  struct gn_player *player;
  gn_u8 *in;
  gn_u32 have;
  gn_u8 *answers;
  gn_u32 from;
  gn_u32 to;
  bool broken;
};

static void gn_file_end(struct gn_file *file) {
  if (file->player && gn_check_shown == file->player) {
    gn_check_look();
    gn_check_shown = NULL;
  }
  gn_player_delete(file->player);
  gn_free(file->in);
  gn_free(file->answers);
  gn_free(file);
}

static int gn_check_open(struct inode *inode, struct file *opened) {
  struct gn_file *file;
  mutex_lock(&gn_check_lock);
  file = gn_alloc(sizeof *file);
  if (file) {
    file->player = gn_player_new();
    file->in = gn_alloc(GN_OP_MOST + 4);
    file->answers = gn_alloc(GN_ANSWERS);
    if (!file->player || !file->in || !file->answers) {
      gn_file_end(file);
      file = NULL;
    }
  }
  mutex_unlock(&gn_check_lock);
  if (!file) return -ENOMEM;
  opened->private_data = file;
  return nonseekable_open(inode, opened);
}

static int gn_check_release(struct inode *inode, struct file *opened) {
  mutex_lock(&gn_check_lock);
  gn_file_end(opened->private_data);
  mutex_unlock(&gn_check_lock);
  return 0;
}

static gn_u32 gn_length(const gn_u8 *at) {
  return at[0] | (gn_u32)at[1] << 8 | (gn_u32)at[2] << 16 | (gn_u32)at[3] << 24;
}

/* Plays one operation; an errno, and a sentence in the log, where the bytes are none. */
static int gn_play_one(struct gn_file *file, gn_u32 length) {
  const char *why = "?";
  gn_u8 *answer = file->answers + file->to;
  int answered = gn_play(file->player, file->in + 4, length, answer + 4, &why);
  if (answered < 0) {
    gn_log("%s: %s\n", gn_op_name(file->in[4]), why);
    return -EINVAL;
  }
  answer[0] = (gn_u8)answered;
  answer[1] = (gn_u8)(answered >> 8);
  answer[2] = answer[3] = 0;
  file->to += 4 + (gn_u32)answered;
  return 0;
}

/* Takes bytes up to the end of one operation, and plays it if it is whole. */
static ssize_t gn_take(struct gn_file *file, const char __user *from, size_t bytes) {
  gn_u32 wants = file->have < 4 ? 4 : 4 + gn_length(file->in), part;
  int result = 0;
  part = min_t(size_t, bytes, wants - file->have);
  if (copy_from_user(file->in + file->have, from, part)) return -EFAULT;
  file->have += part;
  if (file->have < 4) return part;
  if (gn_length(file->in) == 0 || gn_length(file->in) > GN_OP_MOST) {
    gn_log("an operation of no possible length\n");
    return -EINVAL;
  }
  if (file->have == 4 + gn_length(file->in)) {
    result = gn_play_one(file, gn_length(file->in));
    file->have = 0;
  }
  return result ? result : part;
}

static ssize_t gn_check_write(struct file *opened, const char __user *from, size_t bytes, loff_t *at) {
  struct gn_file *file = opened->private_data;
  ssize_t used = 0, part = 0;
  mutex_lock(&gn_check_lock);
  gn_check_shown = file->player;
  if (file->broken) part = -EINVAL;
  if (file->from == file->to) file->from = file->to = 0;
  while (!file->broken && used < (ssize_t)bytes && used < INT_MAX / 2) {
    if (file->to + 4 + GN_ANSWER_MOST > GN_ANSWERS) {
      part = -EAGAIN;
      break;
    }
    part = gn_take(file, from + used, bytes - used);
    if (part == -EINVAL) file->broken = true;
    if (part < 0) break;
    used += part;
    cond_resched();
  }
  mutex_unlock(&gn_check_lock);
  return used ? used : part;
}

static ssize_t gn_check_read(struct file *opened, char __user *to, size_t bytes, loff_t *at) {
  struct gn_file *file = opened->private_data;
  ssize_t part;
  mutex_lock(&gn_check_lock);
  part = min_t(size_t, bytes, file->to - file->from);
  if (copy_to_user(to, file->answers + file->from, part))
    part = -EFAULT;
  else
    file->from += part;
  mutex_unlock(&gn_check_lock);
  return part;
}

/* There is no ioctl. The sentence says what to do instead. */
static long gn_check_ioctl(struct file *opened, unsigned int request, unsigned long at) {
  gn_log("no ioctl %#x here: write operations, and read their answers\n", request);
  return -ENOTTY;
}

static const struct file_operations gn_check_ops = {
    .owner = THIS_MODULE,
    .open = gn_check_open,
    .release = gn_check_release,
    .read = gn_check_read,
    .write = gn_check_write,
    .unlocked_ioctl = gn_check_ioctl,
    .compat_ioctl = gn_check_ioctl,
};

static struct miscdevice gn_check_device = {
    .minor = MISC_DYNAMIC_MINOR,
    .name = "gn_check",
    .fops = &gn_check_ops,
    .mode = 0600,
};

static int __init gn_check_start(void) {
  int result = misc_register(&gn_check_device);
  if (result) return result;
  result = gn_check_stats_start();
  if (result) misc_deregister(&gn_check_device);
  return result;
}

static void __exit gn_check_end(void) {
  gn_check_stats_end();
  misc_deregister(&gn_check_device);
  gn_log("%llu bytes left\n", gn_os_bytes);
}

module_init(gn_check_start);
module_exit(gn_check_end);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("GNStor's firmware checks, to be compared with the Rust firmware");
