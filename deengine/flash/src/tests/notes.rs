// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The note of a file is the old text or the new one after any cut.

use super::*;
use std::os::unix::fs::FileExt;

const COPIES: [u64; 2] = [12 << 10, 36 << 10];

#[test]
fn a_note_is_there_after_a_restart_and_after_another_one() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let file = new_file(&path, IoMode::Blocking);
    assert_eq!(file.note().unwrap(), None);
    let longest = "x".repeat(crate::NOTE_BYTES);
    for text in ["one", "", "two", &longest, "name = \"\u{e4}\""] {
        file.set_note(text).unwrap();
        assert_eq!(file.note().unwrap().as_deref(), Some(text));
    }
    assert!(file.set_note(&(longest + "x")).unwrap_err().to_string().contains("more than"));
    drop(file);
    assert_eq!(open(&path).unwrap().note().unwrap().as_deref(), Some("name = \"\u{e4}\""));
}

#[test]
fn either_copy_of_a_note_is_enough_and_a_torn_one_is_not_read() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let file = new_file(&path, IoMode::Blocking);
    let raw = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let copy = |at: u64| {
        let mut bytes = vec![0; 24 << 10];
        raw.read_exact_at(&mut bytes, at).unwrap();
        bytes
    };
    file.set_note("old").unwrap();
    let old = COPIES.map(copy);
    file.set_note("newer").unwrap();
    let new = COPIES.map(copy);
    // A cut hit the write of the second copy. The note has the newer text, and the next one replaces it.
    raw.write_all_at(&old[1], COPIES[1]).unwrap();
    assert_eq!(file.note().unwrap().as_deref(), Some("newer"));
    file.set_note("newest").unwrap();
    assert_eq!(file.note().unwrap().as_deref(), Some("newest"));
    for at in [0, 9, 17, 21, 24, 26] {
        let mut torn = new[0].clone();
        torn[at] ^= 1;
        raw.write_all_at(&torn, COPIES[0]).unwrap();
        raw.write_all_at(&old[1], COPIES[1]).unwrap();
        assert_eq!(file.note().unwrap().as_deref(), Some("old"), "byte {at}");
        raw.write_all_at(&torn, COPIES[1]).unwrap();
        assert!(file.note().unwrap_err().to_string().contains("damaged"), "byte {at}");
    }
}
