// SPDX-License-Identifier: GPL-2.0-only
/* Operations on a device. */
#include "gn_play_inner.h"

static struct gn_token *gn_token_of(struct gn_player *p, gn_u32 token) {
  struct gn_token *named = &p->tokens[token % GN_TOKENS];
  return named->handle && named->token == token ? named : NULL;
}

static void gn_say_complete(struct gn_player *p, gn_u32 token, const struct gn_verdict *v) {
  gn_put(p, GN_EV_COMPLETE, 1);
  gn_put(p, token, 4);
  gn_put(p, v->status, 2);
  gn_put(p, v->dw0, 4);
  gn_put(p, v->dw1, 4);
}

static gn_u32 gn_sum_of(const struct gn_player *p, gn_u32 page) {
  return page == GN_NO_PAGE ? p->sums[0] : gn_page(p->dev, page)->sum;
}

static void gn_say_verdict(struct gn_player *p, gn_u32 token, const struct gn_verdict *v) {
  gn_u32 index;
  switch (v->action) {
    case GN_REFUSE:
    case GN_DONE:
    case GN_FORGET:
      gn_say_complete(p, token, v);
      break;
    case GN_READ:
      gn_put(p, GN_EV_PAGES, 1);
      gn_put(p, token, 4);
      gn_put(p, v->blocks, 2);
      for (index = 0; index < v->blocks; ++index) gn_put(p, gn_sum_of(p, v->pages[index]), 4);
      break;
    case GN_WRITE:
    case GN_COMPARE:
    case GN_RANGES:
      gn_put(p, GN_EV_WANTS, 1);
      gn_put(p, token, 4);
      gn_put(p, v->bytes, 4);
      break;
    case GN_WAIT:
    case GN_GONE:
      break;
  }
}

/* Ends a command without a completion, because its queue was closed. */
static void gn_end_quietly(struct gn_player *p, struct gn_token *named) {
  struct gn_transfer failed = gn_ended(named->handle, true);
  struct gn_verdict v;
  switch (named->action) {
    case GN_READ:
      gn_done(p->dev, 0, failed, &v);
      break;
    case GN_WRITE:
      gn_data(p->dev, 0, failed, NULL, &v);
      break;
    case GN_RANGES:
      gn_ranges(p->dev, 0, failed, p->buffer, &v);
      break;
    default:
      gn_compare(p->dev, 0, failed, &v);
  }
  named->handle = 0;
}

/* Effects of the operation beside its own answer: time passes, queues close, fences are done. */
static void gn_follow_up(struct gn_player *p, gn_u64 now_ns) {
  struct gn_verdict v;
  gn_u16 client;
  gn_u32 handle, at, least;
  gn_tick(p->dev, now_ns);
  while (gn_closed(p->dev, &client)) {
    gn_put(p, GN_EV_CLOSED, 1);
    gn_put(p, client, 2);
    for (at = 0; at < GN_TOKENS; ++at)
      if (p->tokens[at].handle && p->tokens[at].client == client) gn_end_quietly(p, &p->tokens[at]);
  }
  memset(&v, 0, sizeof v);
  /* In the order of their tokens. Each that is done loses its handle first. */
  while (gn_poll(p->dev, &handle))
    for (at = 0; at < p->wait_count; ++at)
      if (p->waits[at].handle == handle) p->waits[at].handle = 0;
  for (;;) {
    least = p->wait_count;
    for (at = 0; at < p->wait_count; ++at)
      if (!p->waits[at].handle && (least == p->wait_count || p->waits[at].token < p->waits[least].token))
        least = at;
    if (least == p->wait_count) return;
    gn_say_complete(p, p->waits[least].token, &v);
    p->waits[least] = p->waits[--p->wait_count];
  }
}

static void gn_op_device(struct gn_player *p, const char **why) {
  struct gn_config config;
  memset(&config, 0, sizeof config);
  config.logical_pages = gn_get(p, 8);
  config.pages = gn_get(p, 8);
  config.seed = gn_get(p, 8);
  config.id = (gn_u16)gn_get(p, 2);
  config.commands = (gn_u32)gn_get(p, 4);
  config.sweep_buckets = (gn_u32)gn_get(p, 4);
  if (p->is_short) return;
  config.keyed = !p->is_twin;
  gn_dev_delete(p->dev);
  memset(p->tokens, 0, GN_TOKENS * sizeof *p->tokens);
  p->wait_count = 0;
  p->dev = config.pages <= GN_PAGES_MOST && config.commands <= GN_COMMANDS_MOST ? gn_dev_new(&config) : NULL;
  if (!p->dev) *why = "a device of these sizes cannot be made";
}

