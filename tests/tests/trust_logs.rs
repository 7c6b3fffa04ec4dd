// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logs contain no secret in any form: no manager key, no client secret, no session key.

use crate::deadline::{Deadline, LIMIT};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gnstor_tests::command::{BUILD_LIMIT, Up, gnstor};
use gnstor_tests::folder::Folder;
use gnstor_tests::{pattern, within};
use regex::Regex;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::LazyLock;

/// Bytes of the key of a manager, a client or a session.
const KEY_BYTES: usize = 32;

/// The token of a caller.
const TOKEN: &str = "Zwiebel7-Kuchen8";

/// At least three quarters of a key as hexadecimal digits, as numbers between commas, or as Base64. An
/// array's number has half as many bytes as a key. A path or a name may look like Base64. Such text must
/// therefore have capitals, small letters and digits, as a key has.
static KEY_LIKE: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    [r"(?i)(?:[0-9a-f]{2}[ :_]?){24,}", r"(?:\d{1,3}, ?){23,}\d{1,3}", r"[A-Za-z0-9+/_-]{32,}={0,2}"]
        .map(|form| Regex::new(form).expect("a pattern"))
});

fn has_all_kinds(text: &str) -> bool {
    let kinds: [fn(&u8) -> bool; 3] = [u8::is_ascii_uppercase, u8::is_ascii_lowercase, u8::is_ascii_digit];
    kinds.iter().all(|kind| text.bytes().any(|byte| kind(&byte)))
}

/// The part of a line that may be a key or most of one.
fn key_like(line: &str) -> Option<&str> {
    let [hex, list, base64] = &*KEY_LIKE;
    let found = hex.find(line).or_else(|| list.find(line)).map(|found| found.as_str());
    found.or_else(|| base64.find_iter(line).map(|found| found.as_str()).find(|text| has_all_kinds(text)))
}

/// Checks that no line contains this manager key or text that looks like another key. Skips the text in
/// `public`.
pub(crate) fn assert_no_secret(whose: &str, lines: &[String], manager_key: &str, public: &[&str]) {
    let is_detail = |line: &String| ["TRACE", "DEBUG"].iter().any(|level| line.contains(level));
    assert!(lines.iter().any(is_detail), "{whose} logs all: {:?}", lines.first());
    let encoded = manager_key.trim().trim_end_matches(':').rsplit(':').next().expect("a last part");
    let bytes = &STANDARD.decode(encoded).expect("Base64")[..KEY_BYTES];
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    // The labels of a volume contain the SHA-256 of the copied data.
    let sum = Regex::new("gnstor[.]sha256=[0-9a-f]{64}").expect("a pattern");
    for line in lines {
        for text in ["DHHC-1", &encoded[..20], &hex[..20]] {
            assert!(!line.to_lowercase().contains(&text.to_lowercase()), "{whose}: {line}");
        }
        let plain = sum.replace_all(line, "").into_owned();
        let rest = public.iter().fold(plain, |rest, public| rest.replace(public, " "));
        assert_eq!(key_like(&rest), None, "{whose}: {line}");
    }
}

#[test]
fn what_may_be_a_key_is_found_in_each_form() {
    let _deadline = Deadline::after(LIMIT);
    let key: Vec<u8> = (0..KEY_BYTES).map(|at| u8::try_from(at * 37 % 251).expect("small")).collect();
    let hex: String = key.iter().map(|byte| format!("{byte:02X}")).collect();
    let spaced: Vec<String> = key.iter().map(|byte| format!("{byte:02x}")).collect();
    for shown in [hex, spaced.join(" "), format!("{key:?}"), STANDARD.encode(&key)] {
        assert!(key_like(&format!("TRACE a key={shown} of 7")).is_some(), "{shown}");
    }
    let line = "2026-11-26T16:07:16.123456Z  INFO gn-engine: SSD 3 at 127.0.0.1:40000, epoch 4294967297, in \
                /tmp/gnstor-tests/array/0.gns";
    assert_eq!(key_like(line), None);
}

#[test]
fn no_log_of_an_array_or_of_its_clients_shows_a_secret() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (data, tokens, own) = (path("array"), path("tokens"), path("token"));
        for (file, text) in [(&tokens, format!("anna {TOKEN}\n")), (&own, TOKEN.to_owned())] {
            std::fs::write(file, text).expect("a file");
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).expect("its owner may");
        }
        let up = Up::start(&["--data", &data, "--ssds", "2", "--tokens", &tokens, "--log", "trace"]);
        std::fs::write(path("in"), pattern(1, 8192)).expect("a file");
        let copied = gnstor(&[
            "--log",
            "trace",
            "cp",
            "--device",
            "host",
            "--token-file",
            &own,
            "--array",
            &up.daemon,
            &path("in"),
            "gn://v",
        ]);
        copied.worked();
        let folder_path = path("");
        let public = [folder_path.trim_end_matches('/')];
        let (code, said) = up.end_anyhow("-TERM");
        assert_eq!(code, 0);
        let key = std::fs::read_to_string(path("array/manager.key")).expect("the key");
        assert_no_secret("gnstor up", &said, &key, &public);
        let lines: Vec<String> = copied.stderr.lines().map(str::to_owned).collect();
        assert_no_secret("gnstor cp", &lines, &key, &public);
        let shows_token = |line: &&String| line.contains(&TOKEN[..8]) || line.contains(&TOKEN[8..]);
        assert_eq!(said.iter().chain(&lines).find(shows_token), None, "a token is in a log");
    });
}
