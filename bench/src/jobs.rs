// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor bench --job FILE`: loads from a job file as fio has them, one after another.
//!
//! ```text
//!   [global]          words of every job
//!   bs=4k
//!   [reads]           a job: its name, and words of its own
//!   rw=randread
//! ```

use super::args::BenchArgs;
use clap::Parser;
use gnstor_console::{CliError, Steps, outln};
use std::path::Path;

/// The words of one job, as on a command line.
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

/// Runs the jobs of a file. The first that fails ends the command.
///
/// # Errors
/// [`CliError`]: a file that cannot be read or understood, and what is wrong with a run.
pub(super) fn command(path: &Path, steps: &Steps) -> Result<(), CliError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|e| CliError::File { path: shown.clone(), cause: e.to_string() })?;
    let jobs = parse(&text).map_err(|why| CliError::Usage(format!("{shown}: {why}")))?;
    for Job { name, args } in &jobs {
        if steps.interrupted() {
            return Err(CliError::Interrupted);
        }
        if args.json {
            steps.done(format!("job         {name}"));
        } else {
            outln!("\n  job         {name}");
        }
        super::command(args, steps)?;
    }
    Ok(())
}

/// Reads the jobs, or says in which line something is wrong.
fn parse(text: &str) -> Result<Vec<Job>, String> {
    let (mut global, mut jobs) = (Vec::new(), Vec::<Section>::new());
    let mut in_global = false;
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
        words.extend(word(line));
    }
    if jobs.is_empty() {
        return Err("there is no job: write a section such as [reads]".into());
    }
    jobs.into_iter().map(job).collect()
}

/// The words of the command line that a line of the file stands for.
fn word(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=').map_or((line, None), |(key, value)| (key, Some(value.trim())));
    let key = key.trim().replace('_', "-");
    match (key.as_str(), value) {
        // Jobs always run one after another, and for their time.
        ("stonewall" | "time-based", _) => None,
        ("json" | "one-grid" | "overwrite", Some("0")) => None,
        ("json" | "one-grid" | "overwrite", _) | (_, None) => Some(format!("--{key}")),
        (_, Some(value)) => Some(format!("--{key}={value}")),
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
    use crate::args::Rw;
    use gnstor_base::testing::deadline;

    #[test]
    fn sections_are_jobs_with_the_global_words() {
        let _deadline = deadline();
        let text = "; a comment\n[global]\nbs=8k\nsize=4MiB\nrate_iops=70,\nstonewall\none_grid=1\n\n\
                    [first]\n\
                    rw=readwrite\n\
                    numjobs = 2\n# more\n[second]\nreadwrite=randwrite\nbs=16k\nstatus_interval=1s\n";
        let jobs = parse(text).expect("two jobs");
        assert_eq!(jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["first", "second"]);
        let [first, second] = [&jobs[0].args, &jobs[1].args];
        assert_eq!((first.rw, first.bs, first.clients, first.one_grid), (Rw::Rw, 8192, 2, true));
        assert_eq!((second.rw, second.clients, second.size), (Rw::Randwrite, 1, 4 << 20));
        assert_eq!(first.rate_iops.and_then(|rate| rate.read), Some(70));
        assert!(second.status_interval.is_some() && first.status_interval.is_none());
    }

    #[test]
    fn what_is_wrong_names_the_job_and_its_line() {
        let _deadline = deadline();
        let wrong = |text: &str| parse(text).expect_err("it is wrong");
        assert!(wrong("").contains("there is no job"));
        assert!(wrong("bs=4k\n[a]\n").contains("line 1"));
        for (text, words) in [
            ("\n[a]\nioengine=libaio\n", ["'a' (line 2)", "--ioengine"]),
            ("[a]\nrw=trim\n", ["'a' (line 1)", "trim"]),
            ("[a]\njob=other.fio\n", ["'a' (line 1)", "another job file"]),
        ] {
            for word in words {
                assert!(wrong(text).contains(word), "'{word}' in: {}", wrong(text));
            }
        }
    }
}
