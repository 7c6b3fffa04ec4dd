/* SPDX-License-Identifier: GPL-2.0-only */
/* The permission entry of a volume: its check, and its canonical bytes. Rust: proto/src/vendor.rs. */
#ifndef GN_ENTRY_H
#define GN_ENTRY_H

#include "gn_slba.h"

/* Checks 4,096 bytes and writes the entry to `out` in the form of VOLUME LIST. The unused part of each field
 * is zero, and request ids have no gaps. False: the entry is not valid, and `out` is undefined. */
bool gn_entry_take(const gn_u8 *bytes, gnp_entry *out);
/* Computes the checksum after a change. */
void gn_entry_seal(gnp_entry *entry);

#endif
