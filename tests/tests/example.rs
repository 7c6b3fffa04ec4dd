// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The example of the tutorial as its reader builds it: kernel and host program compiled, linked with the
//! static library, and run against an array.

use gnstor_tests::command::{BUILD_LIMIT, Ended, Up, run_for};
use gnstor_tests::folder::Folder;
use gnstor_tests::{pattern, within};
use std::path::Path;
use std::process::Command;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// Runs a compiler in the workspace. An environment variable may name another one.
fn compile(variable: &str, usual: &str, args: &str, more: &[&Path]) {
    let mut command = Command::new(std::env::var(variable).unwrap_or_else(|_| usual.into()));
    command.args(args.split_whitespace()).args(more).current_dir(workspace());
    let ended = run_for(command, BUILD_LIMIT);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

fn read_volume(program: &Path, args: &[&str]) -> Ended {
    let mut command = Command::new(program);
    command.args(args);
    run_for(command, BUILD_LIMIT)
}

#[test]
fn the_example_reads_a_whole_volume_in_a_kernel() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let [kernel, host, program, input] =
            ["kernel.o", "host.o", "read_volume", "input"].map(|name| folder.path().join(name));
        let flags = "-std=c++17 -x c++ -DGN_SIMT_HOST -Wno-unknown-pragmas -I fabric/simt -I fabric/cuda \
            -I gnor/cuda -I libgnstor/include";
        compile("CXX", "c++", &format!("{flags} -c libgnstor/examples/read_volume.cu -o"), &[&kernel]);
        let flags = "-std=c11 -Wall -Wextra -Werror -pedantic -I libgnstor/include";
        compile("CC", "cc", &format!("{flags} -c libgnstor/examples/read_volume.c -o"), &[&host]);
        // Cargo puts the static library beside this test, since the test links another form of the same
        // crate.
        let library =
            std::env::current_exe().expect("a test knows its path").with_file_name("liblibgnstor.a");
        let libraries = ["-lpthread", "-ldl", "-lm"].map(Path::new);
        compile("CXX", "c++", "-o", &[&[&*program, &*host, &*kernel, &*library][..], &libraries].concat());
        std::fs::write(&input, pattern(5, 1 << 20)).expect("a file can be written");
        let up = Up::start(&[]);
        up.cp(&[input.to_str().expect("a plain path"), "gn://corpus"]).worked();
        let ended = read_volume(&program, &[&up.daemon, "corpus"]);
        assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.starts_with("256 blocks, 0 failed, sum "), "{}", ended.stdout);
        let ended = read_volume(&program, &[&up.daemon, "nothing"]);
        assert!(ended.code == 1 && ended.stderr.contains("nothing"), "{}", ended.stderr);
        up.end("-TERM");
    });
}
