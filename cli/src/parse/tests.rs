// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wrong command lines: the exit code, and a sentence that names the option and what is allowed.

use super::*;
use gnstor_base::testing::deadline;

fn refused(words: &[&str]) -> (u8, String) {
    let words = ["gnstor"].iter().chain(words).map(OsString::from);
    let refusal = parse(words).expect_err("it is refused");
    (refusal.code, refusal.sentence.unwrap_or_else(|| refusal.error.to_string()))
}

#[test]
fn a_wrong_value_is_refused_with_its_option_and_what_is_allowed() {
    let _deadline = deadline();
    for (line, option, allowed) in [
        ("up --ssd-size 1", "--ssd-size", "multiple of 4 KiB, below 16 TiB"),
        ("up --ssd-size 900TiB", "--ssd-size", "below 16 TiB"),
        ("ssd --size 0", "--size", "multiple of 4 KiB"),
        ("up --ssds 65", "--ssds", "from 1 to 64"),
        ("up --groups 1000", "--groups", "a power of two"),
        ("up --listen 127.0.0.1:99999", "--listen", "a port is 1 to 65535"),
        ("up --ssd-at 127.0.0.1:99999", "--ssd-at", "a port is 1 to 65535"),
        ("ls --array nonsense", "--array", "write it like"),
        ("fleet fail x", "SSD ", "'x' is not the number of an SSD"),
        ("ssd log x", "SSD ", "'x' is not the number of an SSD"),
        ("fleet drain -1", "SSD ", "'-1' is not the number of an SSD"),
        ("fleet add foo", "SSD-ADDRESS ", "write it like"),
        ("rebuild limit 0", "PERCENT ", "from 1 to 100"),
        ("sim survive --jobs 0", "--jobs", "1 or more"),
        ("sim scale --iodepth x", "--iodepth", "1 to 128"),
        ("volume create v --size 1.5MiB", "--size", "write it with a smaller unit, like 1536KiB"),
        ("volume create v --size -1", "--size", "no size is negative"),
        ("volume create v --size 4KiB --replicas -1", "--replicas", "from 1 to 4"),
        ("volume create v --size 4KiB --replicas 0", "--replicas", "from 1 to 4"),
        ("volume create v --size 4KiB --replicas 256", "--replicas", "from 1 to 4"),
        ("volume create v --size 4KiB --chunk 0", "--chunk", "from 4KiB to 16MiB"),
        ("volume create v --size 4KiB --chunk 5000", "--chunk", "a power of two from 4KiB"),
        ("volume create v --size 4KiB --chunk 8GiB", "--chunk", "to 16MiB"),
        ("cp - gn://v --replicas 9", "--replicas", "from 1 to 4"),
        ("cp gn://v d --size 0", "--size", "use 1 byte or more"),
        ("cp d gn://v --size 0", "--size", "use 1 byte or more"),
        ("cp d gn://v --io-timeout 0", "--io-timeout", "use 1s to 1h"),
        ("demo --io-timeout 2h", "--io-timeout", "use 1s to 1h"),
        ("bench --rwmixread 101", "--rwmixread", "from 0 to 100"),
        ("bench --clients -1", "--clients", "1 to 64"),
    ] {
        let (code, said) = refused(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(code, NOT_UNDERSTOOD, "{line}: {said}");
        assert!(said.starts_with(option) && said.contains(allowed), "{line}: {said}");
        assert!(!said.contains('\n'), "{line}: one sentence: {said}");
    }
}

#[test]
fn no_option_answers_a_wrong_value_in_the_words_of_its_program() {
    let _deadline = deadline();
    fn walk(command: &clap::Command, names: &[String]) {
        for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
            let Some(long) = arg.get_long() else { continue };
            for wrong in ["x", "-1", "", "99999999999999999999", "1.5"] {
                let mut words = names.to_vec();
                words.push(format!("--{long}={wrong}"));
                let words = words.iter().map(String::as_str).collect::<Vec<_>>();
                let Err(refusal) = parse(["gnstor"].iter().chain(&words).map(OsString::from)) else {
                    continue;
                };
                let said = refusal.error.to_string();
                for theirs in ["digit found", "too large to fit", "non-zero", "empty string", "syntax", "..="]
                {
                    assert!(!said.contains(theirs), "{words:?}: {said}");
                }
            }
        }
        for inner in command.get_subcommands() {
            walk(inner, &[names, &[inner.get_name().to_owned()]].concat());
        }
    }
    walk(&command(), &[]);
}

#[test]
fn a_negative_value_gets_no_advice_that_does_not_work() {
    let _deadline = deadline();
    for line in ["volume create v --size -5MiB", "fleet fail -1x", "up --ssds -3"] {
        let (code, said) = refused(&line.split(' ').collect::<Vec<_>>());
        assert!(code == NOT_UNDERSTOOD && !said.contains("-- -"), "{line}: {said}");
    }
    assert!(refused(&["volume", "create", "v", "--size", "-5MiB"]).1.contains("not negative"));
}

#[test]
fn a_job_file_names_the_option_that_does_not_go_with_it() {
    let _deadline = deadline();
    let (code, said) = refused(&["bench", "--device", "host", "--job", "f"]);
    assert!(code == 2 && said.contains("--job cannot be used with --device"), "{said}");
    assert!(said.contains("device=VALUE"), "{said}");
}

#[test]
fn the_help_of_help_is_help() {
    let _deadline = deadline();
    for words in [&["help", "--help"][..], &["help", "-h"], &["fleet", "help", "--help"]] {
        let (code, said) = refused(words);
        assert!(code == 0 && said.contains("Usage: gnstor"), "{words:?}: {said}");
    }
}

#[test]
fn a_monitor_tells_a_wrong_command_line_from_a_degraded_array() {
    let _deadline = deadline();
    for line in [
        "status --bad",
        "--log info status --bad",
        "fleet show --bad",
        "fleet watch --array",
        "scrub status x",
        "rebuild status --array nonsense",
        "statsu",
        "fleet shwo",
        "fleet",
        "scrub",
    ] {
        let (code, said) = refused(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(code, NOT_UNDERSTOOD_BY_A_MONITOR, "{line}: {said}");
    }
    for line in ["ls --bad", "fleet fail", "scrub start x", "rebuild limit", "--log status ls"] {
        let (code, said) = refused(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(code, NOT_UNDERSTOOD, "{line}: {said}");
    }
}
