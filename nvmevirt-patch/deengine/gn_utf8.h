/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef GN_UTF8_H
#define GN_UTF8_H

#include "gn_os.h"

/* Whether the bytes are UTF-8: no overlong forms, no surrogates, no numbers above 10FFFFh. */
bool gn_is_utf8(const gn_u8 *at, gn_u32 bytes);

#endif
