// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties of the command line and of its help.

use super::*;
use clap::CommandFactory;
use gnstor_base::testing::deadline;

#[test]
fn the_command_line_is_consistent() {
    let _deadline = deadline();
    Cli::command().debug_assert();
}

#[test]
fn a_volume_without_bytes_is_refused_by_the_parser() {
    let _deadline = deadline();
    let parse =
        |size: &str| Cli::try_parse_from(["gnstor", "volume", "create", "z", "--size", size]).map(|_| ());
    for size in ["0", "0B", "0GiB"] {
        let error = parse(size).expect_err("no volume is that small");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("at least one block of 4 KiB"), "{error}");
    }
    parse("4KiB").expect("one block");
}

#[test]
fn values_and_pairs_that_make_no_sense_are_usage_errors() {
    let _deadline = deadline();
    let parse = |words: &[&str]| Cli::try_parse_from(["gnstor"].iter().chain(words)).map(|_| ());
    for (words, said) in [
        (&["ls", "--log", "foo"][..], "'foo' is no level"),
        (&["ls", "--log", "warn,gnstor_daemon=loud"], "'loud' is no level"),
        (&["ls", "--array", ""], "is not an address"),
        (&["up", "--out-after", "soon"], "'soon' is not a time; write it like 10s, or never"),
        (&["ls", "--tls-cert", "c", "--tls-ca", "a"], "--tls-key"),
        (&["ls", "--tls-cert", "c", "--tls-key", "k"], "--tls-ca"),
        (&["ls", "--tls-key", "k"], "--tls-cert"),
    ] {
        let error = parse(words).expect_err("it makes no sense");
        assert_eq!(error.exit_code(), 2, "{words:?}");
        assert!(error.to_string().contains(said), "{words:?}: {error}");
    }
    for words in [&["ls", "--log", "info"][..], &["ls", "--log", "warn,gnstor_daemon=debug"]] {
        parse(words).expect("levels");
    }
}

#[test]
fn the_help_of_ssd_log_says_where_the_key_of_an_array_in_memory_comes_from() {
    let _deadline = deadline();
    let error = Cli::try_parse_from(["gnstor", "ssd", "log", "--help"]).expect_err("help");
    // The terminal's width says where lines end.
    let words = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("gnstor up --manager-key FILE"), "{error}");
}

/// Each command with its name, subcommands too.
fn commands() -> Vec<(String, clap::Command)> {
    fn collect(command: &clap::Command, name: &str, into: &mut Vec<(String, clap::Command)>) {
        into.push((name.into(), command.clone()));
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            collect(inner, &format!("{name} {}", inner.get_name()), into);
        }
    }
    let mut root = Cli::command();
    root.build();
    let mut all = Vec::new();
    collect(&root, "gnstor", &mut all);
    all
}

#[test]
fn common_options_stand_under_no_heading() {
    let _deadline = deadline();
    for (name, command) in commands() {
        for option in command.get_arguments() {
            let is_common = ["json", "engines", "log", "help"].contains(&option.get_id().as_str());
            assert!(!is_common || option.get_help_heading().is_none(), "{name} {option}");
        }
    }
}

#[test]
fn the_level_of_the_log_is_the_last_option_before_help() {
    let _deadline = deadline();
    for (name, mut command) in commands() {
        let help = command.render_long_help().to_string();
        let first = |line: &str| line.trim_start().trim_start_matches("-h, ").starts_with("--");
        let general = help.split("\nOptions:\n").nth(1).expect("options");
        let general = general.split("\n\nCredentials:").next().expect("a part").to_owned();
        let general = general.split("\n\nAccess:").next().expect("a part");
        let options: Vec<&str> = general.lines().filter(|line| first(line)).collect();
        let log = options.iter().position(|line| line.contains("--log ")).expect("--log");
        assert!(options[log + 1].contains("--help"), "{name}: {options:?}");
    }
}

#[test]
fn a_paragraph_below_the_options_is_one_line_that_the_terminal_wraps() {
    let _deadline = deadline();
    for (name, command) in commands() {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<&str> = after.lines().collect();
        for pair in lines.windows(2) {
            // Examples are indented, and stand below a line with a colon.
            let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
            assert!(!is_prose(pair[0]) || !is_prose(pair[1]), "{name}: {pair:?}");
        }
    }
}

#[test]
fn a_code_that_is_also_that_of_a_wrong_command_line_says_so() {
    let _deadline = deadline();
    for (name, command) in commands() {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let Some((_, codes)) = after.split_once("Exit codes") else { continue };
        assert!(codes.contains("2 "), "{name}: {codes}");
        let says = codes.contains("wrong command line") || codes.contains("command line was not understood");
        assert!(says, "{name}: {codes}");
    }
}

#[test]
fn each_command_that_reports_a_state_lists_its_codes_and_each_order_has_an_example() {
    let _deadline = deadline();
    for (name, command) in commands() {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let reports = ["status", "fleet show", "fleet watch", "scrub status", "rebuild status"]
            .map(|of| format!("gnstor {of}"));
        if reports.contains(&name) {
            for code in ["Exit codes", "0 ", "1 the daemon did not answer", "2 ", "64 the command line"] {
                assert!(after.contains(code), "{name}: {code}: {after}");
            }
        }
        let is_order = ["fleet ", "certs ", "scrub ", "rebuild "].iter().any(|of| name.contains(of));
        assert!(!is_order || after.contains("  gnstor "), "{name} has no example: {after}");
    }
}

#[test]
fn what_listens_is_reached_from_its_own_machine_only_unless_an_address_is_named() {
    let _deadline = deadline();
    let mut listen = Vec::new();
    for (name, command) in commands() {
        for option in command.get_arguments().filter(|option| option.get_id() == "listen") {
            let defaults = option.get_default_values().iter().map(|value| value.to_str().expect("text"));
            let addresses: Vec<std::net::SocketAddr> =
                defaults.map(|value| value.parse().expect("an address")).collect();
            assert!(addresses.len() == 1 && addresses[0].ip().is_loopback(), "{name}: {addresses:?}");
            listen.push(name.clone());
        }
    }
    assert_eq!(listen, ["gnstor up", "gnstor ssd"]);
}
