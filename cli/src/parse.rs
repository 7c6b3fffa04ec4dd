// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the command line, and says what is wrong with one in the command's own words.

use crate::args::{Cli, Command, FleetCommand, RebuildCommand, ScrubCommand};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// The exit code of a command line that was not understood.
const NOT_UNDERSTOOD: u8 = 2;
/// The same where 2 means that the array is degraded, and where no command has the given name. The latter may
/// be a typing error of a monitor.
pub const NOT_UNDERSTOOD_BY_A_MONITOR: u8 = 64;

/// Commands whose exit code is the state of the array.
const REPORTERS: [&[&str]; 5] =
    [&["status"], &["fleet", "show"], &["fleet", "watch"], &["scrub", "status"], &["rebuild", "status"]];

/// A command line that is not run: one that was not understood, or one that asks for help.
#[derive(Debug)]
pub struct Refusal {
    /// The parser's refusal, or the help.
    pub error: clap::Error,
    /// The sentence about a value, in place of the parser's paragraph.
    pub sentence: Option<String>,
    /// The exit code.
    pub code: u8,
}

/// The command with what holds for all its options: a negative number is a value, so that the option's own
/// sentence refuses it.
pub fn command() -> clap::Command {
    fn takes_negative_numbers(command: clap::Command) -> clap::Command {
        let number = |arg: clap::Arg| match arg.get_action().takes_values() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        };
        command.mut_args(number).mut_subcommands(takes_negative_numbers)
    }
    takes_negative_numbers(Cli::command())
}

/// Reads the words of a command line, the first of which is the program's name.
///
/// # Errors
/// [`Refusal`]
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, Box<Refusal>> {
    let words = with_help(words.into_iter().collect());
    let mut command = command();
    let parsed = command.try_get_matches_from_mut(&words).and_then(|found| Cli::from_arg_matches(&found));
    parsed.map_err(|error| {
        command.build();
        let place = place(&command, &words);
        let error = with_its_usage(error, &place);
        let sentence = value_sentence(&error).or_else(|| sentence(&error, &place, &words));
        let is_unknown = matches!(
            error.kind(),
            ErrorKind::InvalidSubcommand
                | ErrorKind::MissingSubcommand
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        );
        let code = match error.exit_code() {
            0 => 0,
            _ if is_unknown || REPORTERS.contains(&&*place.names) => NOT_UNDERSTOOD_BY_A_MONITOR,
            _ => NOT_UNDERSTOOD,
        };
        Box::new(Refusal { error, sentence, code })
    })
}

/// The exit code of this command where its arguments turn out to be wrong while it runs.
pub fn usage_code(cli: &Cli) -> u8 {
    let reports = match &cli.command {
        Command::Status(_) => true,
        Command::Fleet(args) => matches!(args.command, FleetCommand::Show { .. } | FleetCommand::Watch(_)),
        Command::Scrub(args) => matches!(args.command, ScrubCommand::Status(_)),
        Command::Rebuild(args) => matches!(args.command, RebuildCommand::Status(_)),
        _ => false,
    };
    if reports { NOT_UNDERSTOOD_BY_A_MONITOR } else { NOT_UNDERSTOOD }
}

/// `help --help` means `--help`: clap has no help of its command `help`.
fn with_help(mut words: Vec<OsString>) -> Vec<OsString> {
    if let [.., before, last] = &*words
        && before == "help"
        && (last == "--help" || last == "-h")
    {
        words.remove(words.len() - 2);
    }
    words
}

/// The command that the words lead to.
struct Place<'a> {
    names: Vec<&'a str>,
    command: &'a clap::Command,
    /// Index of the first word behind the command's name.
    behind: usize,
}

fn place<'a>(root: &'a clap::Command, words: &[OsString]) -> Place<'a> {
    let mut place = Place { names: Vec::new(), command: root, behind: 1 };
    let mut at = 1;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        at += 1;
        if let Some(name) = word.strip_prefix("--") {
            let mut options = place.command.get_arguments();
            let takes = options.any(|a| a.get_long() == Some(name) && a.get_action().takes_values());
            at += usize::from(takes);
        } else if let Some(inner) = place.command.find_subcommand(word) {
            place.names.push(inner.get_name());
            (place.command, place.behind) = (inner, at);
        } else if !word.starts_with('-') {
            break;
        }
    }
    place
}

/// Clap's usage line names options that the environment gives as if they were required. The command's own
/// line takes its place.
fn with_its_usage(mut error: clap::Error, place: &Place<'_>) -> clap::Error {
    if error.get(ContextKind::Usage).is_some() {
        let usage = place.command.clone().render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

/// One sentence in place of advice that does not help.
fn sentence(error: &clap::Error, place: &Place<'_>, words: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return None };
    match error.kind() {
        ErrorKind::UnknownArgument if is_negative(given) => {
            Some(format!("'{given}' is not possible: sizes, times and numbers are not negative"))
        }
        ErrorKind::ArgumentConflict if given.starts_with("--job ") => {
            let others = words[place.behind..].iter().filter_map(|word| word.to_str()?.split('=').next());
            let is_other = |word: &&str| word.starts_with("--") && *word != "--job" && *word != "--log";
            let others: Vec<&str> = others.filter(is_other).collect();
            Some(format!(
                "--job cannot be used with {}: write it into the job file, as {}=VALUE without the dashes",
                others.join(" and "),
                others.first().map_or("key", |other| other.trim_start_matches('-'))
            ))
        }
        _ => None,
    }
}

/// One sentence about a value that an option does not take: the option, the value, and what is allowed.
fn value_sentence(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let why = std::error::Error::source(error)?;
    let option = text(ContextKind::InvalidArg)?.split([' ', '=']).next()?.trim_matches(['<', '>']);
    let value = text(ContextKind::InvalidValue)?;
    Some(format!("{option} {}: {why}", gnstor_console::printable(value)))
}

/// Whether a word was meant as a negative value: no option begins with a digit.
fn is_negative(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

#[cfg(test)]
mod tests;
