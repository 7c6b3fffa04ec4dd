// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the CPU runtime for device code and the CPU form of the agent. No CUDA is needed: the GPU's form
//! is the checked-in `cuda/agent.fatbin`, which `scripts/build-fatbins` makes and CI compares.

fn main() {
    for folder in ["simt", "cuda"] {
        println!("cargo:rerun-if-changed={folder}");
    }
    let mut runtime = cc::Build::new();
    runtime.cpp(true).std("c++17").opt_level(2).include("simt");
    for file in ["rt_collective", "rt_report", "rt_run", "rt_sched", "rt_switch", "rt_weak", "simt_capi"] {
        runtime.file(format!("simt/{file}.cpp"));
    }
    let mut device = cc::Build::new();
    device.cpp(true).std("c++17").opt_level(2).define("GN_SIMT_HOST", None).include("simt").include("cuda");
    device.flag("-Wno-unknown-pragmas").flag("-Wno-unused-function");
    device.file("cuda/agent_host.cpp").file("cuda/layout.cpp");
    // The agent uses the runtime: it is named first to the linker.
    device.compile("gn_fabric_device");
    runtime.compile("gn_simt");
    // Crates that compile device code of their own find the headers by these.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:include={here}/cuda");
    println!("cargo:simt={here}/simt");
}
