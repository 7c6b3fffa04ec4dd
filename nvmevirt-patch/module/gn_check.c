// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/gn_check: the checks in a real kernel. Each open file is a script of its own. What is written are
 * operations, each behind its length in four bytes; what is read are the answers, behind theirs. A write
 * takes as many whole operations as there is room for answers, and keeps the beginning of the next one. A
 * write that begins with "GNVS" is a vector file, whole: what is read then are its answers.
 */
#include <linux/miscdevice.h>
#include <linux/module.h>

#include "gn_check.h"

DEFINE_MUTEX(gn_check_lock);
struct gn_player *gn_check_shown;

static void gn_file_end(struct gn_file *file) {
  if (file->player && gn_check_shown == file->player) {
    gn_check_look();
    gn_check_shown = NULL;
  }
  gn_player_delete(file->player);
  gn_free(file->held);
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

int gn_check_play(struct gn_file *file, const gn_u8 *op, gn_u32 bytes) {
  const char *why = "?";
  gn_u8 *answer = file->answers + file->to;
  int answered = gn_play(file->player, op, bytes, answer + 4, &why);
  if (answered < 0) {
    gn_log("%s: %s\n", gn_op_name(op[0]), why);
    return -EINVAL;
  }
  answer[0] = (gn_u8)answered;
  answer[1] = (gn_u8)(answered >> 8);
  answer[2] = answer[3] = 0;
  file->to += 4 + (gn_u32)answered;
  return answered;
}

/* Takes bytes up to the end of one operation. Plays the operation if it is whole. */
static ssize_t gn_take(struct gn_file *file, const char __user *from, size_t bytes) {
  gn_u32 wants = file->have < 4 ? 4 : 4 + gn_u32_of(file->in), part;
  int result = 0;
  part = min_t(size_t, bytes, wants - file->have);
  if (copy_from_user(file->in + file->have, from, part)) return -EFAULT;
  file->have += part;
  if (file->have < 4) return part;
  if (gn_u32_of(file->in) == 0 || gn_u32_of(file->in) > GN_OP_MOST) {
    gn_log("an operation of no possible length\n");
    return -EINVAL;
  }
  if (file->have == 4 + gn_u32_of(file->in)) {
    result = gn_check_play(file, file->in + 4, gn_u32_of(file->in));
    file->have = 0;
  }
  return result < 0 ? result : part;
}

/* Takes operations, until the rest is not whole or until there is no room for more answers. */
static ssize_t gn_take_all(struct gn_file *file, const char __user *from, size_t bytes) {
  ssize_t used = 0, part = 0;
  if (file->from == file->to) file->from = file->to = 0;
  while (used < (ssize_t)bytes && used < INT_MAX / 2) {
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
  return used ? used : part;
}

/* Whether the write begins a vector file. It does not if the former write ended within an operation. */
static bool gn_begins_vector(const struct gn_file *file, const char __user *from, size_t bytes) {
  gn_u8 head[4];
  if (file->have || bytes < sizeof head || copy_from_user(head, from, sizeof head)) return false;
  return gn_vector_begins(head, sizeof head);
}

static ssize_t gn_check_write(struct file *opened, const char __user *from, size_t bytes, loff_t *at) {
  struct gn_file *file = opened->private_data;
  ssize_t result;
  mutex_lock(&gn_check_lock);
  gn_check_shown = file->player;
  if (file->broken)
    result = -EINVAL;
  else if (file->held)
    /* The caller must first read the vector file's answers. */
    result = -EAGAIN;
  else if (gn_begins_vector(file, from, bytes))
    result = file->from == file->to ? gn_check_take_vector(file, from, bytes) : -EAGAIN;
  else
    result = gn_take_all(file, from, bytes);
  mutex_unlock(&gn_check_lock);
  return result;
}

static ssize_t gn_check_read(struct file *opened, char __user *to, size_t bytes, loff_t *at) {
  struct gn_file *file = opened->private_data;
  ssize_t part;
  mutex_lock(&gn_check_lock);
  if (file->held && file->from == file->to) gn_check_go_on(file);
  part = min_t(size_t, bytes, file->to - file->from);
  if (file->held && file->from == file->to)
    part = gn_check_end_vector(file);
  else if (copy_to_user(to, file->answers + file->from, part))
    part = -EFAULT;
  else
    file->from += part;
  mutex_unlock(&gn_check_lock);
  return part;
}

/* The device has no ioctl. The message says what to do instead. */
static long gn_check_ioctl(struct file *opened, unsigned int request, unsigned long at) {
  gn_log("no ioctl %#x here: write operations or a vector file, and read the answers\n", request);
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
