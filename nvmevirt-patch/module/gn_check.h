/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the module share. */
#ifndef GN_CHECK_H
#define GN_CHECK_H

#include <linux/mutex.h>

#include "gn_play.h"

/* One player at a time is shown: the last that played. */
extern struct mutex gn_check_lock;
extern struct gn_player *gn_check_shown;

/* Remembers what the shown player has counted; the lock is held. */
void gn_check_look(void);
int gn_check_stats_start(void);
void gn_check_stats_end(void);

#endif
