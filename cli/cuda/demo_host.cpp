// SPDX-License-Identifier: Apache-2.0 OR MIT
// The demo's kernel compiled for the CPU execution.
#include "demo.cu"
