// SPDX-License-Identifier: GPL-2.0-only
/* Stamp histories. */
#include "gn_stamp.h"

static gn_u32 gn_chain(gn_u32 vba) { return (gn_u32)gnp_mix64(vba) % GN_CHAINS; }

void gn_history_clear(struct gn_history *history) {
  history->len = 0;
  history->next = 0;
  memset(history->heads, 0, sizeof history->heads);
}

bool gn_history_held(const struct gn_history *history, gn_u32 vba, struct gn_stamp *stamp) {
  gn_u32 at = history->heads[gn_chain(vba)], turn;
  /* The newest entry of a block comes before its older ones. */
  for (turn = 0; at && turn < GN_HISTORY; ++turn, at = history->links[at - 1]) {
    if (history->vbas[at - 1] == vba) {
      *stamp = history->stamps[at - 1];
      return true;
    }
  }
  return false;
}

/* The oldest entry of the ring is the last of its chain. */
static void gn_forget(struct gn_history *history, gn_u32 place) {
  gn_u16 *link = &history->heads[gn_chain(history->vbas[place])];
  gn_u32 turn;
  for (turn = 0; *link && turn < GN_HISTORY; ++turn) {
    if (*link == place + 1) {
      *link = 0;
      return;
    }
    link = &history->links[*link - 1];
  }
}

void gn_history_record(struct gn_history *history, gn_u32 vba, struct gn_stamp stamp) {
  gn_u32 place = history->next;
  gn_u16 *head = &history->heads[gn_chain(vba)];
  if (history->len == GN_HISTORY)
    gn_forget(history, place);
  else
    ++history->len;
  history->vbas[place] = vba;
  history->stamps[place] = stamp;
  history->links[place] = *head;
  *head = (gn_u16)(place + 1);
  history->next = (place + 1) % GN_HISTORY;
}
