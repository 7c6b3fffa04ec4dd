// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device's placement (`cuda/gnor/place.cuh`), compiled for the CPU, against the golden file of `proto`.

use gnstor_base::testing::deadline;
use std::path::Path;
use std::process::Command;

#[test]
fn the_device_places_blocks_as_the_golden_file_says() {
    let _deadline = deadline();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("place");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
    let mut build = Command::new(&compiler);
    build.args([
        "-std=c++17",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unknown-pragmas",
        "-Wno-unused-function",
    ]);
    build.arg("-DGN_SIMT_HOST");
    for headers in ["fabric/simt", "fabric/cuda", "gnor/cuda", "proto/include"] {
        build.arg("-I").arg(root.join(headers));
    }
    build.arg(root.join("gnor/tests/device/place.cpp")).arg("-pthread").arg("-o").arg(&program);
    // The accesses of device code need its runtime, which runs nothing here.
    for source in ["collective", "report", "run", "sched", "switch", "weak"] {
        build.arg(root.join(format!("fabric/simt/rt_{source}.cpp")));
    }
    let built = build.output().expect("a C++ compiler");
    assert!(built.status.success(), "{compiler}: {}", String::from_utf8_lossy(&built.stderr));
    let golden = root.join("proto/tests/golden/placement.txt");
    let output = Command::new(&program).arg(golden).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
