// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor bench --job FILE`: loads from a job file as fio has them, one after another.
//!
//! ```text
//!   [global]          words of every job
//!   bs=4k
//!   [reads]           a job: its name, and words of its own
//!   rw=randread
//! ```
//! Words that choose how fio reaches a block device are ignored, and a note names them.

use super::args::BenchArgs;
use clap::Parser;
use gnstor_console::{CliError, Steps, outln};
use std::collections::BTreeSet;
use std::path::Path;

/// The options of one job, as on a command line.
#[derive(Debug, Parser)]
// A job's words replace the global ones.
#[command(name = "job", disable_help_flag = true, args_override_self = true)]
struct Words {
    #[command(flatten)]
    args: BenchArgs,
}

/// A job with its load.
#[derive(Debug)]
struct Job {
    name: String,
    args: BenchArgs,
}

/// A section of the file: the job's name, its line, and its words.
#[derive(Debug)]
struct Section {
    name: String,
    line: usize,
    words: Vec<String>,
}

/// The content of a file: its jobs, and its options without a meaning here.
#[derive(Debug)]
struct JobFile {
    jobs: Vec<Job>,
    ignored: BTreeSet<String>,
}

/// Runs the jobs of a file. The first that fails ends the command.
///
/// # Errors
/// [`CliError`]: a file that cannot be read or understood, and what is wrong with a run.
pub(super) fn command(path: &Path, steps: &Steps) -> Result<(), CliError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| CliError::Usage(format!("--job {shown}: {e}")))?;
    let JobFile { jobs, ignored } = parse(&text).map_err(|why| CliError::Usage(format!("{shown}: {why}")))?;
    if let Some(note) = note(&ignored) {
        eprintln!("gnstor: {shown}: {note}");
    }
    for Job { name, args } in &jobs {
        if steps.interrupted() {
            return Err(CliError::Interrupted);
        }
        if args.json {
            steps.done(format!("job         {name}"));
        } else {
            outln!("\n  job         {name}");
        }
        super::run_and_print(args, steps)?;
    }
    Ok(())
}

/// Reads the jobs. Otherwise says which line is wrong.
fn parse(text: &str) -> Result<JobFile, String> {
    let (mut global, mut jobs) = (Vec::new(), Vec::<Section>::new());
    let (mut in_global, mut ignored) = (false, BTreeSet::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            in_global = name.trim() == "global";
            if !in_global {
                jobs.push(Section { name: name.trim().to_owned(), line: number, words: global.clone() });
            }
            continue;
        }
        let words = match jobs.last_mut() {
            _ if in_global => &mut global,
            Some(section) => &mut section.words,
            None => return Err(format!("line {number}: a section such as [reads] comes first")),
        };
        match word(line) {
            Word::Given(word) => words.push(word),
            Word::Always => {}
            Word::Ignored(key) => _ = ignored.insert(key),
        }
    }
    if jobs.is_empty() {
        return Err("there is no job: write a section such as [reads]".into());
    }
    Ok(JobFile { jobs: jobs.into_iter().map(job).collect::<Result<_, _>>()?, ignored })
}

/// The sentence about ignored words.
fn note(ignored: &BTreeSet<String>) -> Option<String> {
    let names: Vec<&str> = ignored.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| {
        format!("ignored, as every load here runs on a device without a page cache: {}", names.join(", "))
    })
}

/// The meaning of a line of a job.
enum Word {
    /// A word of the command line.
    Given(String),
    /// Each load behaves so anyway.
    Always,
    /// An option about fio's access to a block device, with the key as in the file.
    Ignored(String),
}

fn word(line: &str) -> Word {
    let (key, value) = line.split_once('=').map_or((line, None), |(key, value)| (key, Some(value.trim())));
    let written = key.trim();
    let key = written.replace('_', "-");
    match (key.as_str(), value) {
        // Jobs always run one after another, and for their runtime.
        ("stonewall" | "time-based", _) => Word::Always,
        ("ioengine" | "direct" | "group-reporting" | "thread" | "invalidate", _) => {
            Word::Ignored(written.to_owned())
        }
        ("json" | "one-grid" | "overwrite", Some("0")) => Word::Always,
        ("json" | "one-grid" | "overwrite", _) | (_, None) => Word::Given(format!("--{key}")),
        (_, Some(value)) => Word::Given(format!("--{key}={value}")),
    }
}

fn job(section: Section) -> Result<Job, String> {
    let Section { name, line: number, words } = section;
    let line = std::iter::once("job").chain(words.iter().map(String::as_str));
    match Words::try_parse_from(line) {
        Ok(Words { args }) if args.job.is_none() => Ok(Job { name, args }),
        Ok(_) => Err(format!("job '{name}' (line {number}) names another job file")),
        Err(error) => {
            let why = error.to_string();
            let first = why.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Err(format!("job '{name}' (line {number}): {first}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Rw;
    use gnstor_base::testing::deadline;

    #[test]
    fn sections_are_jobs_with_the_global_words() {
        let _deadline = deadline();
        let text = "; a comment\n[global]\nbs=8k\nsize=4MiB\nrate_iops=70,\nstonewall\none_grid=1\n\n\
                    [first]\n\
                    rw=readwrite\n\
                    numjobs = 2\n# more\n[second]\nreadwrite=randwrite\nbs=16k\nstatus_interval=1s\n";
        let JobFile { jobs, ignored } = parse(text).expect("two jobs");
        assert_eq!(note(&ignored), None);
        assert_eq!(jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["first", "second"]);
        let [first, second] = [&jobs[0].args, &jobs[1].args];
        assert_eq!((first.rw, first.bs, first.clients, first.one_grid), (Rw::Rw, 8192, 2, true));
        assert_eq!((second.rw, second.clients, second.size), (Rw::Randwrite, 1, 4 << 20));
        assert_eq!(first.rate_iops.and_then(|rate| rate.read), Some(70));
        assert!(second.status_interval.is_some() && first.status_interval.is_none());
    }

    #[test]
    fn words_of_fios_own_engines_are_ignored_and_named_once() {
        let _deadline = deadline();
        let text = "[global]\nioengine=libaio\ndirect=1\ntime_based\ntime_based=1\ngroup_reporting\n\
                    [a]\nioengine=io_uring\nruntime=3s\n";
        let JobFile { jobs, ignored } = parse(text).expect("a job");
        assert_eq!(jobs[0].args.runtime().as_secs(), 3);
        let note = note(&ignored).expect("a note");
        assert!(note.ends_with(": direct, group_reporting, ioengine"), "{note}");
    }

    #[test]
    fn the_rate_is_also_written_as_fio_writes_it() {
        let _deadline = deadline();
        for word in ["--rate_iops", "--rate-iops"] {
            let rate = crate::args::parsed(&[word, "70,30"]).rate_iops.expect("a rate");
            assert_eq!((rate.read, rate.write), (Some(70), Some(30)));
        }
    }

    #[test]
    fn what_is_wrong_names_the_job_and_its_line() {
        let _deadline = deadline();
        let wrong = |text: &str| parse(text).expect_err("it is wrong");
        assert!(wrong("").contains("there is no job"));
        assert!(wrong("bs=4k\n[a]\n").contains("line 1"));
        for (text, words) in [
            ("\n[a]\nfilename=/dev/sda\n", ["'a' (line 2)", "--filename"]),
            ("[a]\nrw=trim\n", ["'a' (line 1)", "trim"]),
            ("[a]\njob=other.fio\n", ["'a' (line 1)", "another job file"]),
        ] {
            for word in words {
                assert!(wrong(text).contains(word), "'{word}' in: {}", wrong(text));
            }
        }
    }
}
