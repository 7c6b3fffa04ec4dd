// SPDX-License-Identifier: Apache-2.0 OR MIT
// The agent as a kernel. Compiled by nvcc into fabric/cuda/agent.fatbin and by the C++ compiler for the CPU
// execution.
#include "fabric/hca/agent.cuh"

GN_KERNEL_OF(gn::hca::AGENT_THREADS) gn_hca_agent(const gn::hca::agent_args* args) {
  gn::hca::agent_main(*args);
}

// A client that does nothing. The agent beside it does the work in its queues, and ends.
GN_KERNEL gn_hca_idle(const void*) {}
