// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the channel's kernel for the CPU execution; the GPU's form is the checked-in `cuda/gnor.fatbin`.

fn main() {
    println!("cargo:rerun-if-changed=cuda");
    let fabric = |what: &str| {
        std::env::var(format!("DEP_GN_FABRIC_DEVICE_{what}")).expect("fabric's build script says")
    };
    let (include, simt) = (fabric("INCLUDE"), fabric("SIMT"));
    println!("cargo:rerun-if-changed={include}");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).define("GN_SIMT_HOST", None);
    build.include(&simt).include(&include).include("cuda");
    build.flag("-Wno-unknown-pragmas").flag("-Wno-unused-function");
    build.file("cuda/gnor_host.cpp").compile("gn_gnor_device");
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:include={here}/cuda");
    println!("cargo:fabric_include={include}");
    println!("cargo:simt={simt}");
}
