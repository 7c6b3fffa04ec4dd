// SPDX-License-Identifier: Apache-2.0 OR MIT
// The kernel that fails compiled for the CPU execution.
#include "fault.cu"
