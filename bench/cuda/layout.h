// SPDX-License-Identifier: Apache-2.0 OR MIT
// Tables of sizes and offsets as the C++ compiler sees them, for the tests that compare them with Rust's. A
// table is written inside the namespace of its structures and ends with a null name.
#pragma once
#include <cstddef>

#define FIELD(T, F) #T "." #F, offsetof(T, F)
#define SIZE(T) #T, sizeof(T)

struct gn_layout_row {
  const char* name;
  size_t value;
};
