// SPDX-License-Identifier: Apache-2.0 OR MIT
// The agent compiled for the CPU execution: the same text as the GPU's.
#include "agent.cu"