/* The same command with PRP: flags that were right there are right here, and no others. The two entries are
 * any, as nothing here may look at them. */
static void gn_make_prp(gnp_sqe *sqe) {
  gn_u64 entries[2];
  sqe->flags ^= GNP_FLAGS_SGL;
  entries[0] = gnp_mix64(sqe->cdw10 ^ (gn_u64)sqe->cdw14 << 32);
  entries[1] = gnp_mix64(entries[0]);
  memcpy(&sqe->dptr, entries, sizeof entries);
}

static void gn_get_sqe(struct gn_player *p, gnp_sqe *sqe) {
  memset(sqe, 0, sizeof *sqe);
  if ((gn_u64)(p->end - p->at) < sizeof *sqe) {
    p->is_short = true;
    return;
  }
  memcpy(sqe, p->at, sizeof *sqe);
  p->at += sizeof *sqe;
  if (p->is_twin) gn_make_prp(sqe);
}

static void gn_op_command(struct gn_player *p) {
  gn_u64 now_ns = gn_get(p, 8);
  gn_u16 client = (gn_u16)gn_get(p, 2);
  gn_u32 token = (gn_u32)gn_get(p, 4);
  struct gn_verdict v;
  gnp_sqe sqe;
  gn_get_sqe(p, &sqe);
  if (p->is_short) return;
  gn_command(p->dev, now_ns, client, &sqe, &v);
  if (v.handle) {
    struct gn_token *named = &p->tokens[token % GN_TOKENS];
    if (named->handle) gn_end_quietly(p, named);
    named->token = token;
    named->handle = v.handle;
    named->client = client;
    named->action = (gn_u8)v.action;
    named->blocks = v.blocks;
    named->bytes = v.bytes;
  }
  gn_say_verdict(p, token, &v);
  gn_follow_up(p, now_ns);
}

/* Compares contents by their sums, and ends the command. */
static void gn_compare_sums(struct gn_player *p, gn_u64 now_ns, struct gn_transfer ended, gn_u32 count,
                            struct gn_verdict *v) {
  gn_u32 index;
  bool differs = false;
  gn_compare(p->dev, now_ns, ended, v);
  if (v->action != GN_READ) return;
  for (index = 0; index < v->blocks && index < count; ++index)
    differs |= gn_sum_of(p, v->pages[index]) != p->block_sums[index];
  gn_compared(p->dev, ended.handle, differs, v);
}

static void gn_op_data(struct gn_player *p) {
  gn_u64 now_ns = gn_get(p, 8);
  gn_u32 token = (gn_u32)gn_get(p, 4), index;
  bool failed = gn_get(p, 1) != 0;
  struct gn_token *named = gn_token_of(p, token);
  struct gn_transfer ended = gn_ended(named ? named->handle : 0, failed);
  struct gn_verdict v;
  if (p->is_short || !named || named->action == GN_READ) return;
  if (named->action == GN_RANGES) {
    memset(p->buffer, 0, named->bytes);
    for (index = 0; index < named->bytes && p->at < p->end; ++index) p->buffer[index] = *p->at++;
    gn_ranges(p->dev, now_ns, ended, p->buffer, &v);
  } else {
    for (index = 0; index < named->blocks; ++index)
      p->block_sums[index] = p->sums[p->at < p->end ? *p->at++ : 0];
    if (named->action == GN_WRITE)
      gn_data(p->dev, now_ns, ended, p->block_sums, &v);
    else
      gn_compare_sums(p, now_ns, ended, named->blocks, &v);
  }
  named->handle = 0;
  gn_say_verdict(p, token, &v);
  gn_follow_up(p, now_ns);
}

static void gn_op_done(struct gn_player *p) {
  gn_u64 now_ns = gn_get(p, 8);
  gn_u32 token = (gn_u32)gn_get(p, 4);
  bool failed = gn_get(p, 1) != 0;
  struct gn_token *named = gn_token_of(p, token);
  struct gn_transfer ended = gn_ended(named ? named->handle : 0, failed);
  struct gn_verdict v;
  if (p->is_short || !named || named->action != GN_READ) return;
  gn_done(p->dev, now_ns, ended, &v);
  named->handle = 0;
  gn_say_verdict(p, token, &v);
  gn_follow_up(p, now_ns);
}

