// SPDX-License-Identifier: Apache-2.0 OR MIT
// The examples of libgnstor and the tests' own kernel, compiled for the CPU execution.
#include "follow.cu"
#include "read_async.cu"
#include "read_volume.cu"
#include "user.cu"
