// SPDX-License-Identifier: Apache-2.0 OR MIT
// The copying kernel compiled for the CPU execution.
#include "gather.cu"