/* The data of a daemon's command: pieces of (offset 4, length 4, bytes), zeros elsewhere. */
static void gn_get_data(struct gn_player *p, gn_u32 bytes) {
  memset(p->buffer, 0, bytes);
  while (p->at < p->end) {
    gn_u32 offset = (gn_u32)gn_get(p, 4), length = (gn_u32)gn_get(p, 4), fits;
    if (p->is_short || (gn_u64)(p->end - p->at) < length) {
      p->is_short = true;
      return;
    }
    fits = offset >= bytes ? 0 : bytes - offset < length ? bytes - offset : length;
    memcpy(p->buffer + (fits ? offset : 0), p->at, fits);
    p->at += length;
  }
}

static void gn_op_admin(struct gn_player *p) {
  gn_u64 now_ns = gn_get(p, 8);
  gn_u16 client = (gn_u16)gn_get(p, 2);
  gn_u32 token = (gn_u32)gn_get(p, 4);
  struct gn_buffer data = {p->buffer, 0};
  struct gn_verdict v;
  bool to_ssd;
  gnp_sqe sqe;
  gn_get_sqe(p, &sqe);
  if (p->is_short) return;
  gn_admin_begin(p->dev, client, &sqe, &to_ssd, &v);
  if (v.action == GN_DONE) {
    data.bytes = v.bytes;
    gn_get_data(p, data.bytes);
    if (p->is_short) return;
    gn_admin(p->dev, now_ns, &sqe, data, &v);
    if (v.bytes) {
      gn_put(p, GN_EV_OUT, 1);
      gn_put(p, token, 4);
      gn_put(p, v.bytes, 4);
      gn_put(p, gn_crc32c(0, p->buffer, v.bytes), 4);
    }
    if (v.action == GN_WAIT) {
      p->waits[p->wait_count].token = token;
      p->waits[p->wait_count++].handle = v.handle;
    }
  }
  gn_say_verdict(p, token, &v);
  gn_follow_up(p, now_ns);
}

/* A collector moves this many mapped pages, drawn from a seed. A host must see no change. */
static void gn_op_move(struct gn_player *p) {
  gn_u32 count = (gn_u32)gn_get(p, 4), turn;
  gn_u64 seed = gn_get(p, 8), pages = gn_pages_of(p->dev);
  if (p->is_short) return;
  for (turn = 0; turn < count && turn < 4096; ++turn) {
    gn_u32 to = gn_take_page(p->dev);
    if (to == GN_NO_PAGE) return;
    seed = gnp_mix64(seed + turn);
    gn_moved(p->dev, (gn_u32)(seed % pages), to);
  }
}

static void gn_op_tick(struct gn_player *p) {
  gn_u64 now_ns = gn_get(p, 8);
  if (!p->is_short) gn_follow_up(p, now_ns);
}

static void gn_op_state(struct gn_player *p) {
  gn_u64 mapped = gn_map_len(gn_map_of(p->dev));
  gn_put(p, GN_EV_STATE, 1);
  gn_put(p, mapped, 8);
  if (!gn_in_flight(p->dev) && gn_free_pages(p->dev) + mapped != gn_pages_of(p->dev))
    gn_put(p, GN_EV_BROKEN, 1);
}

void gn_play_device(struct gn_player *p, gn_u8 op, const char **why) {
  if (op == GN_OP_DEVICE)
    gn_op_device(p, why);
  else if (!p->dev)
    *why = "there is no device yet";
  else if (op == GN_OP_COMMAND)
    gn_op_command(p);
  else if (op == GN_OP_DATA)
    gn_op_data(p);
  else if (op == GN_OP_DONE)
    gn_op_done(p);
  else if (op == GN_OP_ADMIN)
    gn_op_admin(p);
  else if (op == GN_OP_TICK)
    gn_op_tick(p);
  else if (op == GN_OP_MOVE)
    gn_op_move(p);
  else if (op == GN_OP_STATE)
    gn_op_state(p);
  else
    *why = "there is no such operation";
}
