// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles kernels of this workspace for the CPU execution; the GPU's forms are the checked-in
//! `cuda/*.fatbin`. Build scripts include this file.

/// Makes the static library `library` of these C++ files of the crate. The crate depends on libgnstor.
pub(crate) fn compile(library: &str, files: &[&str]) {
    println!("cargo:rerun-if-changed=cuda");
    let lib = |what: &str| {
        std::env::var(format!("DEP_GN_LIBGNSTOR_DEVICE_{what}")).expect("libgnstor's build script says")
    };
    let (include, gnor, fabric, simt) =
        (lib("INCLUDE"), lib("GNOR_INCLUDE"), lib("FABRIC_INCLUDE"), lib("SIMT"));
    for folder in [&include, &gnor, &fabric] {
        println!("cargo:rerun-if-changed={folder}");
    }
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).define("GN_SIMT_HOST", None);
    build.include(&simt).include(&fabric).include(&gnor).include(&include);
    build.flag("-Wno-unknown-pragmas").flag("-Wno-unused-function");
    build.files(files).compile(library);
}
