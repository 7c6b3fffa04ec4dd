// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the kernels of the load generator for the CPU execution.

mod build_device;

fn main() {
    build_device::compile(
        "gn_bench_device",
        &["cuda/bench_host.cpp", "cuda/copy_host.cpp", "cuda/gather_host.cpp"],
    );
}
