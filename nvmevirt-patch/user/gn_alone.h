/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * States that the Rust firmware cannot reach by commands of a script, so that no vector has them. The
 * firmware has more room, waits, or knows no such connection. The tests here check this code's behaviour in
 * these states.
 */
#ifndef GN_ALONE_H
#define GN_ALONE_H

#include "gn_user.h"

#define GN_BLOCKS 64u
#define GN_T0 1000000ull
#define GN_LAST_NS (~0ull)

/* Ends a state's test if a condition fails. The line says where. */
#define GN_IS(WHAT)                                  \
  do {                                               \
    if (!(WHAT)) {                                   \
      fprintf(stderr, "gn_run: not so: %s\n", #WHAT); \
      return false;                                  \
    }                                                \
  } while (0)

/* The entry of the volume in hand, and room for the data of a daemon's command. */
extern gnp_entry gn_alone_entry;
extern gn_u8 gn_alone_data[GN_MAP_BYTES];

/* A device with a map and volume 1; NULL: it cannot be made. */
struct gn_dev *gn_alone_ready(gn_u64 now, gn_u32 commands, gn_u64 pages);
/* A command of the daemon, or one that claims to be; `data` may be NULL. */
struct gn_order {
  gn_u16 client;
  gn_u8 opcode;
  const void *data;
  gn_u32 bytes;
};
/* Sends it. Returns the code of its refusal. */
gn_u8 gn_alone_send(struct gn_dev *dev, gn_u64 now, struct gn_order order, struct gn_verdict *v);
/* VOLUME ADD or CHMOD of the entry in hand. */
gn_u8 gn_alone_change(struct gn_dev *dev, gn_u64 now, gn_u8 opcode, struct gn_verdict *v);
gn_u8 gn_alone_delete(struct gn_dev *dev, gn_u64 now, gn_u16 vid, gn_u32 generation, struct gn_verdict *v);
/* A command for volume 1 that the writer's lease allows. */
gnp_sqe gn_alone_io(gn_u8 opcode, gn_u16 client, gn_u32 vba, gn_u32 blocks);
/* Sends a command on a queue of `from`. Returns the code of its refusal. */
gn_u8 gn_alone_ask(struct gn_dev *dev, gn_u64 now, gn_u16 from, gnp_sqe sqe, struct gn_verdict *v);

/* Each brings a device into a state. Returns whether the device is right there. */
bool gn_state_fences(struct gn_dev *dev);
bool gn_state_slots(struct gn_dev *dev);
bool gn_state_no_page(struct gn_dev *dev);
bool gn_state_unbound(struct gn_dev *dev);
bool gn_state_no_client(struct gn_dev *dev);
bool gn_state_wrong_key(struct gn_dev *dev);
bool gn_state_end_of_time(struct gn_dev *dev);
bool gn_state_prp(struct gn_dev *dev);
bool gn_state_many_deaths(struct gn_dev *dev);
bool gn_state_cut_short(struct gn_dev *dev);
bool gn_state_long_answer(struct gn_dev *dev);

#endif
