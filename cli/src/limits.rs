// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What no daemon takes is refused before one is asked, by the daemon's own rules: it is a wrong command
//! line.

use gnstor_console::CliError;
use gnstor_daemon::core::Label;
use gnstor_daemon::core::failure::Failure;
use gnstor_daemon::core::request::{self, VolumeName};
use gnstor_daemon::core::rights;
use libgnstor::CreateOptions;
use std::collections::BTreeMap;

fn usage(failure: Failure) -> CliError {
    CliError::Usage(failure.message)
}

/// The same with the option that gave the value.
fn usage_of(option: &'static str) -> impl Fn(Failure) -> CliError {
    move |failure| CliError::Usage(format!("{option}: {}", failure.message))
}

/// Checks a volume's name.
///
/// # Errors
/// [`CliError::Usage`], as those of the other checks.
pub(crate) fn volume_name(name: &str) -> Result<(), CliError> {
    VolumeName::new(name).map(drop).map_err(|failure| match name.chars().count() {
        length @ 65.. => CliError::Usage(format!("{}; it has {length} characters", failure.message)),
        _ => usage(failure),
    })
}

/// Checks the name of a principal.
pub(crate) fn principal(name: &str) -> Result<(), CliError> {
    rights::principal(name).map(drop).map_err(usage)
}

/// Checks the name of a principal that gets a right. `gnstor certs issue` takes the same names, but for the
/// characters that would make a path of one.
pub(crate) fn new_principal(name: &str) -> Result<(), CliError> {
    principal(name)?;
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-@:/".contains(&b);
    if name.bytes().all(is_allowed) && name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "principal {name:?} is no name that a certificate or a token is issued for: use letters, digits, '.', \
         '_', '-', '@', ':' and '/', the first a letter or a digit"
    )))
}

/// Checks what a new volume is to be.
pub(crate) fn new_volume(name: &str, options: &CreateOptions) -> Result<(), CliError> {
    volume_name(name)?;
    request::capacity_blocks(options.capacity_bytes).map_err(usage_of("--size"))?;
    request::replicas(options.replicas).map_err(usage_of("--replicas"))?;
    request::chunk_shift(options.chunk_bytes).map_err(usage_of("--chunk"))?;
    request::labels(options.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))
        .map(drop)
        .map_err(usage_of("--label"))
}

/// Checks the labels that a volume is to get, and the keys of labels that it is to lose.
pub(crate) fn labels(name: &str, set: &BTreeMap<String, String>, remove: &[String]) -> Result<(), CliError> {
    let name = VolumeName::new(name).map_err(usage)?;
    let pairs = set.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let set = request::labels(pairs).map_err(usage)?;
    Label::new(name, set, remove.to_vec()).map(drop).map_err(usage)
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use crate::{cp, volume};
    use clap::Parser;
    use gnstor_base::testing::deadline;
    use gnstor_console::{CliError, Steps};
    use std::sync::Arc;

    /// Runs a command for an array that nothing serves.
    fn run(words: &[&str]) -> Result<(), CliError> {
        let words = [&["gnstor"], words, &["--array", "127.0.0.1:1"]].concat();
        match Cli::try_parse_from(words).expect("words that the parser takes").command {
            Command::Volume(args) => volume::run(&args),
            Command::Cp(args) => cp::run(&args, &Steps::new(true, Arc::default())),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_no_daemon_takes_is_a_wrong_command_line() {
        let _deadline = deadline();
        let (long, chars) = ("x".repeat(65), "y".repeat(4096));
        let much = format!("key={chars}");
        let create = ["volume", "create", "v", "--size"];
        let with = |more: &[&'static str]| [&create[..], &["4KiB"], more].concat();
        let cases: &[(Vec<&str>, &str)] = &[
            (vec!["volume", "create", "a b", "--size", "4KiB"], "\"a b\" is not valid"),
            (vec!["volume", "create", "", "--size", "4KiB"], "is not valid"),
            (vec!["volume", "create", &long, "--size", "4KiB"], "it has 65 characters"),
            (vec!["volume", "show", "a/b"], "\"a/b\" is not valid"),
            (vec!["volume", "delete", "good", ".bad"], "\".bad\" is not valid"),
            (vec!["volume", "share", "v", "anna bert", "read"], "\"anna bert\" is not valid"),
            (vec!["volume", "share", "v", "../x", "read"], "the first a letter or a digit"),
            (vec!["volume", "share", "v", "{}", "read"], "no name that a certificate"),
            (vec!["volume", "revoke", "v", "a=b"], "\"a=b\" is not valid"),
            (vec!["volume", "revoke", "v w", "anna"], "\"v w\" is not valid"),
            (
                [&create[..], &["5000"]].concat(),
                "--size: a capacity of 5000 bytes is not in whole blocks: use 8192",
            ),
            ([&create[..], &["17TiB"]].concat(), "(16 TiB)"),
            (with(&["--label", "word"]), "write it as KEY=VALUE"),
            (with(&["--label", "=word"]), "a key is not empty"),
            (with(&["--label", "a=b\nc"]), "has a line break"),
            (with(&["--label", "gnstor.owner=anna"]), "share and revoke"),
            ([&create[..], &["4KiB", "--label", &much]].concat(), "the labels take"),
            (vec!["volume", "rename", "v", "a/b"], "\"a/b\" is not valid"),
            (vec!["volume", "label", "v", "word"], "write it as KEY=VALUE"),
            (vec!["volume", "label", "v", "gnstor.partial=w"], "the array's own"),
            (vec!["volume", "label", "v", "--remove", "gnstor.owner"], "the array's own"),
            (vec!["cp", "-", "gn://a b", "--size", "4KiB"], "\"a b\" is not valid"),
            (vec!["cp", "gn://a b", "-"], "\"a b\" is not valid"),
        ];
        for (words, why) in cases {
            let error = run(words).expect_err(why);
            assert_eq!(error.exit_code(), 2, "{words:?}: {error}");
            assert!(error.to_string().contains(why), "{words:?}: {error}");
        }
        // What a daemon may take, one is asked for: there is none.
        let error = run(&with(&["--chunk", "4KiB", "--label", "a=b"])).expect_err("no array");
        assert_eq!(error.exit_code(), 1, "{error}");
    }
}
