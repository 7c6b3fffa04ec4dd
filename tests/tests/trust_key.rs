// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD remembers which manager key it got first, without storing the key.

use gnstor_array::Secret;
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, gnstor};
use gnstor_tests::within;
use std::path::Path;

const ANY: &str = "127.0.0.1:0";
const SMALL: [&str; 4] = ["--preset", "null", "--size", "64MiB"];

struct Folder(gnstor_tests::folder::Folder);

impl Folder {
    fn new() -> Self {
        Self(gnstor_tests::folder::Folder::new())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("a plain path").to_owned()
    }
}

/// Starts the SSD with a file and shuts it down in order.
fn starts(file: &str, extra: &[&str]) -> String {
    let ssd = SsdProcess::start(ANY, &[&["--data", file], extra].concat());
    let came_up = ssd.came_up().to_owned();
    ssd.end("-TERM");
    came_up
}

#[test]
fn an_ssd_that_was_given_a_key_starts_with_no_other_and_not_without_one() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let (file, key, other) = (folder.path("0.gns"), folder.path("a.key"), folder.path("b.key"));
        let fresh = [&SMALL[..], &["--manager-key", &key]].concat();
        assert_eq!(starts(&file, &fresh), "fresh");
        let ssd = |extra: &[&str]| gnstor(&[&["ssd", "--listen", ANY, "--data", &file], extra].concat());
        ssd(&["--no-auth"]).failed(&["SSD 0", &file, "given a manager key", "--replace-manager-key"]);
        ssd(&["--manager-key", &other]).failed(&["another manager key", "--replace-manager-key"]);
        assert!(!Path::new(&other).exists(), "the key that was made for it is taken back");
        ssd(&["--no-auth", "--replace-manager-key"]).not_understood(&["--manager-key"]);
        assert_eq!(
            starts(&file, &["--manager-key", &key]),
            "clean",
            "nothing was lost by the refused starts"
        );
        // The operator has lost the key and replaces it.
        assert_eq!(starts(&file, &["--manager-key", &other, "--replace-manager-key"]), "clean");
        ssd(&["--manager-key", &key]).failed(&["another manager key"]);
        assert_eq!(starts(&file, &["--manager-key", &other]), "clean");
        // The file contains neither key.
        let bytes = std::fs::read(&file).expect("it can be read");
        for name in [&key, &other] {
            let text = std::fs::read_to_string(name).expect("a key");
            Secret::parse(&text).expect("it is one");
            let raw = raw_key(&text);
            assert!(!bytes.windows(raw.len()).any(|part| part == raw), "the data file holds the key");
        }
    });
}

#[test]
fn an_ssd_that_has_had_no_key_takes_the_one_that_it_is_given_next() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let (file, key) = (folder.path("0.gns"), folder.path("a.key"));
        assert_eq!(starts(&file, &[&SMALL[..], &["--no-auth"]].concat()), "fresh");
        assert_eq!(starts(&file, &["--no-auth"]), "clean");
        assert_eq!(starts(&file, &["--manager-key", &key]), "clean");
        gnstor(&["ssd", "--listen", ANY, "--data", &file, "--no-auth"]).failed(&["given a manager key"]);
        // A format removes the key with the data.
        let anew = ["--format", "--no-auth"];
        assert_eq!(starts(&file, &[&SMALL[..], &anew].concat()), "fresh");
        assert_eq!(starts(&file, &["--no-auth"]), "clean");
    });
}

#[test]
fn an_embedded_array_whose_key_file_is_gone_or_another_says_so_and_starts_with_it_again() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let (data, kept) = (folder.path("data"), folder.path("kept.key"));
        let sizes = ["--preset", "null", "--ssd-size", "64MiB", "--ssds", "2"];
        let up = Up::start_as(&[&["--data", &data], &sizes[..]].concat());
        up.volume(&["create", "v", "--size", "1MiB"]).worked();
        up.end("-TERM");
        let key = folder.path("data/manager.key");
        std::fs::rename(&key, &kept).expect("the key is moved away");
        let start = |extra: &[&str]| gnstor(&[&["up", "--listen", ANY, "--data", &data], extra].concat());
        start(&[]).failed(&["SSD 0", "another manager key", "--manager-key", "--replace-manager-key"]);
        assert!(!Path::new(&key).exists(), "no new key is left");
        let up = Up::start_as(&["--data", &data, "--manager-key", &kept]);
        assert!(up.volume(&["list"]).stdout.contains('v'));
        up.end("-TERM");
        let up = Up::start_as(&["--data", &data, "--manager-key", &key, "--replace-manager-key"]);
        assert!(up.volume(&["list"]).stdout.contains('v'));
        up.end("-TERM");
        start(&["--manager-key", &kept]).failed(&["another manager key"]);
        let up = Up::start_as(&["--data", &data]);
        up.end("-TERM");
    });
}

/// The 32 bytes of a key in its text form.
fn raw_key(text: &str) -> Vec<u8> {
    let encoded = text.trim().split(':').nth(2).expect("three parts");
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let bits = encoded.bytes().filter(|&c| c != b'=').map(value);
    let (mut bytes, mut word, mut have) = (Vec::new(), 0u32, 0);
    for six in bits {
        (word, have) = ((word << 6 | u32::from(six)) & 0xFFFF, have + 6);
        if have >= 8 {
            have -= 8;
            bytes.push(u8::try_from(word >> have & 0xFF).expect("a byte"));
        }
    }
    bytes.truncate(32);
    bytes
}
