// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs refuse what they do not understand, and the script where it cannot run.

use std::process::{Command, Output};

fn ended(command: &mut Command) -> (i32, String) {
    let Output { status, stderr, .. } = command.output().expect("it starts");
    (status.code().expect("no signal ended it"), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn the_conductor_and_a_client_name_their_arguments() {
    let _deadline = gnstor_base::testing::deadline();
    let (code, said) = ended(&mut Command::new(env!("CARGO_BIN_EXE_gnstor-chaos")));
    assert_eq!((code, said.contains("ROUNDS SEED FOLDER GNSTOR")), (2, true), "{said}");
    let (code, said) = ended(Command::new(env!("CARGO_BIN_EXE_gnstor-chaos-client")).arg("daemon"));
    assert_eq!((code, said.contains("DAEMON NAME RUN SEED WRITER|- HISTORY")), (2, true), "{said}");
}

/// The script names the program that is missing, and does not count as done.
#[test]
fn the_script_fails_with_a_sentence_where_it_cannot_make_namespaces() {
    let _deadline = gnstor_base::testing::deadline();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/chaos");
    let tools = std::env::temp_dir().join(format!("gnstor-chaos-tools-{}", std::process::id()));
    std::fs::create_dir_all(&tools).expect("a folder");
    for tool in ["realpath", "env", "bash"] {
        let found = ["/usr/bin", "/bin"].map(|folder| format!("{folder}/{tool}"));
        let found = found.iter().find(|path| std::path::Path::new(path).exists()).expect("it is there");
        let _ = std::os::unix::fs::symlink(found, tools.join(tool));
    }
    let (code, said) = ended(Command::new(script).arg("1").env("PATH", &tools));
    std::fs::remove_dir_all(&tools).expect("the folder of this test");
    assert_eq!((code, said.contains("unshare is missing: install util-linux")), (77, true), "{said}");
}
