// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No crate of the workspace enables the feature that turns access control off.

use crate::deadline::{Deadline, LIMIT};
use std::path::{Path, PathBuf};

const FEATURE: &str = "unchecked-for-benchmarks";

fn manifests(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the workspace").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            manifests(&path, found);
        } else if name == "Cargo.toml" {
            found.push(path);
        }
    }
}

#[test]
fn only_the_firmware_names_the_feature_that_turns_access_control_off() {
    let _deadline = Deadline::after(LIMIT);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let firmware = root.join("deengine/Cargo.toml");
    let mut all = Vec::new();
    manifests(root, &mut all);
    assert!(all.len() > 10, "{all:?}");
    for path in all {
        let text = std::fs::read_to_string(&path).expect("a manifest");
        let lines = text.lines().filter(|line| line.contains(FEATURE) && !line.trim_start().starts_with('#'));
        let want = if path == firmware { vec![format!("{FEATURE} = []")] } else { Vec::new() };
        assert_eq!(lines.collect::<Vec<_>>(), want, "{}", path.display());
    }
}
