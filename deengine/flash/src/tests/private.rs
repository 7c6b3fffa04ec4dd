// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other users of the machine can neither read an SSD's data nor give it false data.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;

/// Path of a file's protected memory (docs/formats-ssd.md).
fn memory_of(path: &Path) -> PathBuf {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let meta = std::fs::metadata(path).unwrap();
    PathBuf::from(format!("/dev/shm/gnstor-{:x}-{:x}-{}", meta.dev(), meta.ino(), boot.trim()))
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_data_file_and_its_protected_memory_are_their_owners_alone() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let file = new_file(&path, IoMode::Auto);
    let kept = Kept::create(&file, 8, 1).unwrap();
    kept.arm(owner()).unwrap();
    assert_eq!((mode(&path), mode(&memory_of(&path))), (0o600, 0o600));
    // Its owner, or an earlier version, has given it another mode.
    drop((kept, file));
    set_mode(&path, 0o644);
    let file = open(&path).unwrap();
    assert_eq!(mode(&path), 0o644, "it stays as it is");
    drop(file);
}

fn owner() -> KeptOwner {
    KeptOwner { tag: 1, boot: 1, dump: 1, lossy: false, filling: None }
}

#[test]
fn protected_memory_that_another_user_could_have_made_up_is_not_used() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let file = new_file(&path, IoMode::Auto);
    let kept = Kept::create(&file, 8, 1).unwrap();
    kept.arm(owner()).unwrap();
    let memory = memory_of(&path);
    let is_used = || LeftBehind::find(&file).is_ok_and(|left| left.is_some());
    assert!(is_used());
    for open in [0o640, 0o604, 0o620, 0o602] {
        set_mode(&memory, open);
        assert!(!is_used(), "mode {open:o}");
    }
    set_mode(&memory, 0o600);
    // Its own name elsewhere: a user who may make links in the folder names another file.
    let aside = folder.path().join("aside");
    std::fs::copy(&memory, &aside).unwrap();
    set_mode(&aside, 0o600);
    std::fs::remove_file(&memory).unwrap();
    symlink(&aside, &memory).unwrap();
    assert!(!is_used(), "a link");
    std::fs::remove_file(&memory).unwrap();
    std::fs::copy(&aside, &memory).unwrap();
    assert!(is_used());
    // Only root can change the owner of a file.
    if chown(&memory, Some(4321), None).is_err() {
        return;
    }
    assert!(!is_used(), "of another user");
    chown(&path, Some(4321), None).unwrap();
    assert!(is_used(), "that user owns the data, too");
}
