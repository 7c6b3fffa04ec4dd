// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the transfer kernel for the CPU execution; the GPU's form is the checked-in
//! `cuda/transfer.fatbin`.

fn main() {
    println!("cargo:rerun-if-changed=cuda");
    println!("cargo:rerun-if-changed=include");
    let gnor =
        |what: &str| std::env::var(format!("DEP_GN_GNOR_DEVICE_{what}")).expect("gnor's build script says");
    let (include, fabric, simt) = (gnor("INCLUDE"), gnor("FABRIC_INCLUDE"), gnor("SIMT"));
    for folder in [&include, &fabric] {
        println!("cargo:rerun-if-changed={folder}");
    }
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).define("GN_SIMT_HOST", None);
    build.include(&simt).include(&fabric).include(&include).include("include").include("cuda");
    build.flag("-Wno-unknown-pragmas").flag("-Wno-unused-function");
    build.file("cuda/transfer_host.cpp").compile("gn_libgnstor_device");
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:include={here}/include");
    println!("cargo:gnor_include={include}");
    println!("cargo:fabric_include={fabric}");
    println!("cargo:simt={simt}");
}
