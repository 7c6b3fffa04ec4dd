// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the examples of libgnstor, which are a user's kernels, and the tests' own kernel, both for the
//! CPU execution.

fn main() {
    let lib = |what: &str| {
        std::env::var(format!("DEP_GN_LIBGNSTOR_DEVICE_{what}")).expect("libgnstor's build script says")
    };
    let examples = format!("{}/../libgnstor/examples", env!("CARGO_MANIFEST_DIR"));
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).define("GN_SIMT_HOST", None);
    build.flag("-Wno-unknown-pragmas").flag("-Wno-unused-function");
    for folder in [&lib("SIMT"), &lib("FABRIC_INCLUDE"), &lib("GNOR_INCLUDE"), &lib("INCLUDE"), &examples] {
        build.include(folder);
        println!("cargo:rerun-if-changed={folder}");
    }
    println!("cargo:rerun-if-changed=device");
    build.file("device/kernels_host.cpp").compile("gn_tests_device");
}
