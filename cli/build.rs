// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the kernels of the demo for the CPU execution.

#[path = "../bench/build_device.rs"]
mod build_device;

fn main() {
    build_device::compile("gn_cli_device", &["cuda/demo_host.cpp", "cuda/fault_host.cpp"]);
}
